"""The two logs of a training run: what happened (deterministic) and how fast (not)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import atomic


class Metrics:
    """metrics.jsonl, one line per step, cut back to the steps a resumed run has done."""

    def __init__(self, path: Path, done: int):
        self.path = path
        lines = path.read_text().splitlines(keepends=True)[:done] if path.exists() else []
        if len(lines) < done or not all(_is_step(line, k) for k, line in enumerate(lines)):
            raise BadInput("the log does not reach the checkpoint; delete the run's folder to start over", file=path)
        with atomic(path) as tmp:
            tmp.write_text("".join(lines))

    def __enter__(self) -> Metrics:
        self._file = open(self.path, "a", buffering=1)  # noqa: SIM115 - line by line, so that it can be watched
        return self

    def __exit__(self, *exc: object) -> None:
        self.flush()
        self._file.close()

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, allow_nan=False) + "\n")

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


class Timing:
    """timing.jsonl: a line per start, and per ``every`` steps one with the rate since the line before."""

    def __init__(self, path: Path, step: int, tokens: int, every: int):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.every = path, every
        self._write({"step": step, "started": round(time.time(), 3)})
        self._since, self._tokens = time.monotonic(), tokens

    def step(self, step: int, tokens: int) -> float:
        """``tokens`` in all have been consumed after ``step`` steps; returns tokens per second."""
        seconds = max(1e-9, time.monotonic() - self._since)
        rate = (tokens - self._tokens) / seconds
        if step % self.every == 0:
            self._write({"step": step, "seconds": round(seconds, 3), "tokens_per_second": round(rate, 1)})
            self._since, self._tokens = time.monotonic(), tokens
        return rate

    def _write(self, line: dict[str, Any]) -> None:
        with open(self.path, "a") as f:
            f.write(json.dumps(line) + "\n")


def _is_step(line: str, step: int) -> bool:
    try:
        return line.endswith("\n") and json.loads(line)["step"] == step
    except (ValueError, KeyError, TypeError):
        return False
