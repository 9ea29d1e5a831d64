"""A grader to be verified with; a module of its own, since the workers import it by name."""

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
