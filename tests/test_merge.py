"""WSM: the identity between merge weights and decays, exactly, and on files."""

from __future__ import annotations

import pytest
import torch
import toy
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json
from gristmill.train import merge, pretrain
from gristmill.train.load import load_model
from gristmill.train.merge import MergeConfig, from_decay, merge_files, merge_weights, to_decay

SHAPES = [("linear", None), ("1-sqrt", None), ("cosine", None), ("ema", 0.8), ("ema-from-first", 0.8)]


@pytest.mark.parametrize(("shape", "decay"), SHAPES)
@pytest.mark.parametrize("count", [1, 2, 8, 32])
def test_weights_are_a_mean(shape, decay, count):
    c = merge_weights(shape, count, decay)
    assert len(c) == count and min(c) >= 0 and sum(c) == pytest.approx(1, abs=1e-12)
    assert from_decay(to_decay(c)) == pytest.approx(c, abs=1e-12)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_decay_to_weights_and_back(values):
    w = sorted(values, reverse=True)
    assert to_decay(from_decay(w)) == pytest.approx(w, abs=1e-12)


def test_printed_weights():
    sqrt = [0.333, 0.138, 0.106, 0.089, 0.079, 0.071, 0.065, 0.061, 0.057]
    cosine = [0.030, 0.087, 0.133, 0.163, 0.174, 0.163, 0.133, 0.087, 0.030]
    assert merge_weights("1-sqrt", 9) == pytest.approx(sqrt, abs=6e-4)
    assert merge_weights("cosine", 9) == pytest.approx(cosine, abs=6e-4)
    assert merge_weights("linear", 8) == pytest.approx([1 / 8] * 8)
    cma = [0.328, 0.082, 0.102, 0.128, 0.160, 0.200]  # arXiv 2511.18903, a = 0.2 over six checkpoints
    assert merge_weights("ema-from-first", 6, 0.8) == pytest.approx(cma, abs=6e-4)


@pytest.mark.parametrize("w", [[1.1], [0.5, 0.6], [0.5, -0.1]])
def test_a_scale_that_is_no_decay_is_refused(w):
    with pytest.raises(ValueError, match="fall"):
        from_decay(w)


@pytest.mark.parametrize("bad", [{"shape": "ema"}, {"shape": "linear", "decay": 0.5}, {"last": 0}])
def test_an_option_that_would_do_nothing_is_refused(bad):
    with pytest.raises(ValidationError):
        MergeConfig(**bad)


@pytest.mark.parametrize(("shape", "decay"), SHAPES)
def test_merged_is_the_first_less_scaled_updates(tmp_path, shape, decay):
    generator = torch.Generator().manual_seed(0)
    thetas = [
        {"a": torch.randn(50, 3, generator=generator), "b.gain": torch.randn(7, generator=generator)} for _ in range(6)
    ]
    for k, theta in enumerate(thetas):
        save_file(theta, tmp_path / f"{k}.safetensors")
    c = merge_weights(shape, 6, decay)
    merge_files([tmp_path / f"{k}.safetensors" for k in range(6)], c, tmp_path / "out.safetensors")
    merged, w = load_file(tmp_path / "out.safetensors"), to_decay(c)
    for name, value in merged.items():
        deltas = [thetas[i - 1][name].double() - thetas[i][name].double() for i in range(1, 6)]
        expected = thetas[0][name].double() - sum(wi * d for wi, d in zip(w, deltas, strict=True))
        assert value.dtype == torch.float32 and value.shape == thetas[0][name].shape
        assert (value - expected).abs().max() < 1e-6
        if shape == "linear":
            mean = torch.stack([t[name].double() for t in thetas]).mean(0)
            assert (value - mean).abs().max() < 1e-6


def test_merging_copies_changes_no_bit(tmp_path):
    save_file({"a": torch.randn(99, generator=torch.Generator().manual_seed(1))}, tmp_path / "a.safetensors")
    merge_files([tmp_path / "a.safetensors"] * 3, [0.1, 0.2, 0.7], tmp_path / "b.safetensors")
    assert torch.equal(load_file(tmp_path / "a.safetensors")["a"], load_file(tmp_path / "b.safetensors")["a"])


def test_the_stage_merges_the_last_checkpoints(tmp_path):
    pretrain.run(toy.config(), {"pack": toy.packed(tmp_path / "pack")}, tmp_path / "run")
    ledger = merge.run(MergeConfig(last=3), {"pretrain": tmp_path / "run"}, tmp_path / "merged")
    assert ledger == {"checkpoints": 3, "first_step": 10, "last_step": 20}
    assert [e["step"] for e in read_json(tmp_path / "merged" / "merge.json")["checkpoints"]] == [10, 15, 20]
    mean = {}
    for step in (10, 15, 20):
        for name, value in load_file(tmp_path / f"run/checkpoints/step-{step:07d}/model.safetensors").items():
            mean[name] = mean.get(name, 0) + value.double() / 3
    model, meta = load_model(tmp_path / "merged")
    assert meta["seq_len"] == toy.SEQ
    for name, value in model.state_dict().items():
        assert (value - mean[name]).abs().max() < 1e-6
    with pytest.raises(BadInput, match="merge.last.*got 5.*at most 4"):
        merge.run(MergeConfig(last=5), {"pretrain": tmp_path / "run"}, tmp_path / "more")
    (tmp_path / "run/checkpoints/step-0000010/model.safetensors").write_bytes(b"short")
    with pytest.raises(BadInput, match="damaged"):
        merge.run(MergeConfig(last=3), {"pretrain": tmp_path / "run"}, tmp_path / "more")
