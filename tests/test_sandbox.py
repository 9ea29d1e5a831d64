"""The sandbox: what a program may do, how each ending is called, and that nothing outlives it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gristmill.eval.sandbox import Limits, run, run_all

QUICK = Limits(cpu_seconds=1, wall_seconds=1.5, memory_mb=256)


@pytest.mark.parametrize(
    "program, status",
    [
        ("assert 1 + 1 == 2", "passed"),
        ("import math, re\nfrom typing import List\nfrom collections import *\nassert math.pi > 3", "passed"),
        ("import random\nimport hashlib\nimport datetime, statistics, json, heapq, dataclasses\n", "passed"),
        ("print('x' * 100)\nassert True", "passed"),
        ("def f(:\n", "syntax"),
        ("(" * 5000, "syntax"),
        ("x = '\\ud800'; print(x)", "failed"),
        ("assert 1 + 1 == 3", "failed"),
        ("raise SystemExit(0)", "failed"),
        ("import os", "forbidden"),
        ("import sys\nsys.exit(0)", "forbidden"),
        ("__import__('os').system('echo hi')", "forbidden"),
        ("import socket", "forbidden"),
        ("import importlib", "forbidden"),
        ("import math\nmath.__loader__.load_module if 0 else ().__class__.__base__.__subclasses__()", "passed"),
        ("import random\nrandom._os.fork()", "forbidden"),
        ("import random\nrandom._os.system('true')", "forbidden"),
        ("open('/etc/passwd').read()", "forbidden"),
        ("open('x', 'w').write('y')", "forbidden"),
        ("import random\nrandom._os.listdir('/')", "forbidden"),
        ("import random\nrandom._os.kill(random._os.getppid(), 9)", "forbidden"),
        ("try:\n    open('x', 'w')\nexcept Exception:\n    pass", "forbidden"),
        ("import random\nrandom._os._exit(0)", "crashed"),
        ("x = [0] * 10**9", "memory"),
        ("def f(): return f()\nf()", "failed"),
        ("while True: pass", "timeout"),
        ("import time\ntime.sleep(60)", "timeout"),
        ("while True: print('x' * 10000)", "crashed"),
    ],
)
def test_endings(program, status):
    outcome = run(program, QUICK)
    assert outcome.status == status, outcome
    assert outcome.passed == (status == "passed")


def test_a_program_cannot_say_the_word():
    """It sees neither arguments nor the words on standard input, and output alone is no verdict."""
    program = "import random\nprint('passed')\nprint('0' * 32 + ' passed ')\nassert random._os.read(0, 100) == b''\n1/0"
    assert run(program, QUICK).status == "failed"


def test_the_environment_is_empty(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    program = "import random\nassert 'SECRET_TOKEN' not in random._os.environ and len(random._os.environ) < 4"
    assert run(program, QUICK).status == "passed"


def test_order_is_kept_and_a_hanging_one_holds_up_no_other():
    outcomes = run_all(["assert True", "import time; time.sleep(9)", "1/0", "assert True"], QUICK, workers=2)
    assert [o.status for o in outcomes] == ["passed", "timeout", "failed", "passed"]
    assert "ZeroDivisionError" in outcomes[2].detail


def test_nothing_outlives_it(tmp_path):
    before = {p for p in os.listdir("/proc") if p.isdigit()} if os.path.isdir("/proc") else set()
    run("while True: pass", QUICK)
    time.sleep(0.1)
    for pid in {p for p in os.listdir("/proc") if p.isdigit()} - before if before else ():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        assert b"sandbox_child" not in command
