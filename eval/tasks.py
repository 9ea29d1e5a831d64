"""What a task is: a function of a model, its own settings and the material, that returns a Result.

A new task is one file with a Config and a ``measure``, its place in ``suites.TASKS``, and a test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Result:
    """One score, what it was made of, and what chance would score.

    ``groups``: the same score of parts of the items. ``records``: one JSON object per item. ``extra``: further
    JSON for the scores file.
    """

    metric: str
    value: float
    stderr: float
    n: int
    higher_is_better: bool = True
    chance: float | None = None
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The line of the scores file."""
        row = {
            "metric": self.metric,
            "value": self.value,
            "stderr": self.stderr,
            "n": self.n,
            "chance": self.chance,
            "higher_is_better": self.higher_is_better,
        }
        return {**row, "groups": self.groups} if self.groups else row


def share(hits: list[bool] | list[float]) -> dict[str, Any]:
    """Mean of per-item scores with its standard error (sample deviation / sqrt(n)): {"value", "stderr", "n"}."""
    n = len(hits)
    mean = sum(hits) / n
    deviation = (sum((h - mean) ** 2 for h in hits) / max(1, n - 1)) ** 0.5
    return {"value": round(mean, 5), "stderr": round(deviation / n**0.5, 5), "n": n}
