"""Resume: killed at any moment, the same command continues, and ends with the very bits of a run left alone."""

from __future__ import annotations

import signal
import time

import mini
import pytest

# small steps, many of them: there is time to be killed in
SLOW = ["train.batch_tokens=128", "train.micro_batch=1", "train.resume_every=0.2"]


def lines(path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_when(mini_run, out, condition, how=signal.SIGKILL, limit=120.0) -> int:
    """Start the run, send ``how`` once ``condition()`` holds; returns the exit code."""
    process = mini_run.start("run", str(mini_run.recipe), *SLOW, "--name", "mini", out=out)
    end = time.time() + limit
    while not condition() and process.poll() is None and time.time() < end:
        time.sleep(0.002)
    assert process.poll() is None, f"the run ended before it could be killed: {process.communicate()}"
    process.send_signal(how)
    process.communicate()
    return process.returncode


@pytest.fixture(scope="module")
def left_alone(mini_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("left_alone")
    mini_run.gristmill("run", str(mini_run.recipe), *SLOW, "--name", "mini", "--until", "merge", out=out)
    return mini.artefacts(out)


def test_kills_in_data_in_training_and_at_a_phase_change(mini_run, left_alone, tmp_path):
    out = tmp_path / "runs"
    store = out / "store"
    rows_of_p1 = next(iter(p for p in mini_phases(mini_run)))["rows"]
    change = rows_of_p1 // 2  # steps of two rows

    def metrics(step):
        return lambda: any(lines(p) >= step for p in store.glob("pretrain-*.partial/metrics.jsonl"))

    assert kill_when(mini_run, out, lambda: any(store.glob("dedup-*.partial"))) == -signal.SIGKILL
    assert not list(store.glob("dedup-????????????????"))
    assert kill_when(mini_run, out, metrics(20)) == -signal.SIGKILL
    assert kill_when(mini_run, out, metrics(change), how=signal.SIGINT) == 130
    assert kill_when(mini_run, out, metrics(change + 40)) == -signal.SIGKILL
    mini_run.gristmill("run", str(mini_run.recipe), *SLOW, "--name", "mini", "--until", "merge", out=out)
    ours = mini.artefacts(out)
    for key, manifest in left_alone.items():
        assert ours[key]["outputs"] == manifest["outputs"], f"{key} differs"
        assert ours[key]["content"] == manifest["content"]


def mini_phases(mini_run):
    import json

    return json.loads((mini_run.artefact("pack") / "pack.json").read_text())["phases"]


def test_two_runs_at_once_share_one_store(mini_run, tmp_path):
    out = tmp_path / "runs"
    pair = [
        mini_run.start("run", str(mini_run.recipe), "--name", f"mini{k}", "--until", "pack", out=out) for k in range(2)
    ]
    for process in pair:
        stderr = process.communicate(timeout=300)[1]
        assert process.returncode == 0, stderr
    a, b = (mini.artefacts(out, f"mini{k}") for k in range(2))
    assert a == b and len(list((out / "store").glob("corpus-????????????????"))) == 1
    assert not list((out / "store").glob("*.partial"))
