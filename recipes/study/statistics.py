"""Paired comparison over seeds: the difference within each seed, its mean, standard error, interval and t-test.

A comparison is a contrast: a weight for each variant, summing to zero, so that a difference, a main effect and an
interaction are one thing. Within a seed variants share what the seed decides, which the contrast cancels. With few
seeds the t distribution is wide (n = 3: 4.3 standard errors for 95 %): an honest "not shown", not a defect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import t as student

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds. ``stderr``, ``low`` and ``high`` (95 % interval) and ``p`` (two-sided, of the mean being 0; not
    adjusted) are None where there is nothing to estimate them from: one seed, or no spread at all."""

    mean: float
    n: int
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Contrast:
    """``left`` minus ``right``, both in words; ``weights``: variant -> weight, those left out weigh nothing."""

    left: str
    right: str
    weights: Mapping[str, float]

    def of(self, values: Mapping[str, float]) -> float:
        """The contrast of one seed's values (variant -> value)."""
        return sum(weight * values[name] for name, weight in self.weights.items())


def estimate(values: Sequence[float]) -> Estimate:
    """One-sample Student statistics of ``values``, one per seed (sample deviation, n - 1 degrees of freedom)."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Estimate(mean, n)
    stderr = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    if stderr == 0:
        return Estimate(mean, n, 0.0)
    half = float(student.ppf((1 + CONFIDENCE) / 2, n - 1)) * stderr
    return Estimate(mean, n, stderr, mean - half, mean + half, float(2 * student.sf(abs(mean) / stderr, n - 1)))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment (Scand. J. Stat. 6, 1979): all differences with an adjusted p below alpha are shown
    at once with error alpha. Those without a p count among the comparisons made, and stay without."""
    order = sorted((k for k, value in enumerate(p) if value is not None), key=lambda k: p[k])
    adjusted: list[float | None] = [None] * len(p)
    highest = 0.0
    for rank, k in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[k]))
        adjusted[k] = highest
    return adjusted


def contrasts(kinds: Sequence[str], names: Sequence[str], factors: Mapping[str, Sequence[str]]) -> list[Contrast]:
    """The comparisons of ``kinds`` (see Study.compare); ``names``: variants, the baseline first; ``factors``: factor ->
    levels, for effects and interaction of two by two."""
    found: list[Contrast] = []
    for kind in kinds:
        if kind == "baseline":
            found += [Contrast(name, names[0], {name: 1.0, names[0]: -1.0}) for name in names[1:]]
            continue
        (one, (a0, a1)), (two, (b0, b1)) = factors.items()
        n00, n01, n10, n11 = names  # in the order of a product: the second factor moves first
        if kind == "effects":
            found.append(Contrast(f"{a1} (averaged over {two})", a0, {n10: 0.5, n11: 0.5, n00: -0.5, n01: -0.5}))
            found.append(Contrast(f"{b1} (averaged over {one})", b0, {n01: 0.5, n11: 0.5, n00: -0.5, n10: -0.5}))
        else:
            left, right = f"{a1}'s effect with {b1}", f"with {b0}"
            found.append(Contrast(left, right, {n11: 1.0, n01: -1.0, n10: -1.0, n00: 1.0}))
    return found
