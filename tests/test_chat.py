"""Chat: what is streamed is what the generator makes, the conversation is kept, and Ctrl-C ends an answer only."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from conftest import MiniRun

from gristmill.eval import models
from gristmill.eval.generate import SamplingParams, generate
from gristmill.kernels.common.seeds import derive
from gristmill.posttrain.chat import ChatConfig, chat

GREEDY = ChatConfig(temperature=0.0, max_tokens=12)


@pytest.fixture(scope="module")
def lm(mini_run: MiniRun) -> models.LanguageModel:
    return models.load(mini_run.out / "mini" / "release")


def talk(lm: models.LanguageModel, config: ChatConfig, *lines: str | type[BaseException]) -> list[str]:
    """What was said, in pieces; an exception among the lines is raised where a line was asked for."""
    said: list[str] = []
    script: Iterator = iter(lines)

    def ask() -> str:
        line = next(script, EOFError)
        if not isinstance(line, str):
            raise line
        return line

    chat(lm, config, ask, said.append)
    return said


def test_it_streams_what_the_generator_makes(lm):
    said = talk(lm, GREEDY, "River stone market")
    ids = [*lm.begin, *lm.encode(["River stone market"])[0]]
    (whole,) = generate(lm.model, [ids], [SamplingParams(max_tokens=12)], stop=lm.stop, pad_id=lm.pad_id)
    assert "".join(said) == lm.decode(whole.token_ids) + "\n" and len(said) > 3


def test_a_base_model_continues_one_text(lm):
    """What was typed and what was answered are what the next answer follows; an empty line adds nothing."""
    first, then = talk(lm, GREEDY, "River"), talk(lm, GREEDY, "River", "")
    ids = [*lm.begin, *lm.encode(["River"])[0]]
    longer = SamplingParams(max_tokens=24)
    (whole,) = generate(lm.model, [ids], [longer], stop=lm.stop, pad_id=lm.pad_id)
    assert whole.finish_reason == "length", "the text ended: choose another beginning"
    assert then[: len(first)] == first
    assert lm.decode(whole.token_ids[12:]) == "".join(then[len(first) :]).removesuffix("\n")


def test_reset_forgets_and_quit_ends(lm):
    fresh = "".join(talk(lm, GREEDY, "Candle"))
    assert "".join(talk(lm, GREEDY, "River", "/reset", "Candle")).endswith(fresh)
    assert talk(lm, GREEDY, "/quit", "River") == []


def test_a_long_conversation_fits_the_context(lm):
    line = "river stone market engine garden letter " * 40
    said = talk(lm, GREEDY, line, line)
    assert "".join(said).count("\n") >= 2


def test_the_same_seed_says_the_same(lm):
    drawn = ChatConfig(temperature=1.0, top_p=0.9, max_tokens=16, seed=3)
    one = "".join(talk(lm, drawn, "River", "/reset", "River"))
    assert one == "".join(talk(lm, drawn, "River", "/reset", "River"))
    assert one != "".join(talk(lm, drawn.model_copy(update={"seed": 4}), "River", "/reset", "River"))
    params = SamplingParams(temperature=1.0, top_p=0.9, max_tokens=16, seed=derive(3, "turn", 0))
    ids = [*lm.begin, *lm.encode(["River"])[0]]
    (first,) = generate(lm.model, [ids], [params], stop=lm.stop, pad_id=lm.pad_id)
    assert one.startswith(lm.decode([t for t in first.token_ids if t not in lm.stop]))


def test_ctrl_c_ends_the_answer_and_nothing_else(lm):
    said: list[str] = []
    lines = iter(["River", ""])

    def ask() -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            raise KeyboardInterrupt  # in the middle of the answer

    chat(lm, GREEDY, ask, say)
    plain = "".join(talk(lm, GREEDY, "River"))
    assert plain.startswith("".join(said[:3])) and len(said) > 4  # the second answer came
    assert "Ctrl-D" in "".join(talk(lm, GREEDY, KeyboardInterrupt))  # at the prompt it says how to leave


def test_a_chat_template_gets_messages(mini_run):
    lm = models.load(mini_run.out / "mini" / "release")
    lm.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}a:{% endif %}"
    )
    asked: list[str] = []
    forward = lm.model.forward

    def seen(*args, input_ids=None, **kwargs):
        if input_ids.shape[1] > 1:
            asked.append(lm.decode(input_ids[0].tolist()))
        return forward(*args, input_ids=input_ids, **kwargs)

    lm.model.forward = seen
    said = "".join(talk(lm, ChatConfig(temperature=0, max_tokens=4), "River", "", "Stone"))
    answer = said.split("\n")[0]
    assert asked == ["u: River\na:", f"u: River\na: {answer}\nu: Stone\na:"]


def test_piped_text_is_answered_and_ends_with_0(mini_run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("River stone\n/reset\n/quit\n"))
    done = mini_run.gristmill("chat", "mini", "--max-tokens", "5", "--temperature", "0")
    assert done.stdout.strip() and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (["mini", "--top-p", "1.5"], ("--top-p", "1.5")),
        (["mini", "--temperature", "-1"], ("--temperature", "-1")),
        (["minni"], ("minni", "mini")),
    ],
)
def test_bad_input(mini_run, arguments, needs):
    done = mini_run.gristmill("chat", *arguments, code=2)
    (line,) = done.stderr.strip().splitlines()
    assert all(need in line for need in needs), line
