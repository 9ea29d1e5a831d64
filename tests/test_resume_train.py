"""However often and wherever a training run is interrupted, it ends in the bits of a run left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
import toy

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json
from gristmill.train import checkpoint, pretrain
from gristmill.train import step as step_module
from gristmill.train.model import Decoder, ModelConfig, initialise
from gristmill.train.optimizer import AdamW


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return {"pack": toy.packed(tmp_path_factory.mktemp("pack") / "pack")}


@pytest.fixture(scope="module")
def alone(pack, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    ledger = pretrain.run(toy.config(), pack, out)
    return out, ledger


def raise_at(*steps):
    def hook(step, folder):
        assert (folder / "model.safetensors").is_file()
        if step in steps:
            raise Stop(step)

    return hook


def test_every_row_once_and_in_order(alone, pack):
    out, ledger = alone
    lines = toy.metrics(out)
    assert [k for line in lines for k in range(*line["rows"])] == list(range(80))
    assert [line["step"] for line in lines] == list(range(20))
    assert [line["phases"] for line in lines] == [["p1"]] * 10 + [["p2"]] * 10
    assert ledger["rows"] == 80 and ledger["steps"] == 20 and ledger["skipped"] == 0
    assert ledger["tokens"] == {"packed": 80 * toy.SEQ, "seen": 80 * toy.SEQ, "left": 0}
    assert ledger["supervised_tokens"] == sum(line["supervised"] for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_what_is_left_in_the_folder(alone):
    out, _ = alone
    steps = [5, 10, 15, 20]
    expected = {"model.json", "metrics.jsonl", "checkpoints/step-0000020/optimizer.safetensors"}
    expected |= {f"checkpoints/step-{k:07d}/{name}" for k in steps for name in ("model.safetensors", "state.json")}
    assert set(toy.contents(out)) == expected
    assert (out / "provenance" / "timing.jsonl").is_file() and not (out / "resume").exists()
    assert read_json(out / "model.json")["vocab_size"] == toy.VOCAB


def test_interrupted_by_the_callback_at_a_phase_change(alone, pack, tmp_path):
    """Step 10 is the first of the second phase; the callback of step 20 fails when all is done."""
    for step in (5, 10, 20):
        with pytest.raises(Stop):
            pretrain.run(toy.config(), pack, tmp_path, on_checkpoint=raise_at(step))
        assert checkpoint.latest(tmp_path / "checkpoints").step == step
    ledger = pretrain.run(toy.config(), pack, tmp_path)
    assert ledger == alone[1] and toy.contents(tmp_path) == toy.contents(alone[0])


def test_ctrl_c_saves_the_last_whole_step(alone, pack, tmp_path, monkeypatch):
    real, seen = pretrain.forward_backward, []

    def forward_backward(model, batches, precision, stop):
        seen.append(len(seen))
        if len(seen) in (7, 9):
            os.kill(os.getpid(), signal.SIGINT)
        return real(model, batches, precision, stop)

    monkeypatch.setattr(pretrain, "forward_backward", forward_backward)
    for steps in (6, 7):  # interrupted in step 6, and after redoing it in step 7
        with pytest.raises(KeyboardInterrupt):
            pretrain.run(toy.config(), pack, tmp_path)
        assert checkpoint.latest(tmp_path / "resume").step == steps
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert pretrain.run(toy.config(), pack, tmp_path) == alone[1]
    assert toy.contents(tmp_path) == toy.contents(alone[0])


CHILD = """
import sys, pathlib, toy
from gristmill.train import pretrain
config = toy.config(resume_every=1e-9)
pretrain.run(config, {"pack": pathlib.Path(sys.argv[1])}, pathlib.Path(sys.argv[2]))
"""


def test_killed_by_sigkill_several_times(alone, pack, tmp_path):
    """A resume checkpoint after every step, so the kill falls on writing as often as on training."""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(toy.__file__)}
    for lines in (5, 14):
        command = [sys.executable, "-c", CHILD, str(pack["pack"]), str(tmp_path)]
        child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        log = tmp_path / "metrics.jsonl"
        while child.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < lines):
            time.sleep(0.001)
        assert child.poll() is None, child.communicate()[1]
        child.kill()
        child.communicate()
    assert pretrain.run(toy.config(), pack, tmp_path) == alone[1]
    assert toy.contents(tmp_path) == toy.contents(alone[0])
    lines = [json.loads(s) for s in (tmp_path / "provenance" / "timing.jsonl").read_text().splitlines()]
    starts = [line["step"] for line in lines if "started" in line]
    assert len(starts) == 3 and starts[0] == 0 and starts[1] >= 3 and starts[2] >= 12  # little was done twice


def test_a_damaged_newest_checkpoint_costs_time_not_bits(alone, pack, tmp_path, capsys):
    with pytest.raises(Stop):
        pretrain.run(toy.config(resume_every=1e-9), pack, tmp_path, on_checkpoint=raise_at(10))
    (tmp_path / "checkpoints" / "step-0000010" / "model.safetensors").write_bytes(b"")
    pretrain.run(toy.config(), pack, tmp_path)
    assert "step-0000010" in capsys.readouterr().err
    assert toy.contents(tmp_path) == toy.contents(alone[0])


def test_another_micro_batch_gives_the_same_stream_and_losses(alone, pack, tmp_path):
    pretrain.run(toy.config(micro_batch=1), pack, tmp_path)
    ours, theirs = toy.metrics(tmp_path), toy.metrics(alone[0])
    assert [line["rows"] for line in ours] == [line["rows"] for line in theirs]
    assert [line["loss"] for line in ours] == pytest.approx([line["loss"] for line in theirs], rel=1e-5)
    assert ours[0]["loss"] == pytest.approx(theirs[0]["loss"], rel=1e-6)


@pytest.mark.parametrize("change", ["a byte of a shard", "pack.json", "the configuration"])
def test_other_data_or_configuration_is_refused(pack, tmp_path, change):
    data, out = tmp_path / "pack", tmp_path / "run"
    shutil.copytree(pack["pack"], data)
    with pytest.raises(Stop):
        pretrain.run(toy.config(), {"pack": data}, out, on_checkpoint=raise_at(5))
    before = checkpoint.latest(out / "checkpoints").state
    config = toy.config()
    if change == "the configuration":
        config = toy.config(optimizer={"lr": 2e-2})
    else:
        path = data / ("pack.json" if change == "pack.json" else "shard-00001.tokens")
        text = bytearray(path.read_bytes())
        if change == "pack.json":
            text += b"\n"
        else:
            text[0] ^= 1
        path.write_bytes(text)
    with pytest.raises(BadInput) as error:
        pretrain.run(config, {"pack": data}, out)
    key = "config" if change == "the configuration" else "data"
    assert before[key] in str(error.value) and str(error.value).count("; got '") == 1


def test_a_short_last_batch_and_a_token_limit(pack, tmp_path):
    ledger = pretrain.run(toy.config(max_tokens=10 * toy.SEQ + 5, checkpoints=3), pack, tmp_path)
    assert [line["rows"] for line in toy.metrics(tmp_path)] == [[0, 4], [4, 8], [8, 10]]
    assert ledger["rows"] == 10 and ledger["tokens"]["left"] == 70 * toy.SEQ


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_tokens": 100}, ("train.batch_tokens", "100", "32")),
        ({"checkpoints": 21}, ("train.checkpoints", "21", "20")),
        ({"max_tokens": 31}, ("train.max_tokens", "31")),
        ({"model": {"vocab_size": 40}}, ("model.vocab_size", "40", "48")),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(pack, tmp_path, changes, words):
    with pytest.raises(BadInput) as error:
        pretrain.run(toy.config(**changes), pack, tmp_path)
    assert all(word in str(error.value) for word in words)


def test_checkpoints_are_equally_spaced():
    assert pretrain.checkpoint_steps(20, 4) == [5, 10, 15, 20]
    assert pretrain.checkpoint_steps(103, 4) == [28, 53, 78, 103]
    assert pretrain.checkpoint_steps(3, 3) == [1, 2, 3]


def test_a_step_with_a_bad_gradient_is_skipped_and_counted(alone, pack, tmp_path, monkeypatch):
    real, seen, weights = step_module.forward_backward, [], []

    def forward_backward(model, *args, **kwargs):
        weights.append(model.embed.weight.detach().clone())
        result = real(model, *args, **kwargs)
        seen.append(1)
        if len(seen) == 6:
            model.norm.weight.grad[0] = float("inf")
        return result

    monkeypatch.setattr(pretrain, "forward_backward", forward_backward)
    ledger = pretrain.run(toy.config(), pack, tmp_path)
    lines = toy.metrics(tmp_path)
    assert ledger["skipped"] == 1 and [k for k, line in enumerate(lines) if line["skipped"]] == [5]
    assert lines[5]["loss"] is None and lines[5]["grad_norm"] is None
    assert torch.equal(weights[5], weights[6]) and not torch.equal(weights[6], weights[7])
    assert [line["rows"] for line in lines] == [line["rows"] for line in toy.metrics(alone[0])]


def test_twenty_bad_steps_in_a_row_end_the_run(pack, tmp_path, monkeypatch):
    real = step_module.forward_backward

    def forward_backward(model, *args, **kwargs):
        result = real(model, *args, **kwargs)
        model.norm.weight.grad[0] = float("nan")
        return result

    monkeypatch.setattr(pretrain, "forward_backward", forward_backward)
    with pytest.raises(BadInput, match="20 steps in a row"):
        pretrain.run(toy.config(), pack, tmp_path)


def test_padded_vocabulary(pack, tmp_path):
    pretrain.run(toy.config(model={"vocab_size": 64}, max_tokens=8 * toy.SEQ, checkpoints=1), pack, tmp_path)
    assert toy.final_weights(tmp_path)["head.weight"].shape == (64, 32)


def test_decay_spares_gains_and_the_embedding():
    model = initialise(Decoder(ModelConfig(**toy.MODEL), toy.VOCAB), 0)
    optimizer = AdamW(lr=0.1, weight_decay=0.5).build(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    shrunk = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert shrunk == {name for name, p in before.items() if p.ndim == 2 and name != "embed.weight"}
