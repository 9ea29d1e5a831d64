"""Learning-rate schedules as pure functions of the step. A new one is a Config with ``at``, and its place in
``ScheduleConfig``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gristmill.kernels.common.config import Config

# Decay from 1 (x = 0) to 0 (x = 1). 1-sqrt: arXiv 2405.18392, the form of arXiv 2511.18903.
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda x: 1 - x,
    "1-sqrt": lambda x: 1 - math.sqrt(x),
    "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
}
Shape = Literal["linear", "1-sqrt", "cosine"]
WARMUP = "share of the steps over which the rate rises linearly from 0 [0-1)"


class WSM(Config):
    """Warm up, then constant: merging checkpoints stands in for the decay (WSM, arXiv 2507.17634)."""

    kind: Literal["wsm"] = Field("wsm", description="warmup, stable, merge")
    warmup: float = Field(0.05, ge=0, lt=1, description=WARMUP)

    def at(self, step: int, steps: int) -> float:
        return _warmup(step, self.warmup * steps)


class WSD(Config):
    """Warm up, constant, then decay to a share of the peak (WSD, arXiv 2404.06395)."""

    kind: Literal["wsd"] = Field("wsd", description="warmup, stable, decay")
    warmup: float = Field(0.05, ge=0, lt=1, description=WARMUP)
    decay: float = Field(0.2, gt=0, le=1, description="share of the steps over which the rate falls (0-1]")
    shape: Shape = Field("1-sqrt", description="how it falls")
    final: float = Field(0.0, ge=0, le=1, description="rate of the last step as a share of the peak [0-1]")

    @model_validator(mode="after")
    def _fits(self) -> WSD:
        if self.warmup + self.decay > 1:
            raise ValueError(f"warmup + decay is {self.warmup + self.decay:g} of the run; at most 1")
        return self

    def at(self, step: int, steps: int) -> float:
        # The last stable step is x = 0 and the last step of the run x = 1, so `final` is reached, not approached.
        length = self.decay * steps
        x = min(1.0, max(0.0, 1 - (steps - 1 - step) / length))
        return _warmup(step, self.warmup * steps) * (self.final + (1 - self.final) * SHAPES[self.shape](x))


ScheduleConfig = Annotated[WSM | WSD, Field(discriminator="kind")]


def factor(config: WSM | WSD, step: int, total_steps: int) -> float:
    """Learning rate of step ``step`` (from 0) of ``total_steps``, as a share of the peak."""
    if not 0 <= step < total_steps:
        raise ValueError(f"step {step} of {total_steps}")
    return config.at(step, total_steps)


def _warmup(step: int, length: float) -> float:
    """Step 0 already moves (1 / length), and the first step at or past ``length`` - 1 runs at the peak."""
    return min(1.0, (step + 1) / length) if length > 0 else 1.0
