"""Selectors: which documents of a source a phase takes, and how often.

    all        every document once            none       nothing
    top .30    the best 30 % of documents     rand .10   each document with probability .1
    x2.0       every document twice; x1.5: once, and half of them again (stochastic rounding)

Ranks break ties by a hash of the content id, so integer scores keep the stated share. Every draw is a pure
function of (seed, phase, source, content id).
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, model_serializer, model_validator

from gristmill.kernels.common.config import Config

_FORMS = re.compile(r"^(?:(all|none)|(top|rand)\s+(\S+)|x\s*(\S+))$")


class Selector(Config):
    """One cell of the mix."""

    kind: str = Field(description="all | none | top | rand | x")
    amount: float = Field(1.0, description="share for top and rand (0-1], copies for x")

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        match = _FORMS.match(value.strip())
        if not match:
            raise ValueError(f"{value!r} is not a selector: all, none, top SHARE, rand SHARE or xCOPIES")
        word, kind, share, copies = match.groups()
        if word:
            return {"kind": word}
        try:
            amount = float(share if kind else copies)
        except ValueError:
            raise ValueError(f"{value!r}: {share or copies!r} is not a number") from None
        return {"kind": kind or "x", "amount": amount}

    @model_validator(mode="after")
    def _range(self) -> Selector:
        if self.kind in ("top", "rand") and not 0 < self.amount <= 1:
            raise ValueError(f"{self} is out of range: a share is above 0 and at most 1")
        if self.kind == "x" and not 0 < self.amount <= 1000:
            raise ValueError(f"{self} is out of range: copies are above 0 and at most 1000")
        return self

    @model_serializer
    def _text(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self.kind in ("all", "none"):
            return self.kind
        return f"x{self.amount!r}" if self.kind == "x" else f"{self.kind} {self.amount!r}"

    def expected_copies(self) -> float:
        """Mean number of times a document of the source is taken."""
        return {"all": 1.0, "none": 0.0}.get(self.kind, self.amount)

    def keep(self, documents: int) -> int:
        """How many documents ``top`` keeps of ``documents``: the share rounded to the nearest, at least one."""
        return max(1, int(self.amount * documents + 0.5))
