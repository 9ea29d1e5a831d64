"""The one exception a user's mistake raises: one line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The closest valid spelling of ``name``, or None when nothing is close."""
    close = difflib.get_close_matches(str(name), [str(v) for v in valid], n=1, cutoff=0.6)
    return close[0] if close else None


class BadInput(Exception):
    """Something the user gave cannot be used.

    ``what`` says what is wrong; the rest locates it: ``file``, ``key`` (dotted path in the recipe),
    ``got`` (the offending value), ``expected``, and ``valid`` (names to pick the nearest from).
    """

    def __init__(
        self,
        what: str,
        *,
        file: object | None = None,
        key: str | None = None,
        got: object | None = None,
        expected: str | None = None,
        valid: Iterable[str] | None = None,
    ):
        parts = []
        if file is not None:
            parts.append(f"{file}:")
        if key:
            parts.append(f"{key}:")
        parts.append(what)
        line = " ".join(parts)
        if got is not None:
            line += f"; got {_short(got)}"
        if expected:
            line += f"; expected {expected}"
        if valid is not None:
            valid = list(valid)
            close = nearest(str(got), valid)
            line += f"; did you mean {close!r}?" if close else f"; valid: {', '.join(map(str, valid)) or 'none'}"
        super().__init__(line.replace("\n", " "))


def _short(value: object, limit: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
