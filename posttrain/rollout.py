"""Rollouts: what a model answers, sampled and greedy in one generation call."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.eval.generate import Rollout, SamplingParams, generate
from gristmill.eval.models import LanguageModel


def rollouts(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], params: Sequence[Sequence[SamplingParams]], batch: int
) -> list[list[Rollout]]:
    """For each prompt one rollout per entry of its ``params``.

    All of one prompt's rollouts are in one call under the same weights, so a greedy baseline can be neither missing
    nor stale. A call holds about ``batch`` rollouts, the prompts in order.
    """
    found: list[list[Rollout]] = []
    at = 0
    while at < len(prompts):
        stop, rows = at, 0
        while stop < len(prompts) and (rows == 0 or rows + len(params[stop]) <= batch):
            rows += len(params[stop])
            stop += 1
        flat = [(prompts[k], p) for k in range(at, stop) for p in params[k]]
        drawn = iter(generate(lm.model, [ids for ids, _ in flat], [p for _, p in flat], stop=lm.stop, pad_id=lm.pad_id))
        found += [[next(drawn) for _ in params[k]] for k in range(at, stop)]
        at = stop
    return found
