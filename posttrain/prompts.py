"""Prompts with checkable answers, from the training part of seeded problems (``data.problems``): no evaluation asks
any of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from gristmill.data import problems
from gristmill.eval.arithmetic import EASY, layout
from gristmill.eval.models import LanguageModel
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.seeds import derive, hash64


class PromptsConfig(Config):
    """A set of problems to train on."""

    generators: tuple[problems.Generator, ...] = Field(EASY, description="what is asked; they take turns", min_length=1)
    count: int = Field(2000, ge=1, description="different problems (count)")
    shots: int = Field(2, ge=0, description="solved problems before each question (count), of the same set")


@dataclass(frozen=True)
class Prompt:
    """``ids``: what the model reads, BOS included; ``answer``: what it should say, EOS included."""

    problem: problems.Problem
    ids: list[int]
    answer: list[int]


def build(config: PromptsConfig, lm: LanguageModel, seed: int) -> list[Prompt]:
    """The set as token ids. Prompt and answer are encoded apart, so that the one is a prefix of both together."""
    if config.count <= config.shots:
        raise BadInput("more shots than other problems", key="prompts.shots", got=config.shots, expected="below count")
    if lm.tokenizer.eos_token_id is None:
        raise BadInput("the tokenizer has no EOS token to end an answer with", file=lm.name)
    asked = problems.generate(config.generators, config.count, derive(seed, "prompts"), "train")
    shown = [_others(derive(seed, "shots"), k, config.shots, config.count) for k in range(config.count)]
    texts = lm.encode([layout([asked[j] for j in js], p) for js, p in zip(shown, asked, strict=True)])
    answers = lm.encode([p.answer for p in asked])
    return [
        Prompt(problem, [*lm.begin, *ids], [*answer, lm.tokenizer.eos_token_id])
        for problem, ids, answer in zip(asked, texts, answers, strict=True)
    ]


def in_order(seed: int, count: int, start: int, stop: int) -> list[int]:
    """Indices of the prompts at positions [start, stop) of an endless stream: epoch after epoch, each a shuffle of all
    ``count``. A function of its arguments, so resuming is a number."""
    found: list[int] = []
    for epoch in range(start // count, (stop - 1) // count + 1):
        keys = hash64(derive(seed, "epoch", epoch), np.arange(count, dtype=np.uint64))
        order = np.argsort(keys, kind="stable")
        found += order[max(0, start - epoch * count) : stop - epoch * count].tolist()
    return found


def _others(seed: int, k: int, wanted: int, count: int) -> list[int]:
    """``wanted`` different indices below ``count``, none of them ``k``."""
    found: list[int] = []
    draw = 0
    while len(found) < wanted:
        j = int(hash64(derive(seed, k), np.array([draw], np.uint64))[0] % np.uint64(count))
        draw += 1
        if j != k and j not in found:
            found.append(j)
    return found
