"""Problems are a function of their seed, no training text holds a test question, and a wrong generator is one line."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from gristmill.data import problems
from gristmill.data.problems import Generator, generate
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.textschema import validator

SUM = Generator(task="chain_sum", options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2})
GCD = Generator(task="gcd")


def asked(found):
    return [(p.task, p.question, p.answer) for p in found]


def test_the_same_seed_gives_the_same_problems_in_any_process():
    code = (
        "from gristmill.data.problems import *\n"
        f"for p in generate((Generator.model_validate({SUM.model_dump()}), Generator(task='gcd')), 20, 7, 'train'):\n"
        "    print(p.question, p.answer)"
    )
    command = [sys.executable, "-c", code]
    again = subprocess.run(command, env={"PYTHONHASHSEED": "5"}, capture_output=True, text=True, check=True).stdout
    here = generate((SUM, GCD), 20, 7, "train")
    assert again == "".join(f"{p.question} {p.answer}\n" for p in here)
    assert asked(here) != asked(generate((SUM, GCD), 20, 8, "train"))


def test_fewer_problems_are_the_first_of_more():
    assert asked(generate((SUM, GCD), 30, 1, "train"))[:11] == asked(generate((SUM, GCD), 11, 1, "train"))


def test_generators_take_turns_and_no_question_comes_twice():
    found = generate((SUM, GCD), 400, 3, "train")
    assert [p.task for p in found[:4]] == ["chain_sum", "gcd", "chain_sum", "gcd"]
    assert len({p.id for p in found}) == 400


def test_training_and_test_questions_never_meet_whatever_the_seeds():
    train = {p.question for seed in range(3) for p in generate((SUM,), 2000, seed, "train")}
    test = {p.question for seed in range(3, 5) for p in generate((SUM,), 400, seed, "test")}
    assert not train & test
    assert all(map(problems.is_test, test)) and not any(map(problems.is_test, train))
    both = sorted(train | test)
    assert len(both) > 3000  # otherwise the sets are too small to meet anyway
    share = sum(map(problems.is_test, (f"question {k}" for k in range(20000)))) / 20000
    assert abs(share - problems.TEST_SHARE) < 0.01


def test_the_librarys_own_answer_is_right_and_another_is_not():
    for problem in generate((SUM, GCD), 10, 0, "test"):
        assert problems.score(problem, problem.answer) == 1.0
        assert problems.score(problem, "no number") < 1.0 and problems.score(problem, None) < 1.0


def test_names_that_need_no_look_up_are_the_librarys():
    import reasoning_gym.factory

    assert set(reasoning_gym.factory.DATASETS) >= problems.COMMON


def test_an_unknown_task_is_answered_with_the_nearest():
    with pytest.raises(ValidationError, match="reasoning-gym has no 'chain_sums'; did you mean 'chain_sum'"):
        Generator(task="chain_sums")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"min_trms": 2}, "unexpected keyword argument 'min_trms'"),
        ({"min_terms": 5, "max_terms": 2}, "max_terms must be >= min_terms"),
        ({"min_digits": 0}, "min_digits must be positive"),
    ],
)
def test_options_the_generator_refuses_are_one_line(options, message):
    with pytest.raises(BadInput, match=f"options: reasoning-gym's chain_sum refuses its options: .*{message}") as error:
        generate((Generator(task="chain_sum", options=options),), 1, 0, "train")
    assert "\n" not in str(error.value)


def test_more_problems_than_there_are_is_one_line_that_says_how_many():
    digits = Generator(task="chain_sum", options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
    with pytest.raises(BadInput, match="runs out of different train questions; got '250 problems'; expected at most 1"):
        generate((digits,), 250, 0, "train")


def test_options_are_typed_as_they_are_spelt():
    text = {"task": "chain_sum", "options": {"min_terms": "017", "rate": "1e-1", "whole": "2.0", "allow": "True"}}
    options = validator(Generator).validate_python(text).options
    assert options == {"min_terms": 17, "rate": 0.1, "whole": 2.0, "allow": True}
    assert [type(v) for v in options.values()] == [int, float, float, bool]
    with pytest.raises(ValidationError):
        validator(Generator).validate_python({"task": "chain_sum", "options": {"min_terms": "two"}})
