"""Fixtures every test may use."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import mini
import pytest

from gristmill.data import engine
from gristmill.recipes.runner import cli


@dataclass
class MiniRun:
    """A finished run of tests/mini.py's recipe, and a way to call the command beside it."""

    recipe: Path
    out: Path

    def start(self, *arguments: str, out: Path | None = None, **environment: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "gristmill.recipes.runner.cli", *arguments, "--out", str(out or self.out)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def gristmill(self, *arguments: str, out: Path | None = None, code: int = 0) -> subprocess.CompletedProcess:
        """Run the command to its end, in this process (importing torch takes seconds), and check its exit code."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            try:
                got = cli.main([*arguments, "--out", str(out or self.out)])
            except SystemExit as error:  # argparse
                got = error.code
        assert got == code, f"exit code {got}\n{stdout.getvalue()}\n{stderr.getvalue()}"
        return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())

    def artefact(self, key: str) -> Path:
        stages = json.loads((self.out / "mini" / "run.json").read_text("utf-8"))["stages"]
        return self.out / "store" / stages[key]


@pytest.fixture(scope="session")
def mini_run(tmp_path_factory) -> MiniRun:
    folder = tmp_path_factory.mktemp("mini")
    run = MiniRun(mini.write(folder), folder / "runs")
    run.gristmill("run", str(run.recipe))
    return run


@pytest.fixture(scope="module")
def mini_copy(mini_run, tmp_path_factory) -> MiniRun:
    """The same run in a store of its own, for tests that add to it: the shared one stays as it is."""
    folder = tmp_path_factory.mktemp("copy")
    return MiniRun(mini_run.recipe, Path(shutil.copytree(mini_run.out, folder / "runs")))


@pytest.fixture(scope="session", autouse=True)
def one_engine():
    """Stages called inside a test share one engine session."""
    with engine.shared():
        yield
