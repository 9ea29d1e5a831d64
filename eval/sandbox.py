"""Sandbox: run a program nobody has read, and say how it ended. For everybody who grades code.

Each program gets a process of its own: an isolated interpreter without site-packages, an empty environment and
working folder, limits on processor time, wall time, memory, file size and output, its process group killed at the
end whatever happened. Inside, ``sandbox_child`` refuses imports beyond a list, and through an audit hook (which
Python code cannot remove) sockets, processes, writing or opening files, and foreign functions. Where the kernel lets
an ordinary user have a network namespace, there is no network to refuse.

This contains accidents and ordinary misbehaviour of model-written code. It is not a wall against an attacker who
knows CPython's insides: for hostile code run the whole of gristmill in a virtual machine or a container.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from gristmill.kernels.common.config import Config

CHILD = Path(__file__).with_name("sandbox_child.py")
OUTPUT = 1 << 16  # bytes of output kept
SLACK = 2.0  # wall seconds for the interpreter to start, beside the program's own

Status = Literal["passed", "failed", "syntax", "forbidden", "timeout", "memory", "crashed"]


class Limits(Config):
    """What one program may use."""

    cpu_seconds: int = Field(4, ge=1, description="processor time (s)")
    wall_seconds: float = Field(6, gt=0, description="time until it is killed (s)")
    memory_mb: int = Field(512, ge=64, description="address space (MB)")


DEFAULT = Limits()


@dataclass(frozen=True)
class Outcome:
    """How a program ended; ``detail`` is one line, such as the exception."""

    status: Status
    detail: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "passed"


def run(program: str, limits: Limits = DEFAULT) -> Outcome:
    """Run Python source to its end. ``passed``: its last statement was reached and finished.

    A program cannot pass by leaving early: exit code and output count for nothing, only a word that the child
    process is told before the program starts and says once it is done.
    """
    word = secrets.token_hex(16)
    told = {"word": word, "program": program, "limits": limits.model_dump(mode="json")}
    with tempfile.TemporaryDirectory(prefix="gristmill-sandbox-") as folder, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={"PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(told).encode(), timeout=limits.wall_seconds + SLACK)
        except subprocess.TimeoutExpired:
            return Outcome("timeout", f"more than {limits.wall_seconds:g} s")
        finally:
            _kill(process)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - OUTPUT))
        return _outcome(process.returncode, output.read().decode(errors="replace"), word)


def run_all(
    programs: Sequence[str],
    limits: Limits = DEFAULT,
    workers: int | None = None,
    advance: Callable = lambda n: None,
) -> list[Outcome]:
    """:func:`run` on each, several at a time; outcomes in order."""
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        outcomes = []
        for outcome in pool.map(lambda program: run(program, limits), programs):
            outcomes.append(outcome)
            advance(1)
        return outcomes


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # and whatever it started
    process.wait()


def _outcome(code: int, output: str, word: str) -> Outcome:
    lines = output.splitlines()
    for line in reversed(lines):
        said, _, rest = line.partition(" ")
        if said == word:
            status, _, detail = rest.partition(" ")
            return Outcome(status, detail)  # type: ignore[arg-type]  # one of the child's own
    if code == -signal.SIGXCPU or code == -signal.SIGKILL:
        return Outcome("timeout", "processor time used up")
    return Outcome("crashed", f"exit status {code} without a verdict")
