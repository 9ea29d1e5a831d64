"""A checkpoint is whole or absent, the newest whole one is found, and a failed save costs nothing."""

from __future__ import annotations

import json
import os

import pytest
import torch

from gristmill.train import checkpoint
from gristmill.train.checkpoint import MODEL, OPTIMIZER, STATE, complete, drop_optimizer, latest, save, sweep


def weights(value: float) -> dict[str, torch.Tensor]:
    return {"a.weight": torch.full((5, 3), value), "b": torch.full((2,), value)}


def make(folder, *steps: int) -> None:
    for step in steps:
        save(folder, step, weights(step), {"a.weight/exp_avg": torch.ones(5, 3)}, {"row": step * 4})


def test_what_is_saved_is_what_is_loaded(tmp_path):
    make(tmp_path, 3)
    found = latest(tmp_path)
    assert found.step == 3 and found.state["row"] == 12 and found.has_optimizer
    assert torch.equal(found.weights()["a.weight"], weights(3)["a.weight"])
    assert torch.equal(found.optimizer()["a.weight/exp_avg"], torch.ones(5, 3))


def test_order_is_that_of_numbers_and_foreign_names_are_ignored(tmp_path):
    make(tmp_path, 500, 2500, 10_000_000)
    (tmp_path / "step-10000000").rename(tmp_path / "step-10000000.tmp")
    (tmp_path / "notes").mkdir()
    (tmp_path / "step-9999999x").mkdir()
    (tmp_path / "step-99999999").write_text("a file")
    assert latest(tmp_path).step == 2500
    make(tmp_path, 10_000_000)
    assert [c.step for c in complete(tmp_path)] == [10_000_000, 2500, 500]


def cut(path):
    path.write_bytes(path.read_bytes()[:-2])  # JSON's last byte is but a line end


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def edit(path):
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "row": state["row"] + 1}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (MODEL, cut),
        (MODEL, flip),
        (MODEL, os.unlink),
        (OPTIMIZER, flip),
        (STATE, cut),
        (STATE, edit),
        (STATE, os.unlink),
    ],
)
def test_a_damaged_newest_falls_back_loudly(tmp_path, capsys, name, damage):
    make(tmp_path, 1, 2)
    damage(tmp_path / "step-0000002" / name)
    assert latest(tmp_path).step == 1
    warning = capsys.readouterr().err
    assert warning.startswith("warning:") and "step-0000002" in warning and name in warning
    assert warning.count("\n") == 1


def test_a_copied_folder_is_not_another_step(tmp_path):
    make(tmp_path, 1)
    (tmp_path / "step-0000001").rename(tmp_path / "step-0000007")
    assert latest(tmp_path) is None


@pytest.mark.parametrize("at", ["save_file", "file_hash", "write_json", "fsync"])
def test_a_failing_save_leaves_what_was_there(tmp_path, monkeypatch, at):
    """The disk fills up, or the process dies, at any point between the files."""
    make(tmp_path, 1, 2)
    real, calls = getattr(checkpoint, at), []

    def full(*args, **kwargs):
        calls.append(1)
        if len(calls) == (1 if at == "write_json" else 2):
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(checkpoint, at, full)
    for step in (3, 2):  # a new one, and one that is there already
        calls.clear()
        with pytest.raises(OSError, match="No space"):
            make(tmp_path, step)
        assert latest(tmp_path).step == 2
        assert sorted(p.name for p in tmp_path.iterdir()) == ["step-0000001", "step-0000002"]


@pytest.mark.parametrize("kill_at", ["optimizer", "state", "first rename", "second rename"])
def test_a_kill_between_files_leaves_a_complete_newest(tmp_path, kill_at):
    """As SIGKILL does: nothing after the point runs, no clean-up either."""
    make(tmp_path, 1, 2)
    if (child := os.fork()) == 0:
        number = {"optimizer": 2, "state": 1, "first rename": 1, "second rename": 2}[kill_at]
        name = {"optimizer": "save_file", "state": "write_json"}.get(kill_at)
        module, name = (checkpoint, name) if name else (os, "replace")
        real, calls = getattr(module, name), []

        def die(*args, **kwargs):
            if module is not os or ".tmp" not in str(args[1]) and "state.json" not in str(args[1]):
                calls.append(1)
            if len(calls) == number:
                os._exit(9)
            return real(*args, **kwargs)

        setattr(module, name, die)
        make(tmp_path, 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    # between the two renames step 2 is away: it was being replaced, and step 1 stands
    assert latest(tmp_path).step == (1 if kill_at == "second rename" else 2)
    sweep(tmp_path)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    make(tmp_path, 3)
    assert latest(tmp_path).step == 3


def test_only_the_newest_keeps_its_optimizer_state(tmp_path):
    make(tmp_path, 1, 2, 3)
    drop_optimizer(tmp_path, 3)
    assert [(c.step, c.has_optimizer, (c.folder / OPTIMIZER).exists()) for c in complete(tmp_path)] == [
        (3, True, True),
        (2, False, False),
        (1, False, False),
    ]


def test_a_kill_while_dropping_leaves_a_complete_checkpoint(tmp_path, monkeypatch):
    make(tmp_path, 1, 2)
    kept = (tmp_path / "step-0000001" / OPTIMIZER).read_bytes()
    drop_optimizer(tmp_path, 2)
    (tmp_path / "step-0000001" / OPTIMIZER).write_bytes(kept)  # the record is rewritten, the file not yet gone
    assert [c.step for c in complete(tmp_path)] == [2, 1]
    drop_optimizer(tmp_path, 2)
    assert not (tmp_path / "step-0000001" / OPTIMIZER).exists()
