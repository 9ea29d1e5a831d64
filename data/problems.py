"""Problems with checkable answers, made by reasoning-gym's seeded generators: text to train on, prompts to train
with, items to test with; one rule keeps the three apart.

A question belongs to ``test`` or to ``train`` by a hash of its text, whoever asks and under whatever seed: what an
evaluation asks was in no corpus and no prompt that came from here. One recipe's tasks are therefore drawn under
different seeds without care. The generators are reasoning-gym 0.1.25's own (arXiv 2505.24760).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from pydantic import Field, field_validator

from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput, nearest
from gristmill.kernels.common.seeds import derive

TEST_SHARE = 0.1  # of all questions; a property of a question, so not an option
# Names that need no look-up: importing the library to check a recipe takes longer than all the rest of checking it.
COMMON = frozenset(("basic_arithmetic", "chain_sum", "gcd", "gsm_symbolic", "lcm", "products", "simple_equations"))
_MISSING = "reasoning-gym is not installed; `pip install reasoning-gym==0.1.25`"
_PATIENCE = 50  # generated problems per wanted one before a task is called exhausted


class Generator(Config):
    """One of reasoning-gym's generators with its difficulty."""

    task: str = Field(description="name of a reasoning-gym generator, such as chain_sum")
    options: dict[str, int | float | bool] = Field(
        {}, description="the generator's own settings, such as {max_terms: 2}; its defaults otherwise"
    )

    @field_validator("task")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in COMMON and name not in (names := _library().factory.DATASETS):
            close = nearest(name, names)
            raise ValueError(f"reasoning-gym has no {name!r}" + (f"; did you mean {close!r}?" if close else ""))
        return name


@dataclass(frozen=True)
class Problem:
    """A question, its answer, and the generator's entry that :func:`score` grades against."""

    task: str
    question: str
    answer: str
    entry: dict[str, Any] = field(compare=False, repr=False)

    @property
    def id(self) -> str:
        """Hash of (task, question), hex."""
        return hashlib.sha256(f"{self.task}\n{self.question}".encode()).hexdigest()[:16]


def generate(generators: tuple[Generator, ...], count: int, seed: int, part: Literal["train", "test"]) -> list[Problem]:
    """``count`` different problems of ``part``, the generators taking turns; a function of its arguments and the
    library's version. Raises BadInput when a generator has no more different questions to give."""
    streams = [_stream(g, derive(seed, "problems", g.task, k), part, count) for k, g in enumerate(generators)]
    seen: set[str] = set()
    problems: list[Problem] = []
    while len(problems) < count:
        stream, generator = streams[len(problems) % len(streams)], generators[len(problems) % len(streams)]
        problem = next((p for p in stream if p.id not in seen), None)
        if problem is None:
            raise BadInput(
                f"reasoning-gym's {generator.task} runs out of different {part} questions",
                got=f"{count} problems",
                expected=f"at most {len(problems)} with these options, or wider ones",
            )
        seen.add(problem.id)
        problems.append(problem)
    return problems


def score(problem: Problem, answer: str | None) -> float:
    """reasoning-gym's own grade of ``answer`` in [0, 1]; below 1 is partial credit, not a right answer."""
    return float(_dataset(problem.task, {}, 1, 0).score_answer(answer, problem.entry))


def is_test(question: str) -> bool:
    """Whether a question is kept for testing."""
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "little") < TEST_SHARE * 2**64


def library_version() -> str:
    """Version of the generators: other versions may ask other questions."""
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        raise BadInput(_MISSING) from None


def warm_up() -> None:
    """Import the generators, which takes seconds, before something is timed."""
    _library()


def _stream(generator: Generator, seed: int, part: str, count: int) -> Iterator[Problem]:
    wanted, size = part == "test", max(64, count) * _PATIENCE
    data = _dataset(generator.task, generator.options, size, seed % 2**31)
    for k in range(size):  # entry k is drawn from (seed, k) alone, and only when asked for
        entry = data[k]
        if is_test(entry["question"]) == wanted:
            yield Problem(generator.task, entry["question"], str(entry["answer"]), entry)


def _dataset(task: str, options: dict, size: int, seed: int) -> Any:
    try:
        return _library().create_dataset(task, size=size, seed=seed, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise BadInput(f"reasoning-gym's {task} refuses its options: {error}", key="options", got=options) from None


def _library() -> Any:
    try:
        import reasoning_gym
        import reasoning_gym.factory
    except ImportError:
        raise BadInput(_MISSING) from None
    return reasoning_gym
