"""Graders to verify with; a module of their own, since the workers import them by name."""

from __future__ import annotations

import os


def hostile(problem, answer: str) -> float:
    """Does what an answer says."""
    if answer == "hang":
        while True:
            pass
    if answer == "die":
        os._exit(3)
    if answer == "raise":
        raise KeyboardInterrupt
    return float(answer)


def by_length(problem, answer: str) -> float:
    """A reward that a model which knows nothing still gets now and then."""
    return (len(answer) % 4) / 3
