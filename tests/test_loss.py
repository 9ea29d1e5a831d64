"""The chunked loss is the dense loss, and how a step is cut into micro-batches does not matter."""

from __future__ import annotations

import pytest
import torch

from gristmill.train import loss
from gristmill.train.model import Decoder, ModelConfig, initialise
from gristmill.train.step import forward_backward

D, V = 16, 97


def inputs(dtype=torch.float32, scale: float = 3.0):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 25, D, generator=generator, dtype=dtype)
    head = torch.randn(V, D, generator=generator, dtype=dtype) * scale
    labels = torch.randint(V, (4, 25), generator=generator)
    labels[torch.rand(4, 25, generator=generator) < 0.3] = loss.IGNORE
    return hidden.requires_grad_(), head.requires_grad_(), labels


@pytest.mark.parametrize("cap", [None, 5.0, 50.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunked_equals_dense(cap, dtype, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_LOGITS", V * 32)  # three chunks, the last one short
    results = []
    for function in (loss.cross_entropy, loss.cross_entropy_reference):
        hidden, head, labels = inputs(dtype)
        nll, count = function(hidden, head, labels, cap)
        (nll / 7).backward()
        results.append((nll.detach(), count, hidden.grad, head.grad))
    assert results[0][1] == results[1][1] == int((labels != loss.IGNORE).sum())
    for ours, theirs in zip(results[0], results[1], strict=True):
        if isinstance(ours, torch.Tensor):
            assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max()


def test_caps_differ_and_large_logits_are_finite():
    values = []
    for cap in (5.0, 50.0, None):
        hidden, head, labels = inputs(scale=300.0)
        nll, _ = loss.cross_entropy(hidden, head, labels, cap)
        nll.backward()
        assert torch.isfinite(hidden.grad).all() and torch.isfinite(head.grad).all()
        values.append(nll.item())
    assert len(set(values)) == 3


def test_labels_stay_inside_their_document():
    tokens = torch.tensor([[10, 11, 12, 20, 21, 30, 0, 0]])
    segments = torch.tensor([[0, 0, 0, 1, 1, 2, -1, -1]], dtype=torch.int16)
    no = loss.IGNORE
    assert loss.next_token_labels(tokens, segments).tolist() == [[11, 12, no, 21, no, no, no, no]]


def test_no_supervised_token_is_zero_not_nan():
    hidden, head, labels = inputs()
    nll, count = loss.cross_entropy(hidden, head, torch.full_like(labels, loss.IGNORE), 5.0)
    nll.backward()
    assert (nll.item(), count) == (0.0, 0)
    assert not hidden.grad.any() and not head.grad.any()


@pytest.mark.parametrize("micro", [1, 2, 3, 8])
def test_micro_batches_are_normalised_together(micro):
    """Eight rows of 1 to 8 supervised tokens and one of none: rows must not count alike."""
    config = ModelConfig(layers=1, hidden=16, mlp=16, heads=2, kv_heads=1)
    tokens = torch.randint(32, (9, 10), generator=torch.Generator().manual_seed(2))
    segments = torch.full((9, 10), -1)
    for row in range(8):
        segments[row, : row + 2] = 0
    results = []
    for size in (9, micro):
        model = initialise(Decoder(config, 32), 0)
        cut = [(tokens[a : a + size], segments[a : a + size]) for a in range(0, 9, size)]
        value, count = forward_backward(model, cut, "fp32")
        results.append((value, torch.cat([p.grad.flatten() for p in model.parameters()])))
        assert count == 36
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-6)
    assert (results[1][1] - results[0][1]).abs().max() <= 1e-6 * results[0][1].abs().max()
