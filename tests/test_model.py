"""The decoder computes what its docstring says, and a document's logits depend on that document alone."""

from __future__ import annotations

import pytest
import torch
import toy
from pydantic import ValidationError

from gristmill.train import attention
from gristmill.train.loss import cross_entropy, next_token_labels
from gristmill.train.model import Decoder, ModelConfig, flops_per_token, initialise, parameter_count
from gristmill.train.norm import RMSNorm


def make(seed: int = 0, vocab: int = toy.VOCAB, **changes) -> Decoder:
    """A decoder whose gains and scales are far from their initial values, so that none can be left out unseen."""
    model = initialise(Decoder(ModelConfig(**{**toy.MODEL, "init_std": 0.3, **changes}), vocab), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5, generator=generator)
    return model


def batch(rows: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(toy.VOCAB, (rows, toy.SEQ), generator=generator)
    segments = torch.tensor([0] * 9 + [1] * 3 + [2] * 14 + [-1] * 6).repeat(rows, 1)
    return tokens, segments


def plain(w: dict[str, torch.Tensor], c: ModelConfig, ids: list[int]) -> torch.Tensor:
    """Logits of one document in float64, token by token and head by head: written to be read, not to be fast."""

    def norm(x, gain):
        return gain * x / (x.pow(2).mean() + c.norm_eps).sqrt()

    def out_norm(x, name):
        return norm(x, w[name]) if c.norm == "sandwich" else x

    def turn(x, position):
        half = len(x) // 2
        angle = position / c.rope_theta ** (torch.arange(half, dtype=torch.float64) / half)
        a, b = x[:half], x[half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()])

    E = c.head_size
    xs = [w["embed.weight"][i] for i in ids]
    for n in range(c.layers):
        p = f"layers.{n}."
        keys, values, branch = [], [], []
        for t, x in enumerate(xs):
            h = norm(x, w[p + "attention_norm.weight"])
            q, k, v = ((w[p + f"attention.{name}.weight"] @ h).view(-1, E) for name in "qkv")
            if c.qk_norm:
                q = [norm(row, w[p + "attention.q_norm.weight"]) for row in q]
                k = [norm(row, w[p + "attention.k_norm.weight"]) for row in k]
            keys.append([turn(row, t) for row in k])
            values.append(v)
            heads = []
            for head in range(c.heads):
                group = head // (c.heads // c.kv_heads)
                query = turn(q[head], t)
                scores = torch.stack([query @ keys[s][group] for s in range(t + 1)]) / E**0.5
                heads.append(sum(a * values[s][group] for s, a in enumerate(scores.softmax(0))))
            branch.append(w[p + "attention.o.weight"] @ torch.cat(heads))
        xs = [x + out_norm(b, p + "attention_out_norm.weight") for x, b in zip(xs, branch, strict=True)]
        for t, x in enumerate(xs):
            h = norm(x, w[p + "mlp_norm.weight"])
            gate = w[p + "mlp.gate.weight"] @ h
            inner = gate * torch.sigmoid(gate) * (w[p + "mlp.up.weight"] @ h)
            xs[t] = x + out_norm(w[p + "mlp.down.weight"] @ inner, p + "mlp_out_norm.weight")
    head = w["embed.weight" if c.tie else "head.weight"]
    z = torch.stack([head @ norm(x, w["norm.weight"]) for x in xs])
    return z if c.logit_softcap is None else c.logit_softcap * torch.tanh(z / c.logit_softcap)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "pre", "qk_norm": False}, {"tie": True, "logit_softcap": None, "head_dim": 12, "rope_theta": 500}],
)
def test_forward_and_gradient_equal_a_plain_float64_reference(changes):
    model = make(**changes)
    tokens, segments = batch(1)
    hidden = model(tokens, segments)
    logits = model.logits(hidden)[0]
    nll, count = cross_entropy(hidden, model.head_VD, next_token_labels(tokens, segments), model.config.logit_softcap)
    nll.backward()
    w = {name: p.detach().double().requires_grad_() for name, p in model.named_parameters()}
    expected, total = [], 0.0
    for number in range(3):
        ids = tokens[0][segments[0] == number]
        expected.append(plain(w, model.config, ids.tolist()))
        total -= expected[-1][:-1].log_softmax(-1).gather(1, ids[1:, None]).sum()
    total.backward()
    scale = torch.cat(expected).abs().max()
    assert count == 26 - 3
    assert (logits[:26] - torch.cat(expected)).abs().max() < 2e-6 * scale
    assert nll.item() == pytest.approx(total.item(), rel=1e-6)
    for name, p in model.named_parameters():
        assert (p.grad - w[name].grad).abs().max() < 1e-5 * w[name].grad.abs().max(), name


def test_a_documents_logits_do_not_depend_on_its_neighbours():
    model, (tokens, segments) = make(), batch()
    changed = tokens.clone()
    changed[:, :9] = (changed[:, :9] + 1) % toy.VOCAB  # document 0
    changed[:, 26:] = 5  # padding
    with torch.no_grad():
        before, after = (model.logits(model(t, segments)) for t in (tokens, changed))
    assert torch.equal(before[:, 9:26], after[:, 9:26])
    assert not torch.equal(before[:, :9], after[:, :9])


def test_a_documents_place_in_its_row_is_immaterial():
    model, (tokens, segments) = make(), batch()
    with torch.no_grad():
        packed = model.logits(model(tokens, segments))[:, 12:26]
        alone = model.logits(model(tokens[:, 12:26]))
    assert (packed - alone).abs().max() < 1e-5


def test_no_token_sees_a_later_one():
    model, (tokens, _) = make(), batch()
    changed = tokens.clone()
    changed[:, 20:] = 7
    with torch.no_grad():
        before, after = (model(t) for t in (tokens, changed))
    assert torch.equal(before[:, :20], after[:, :20]) and not torch.equal(before[:, 20:], after[:, 20:])


@pytest.mark.parametrize("length", [5, 128, 300])
def test_blocked_attention_equals_pytorchs(length):
    generator = torch.Generator().manual_seed(length)
    q, k, v, up = (
        torch.randn(2, h, length, 8, generator=generator, dtype=torch.float64, requires_grad=True) for h in (6, 2, 2, 6)
    )
    segments = torch.randint(0, 3, (2, length), generator=generator).sort(1).values - 1
    mask = attention.document_mask(segments)
    results = []
    for function in (attention.attention, attention.attention_reference):
        out = function(q, k, v, mask)
        results.append((out, *torch.autograd.grad((out * up).sum(), (q, k, v))))
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() < 1e-6 * theirs.abs().max()


def test_norm_gradient_equals_pytorchs():
    norm = RMSNorm(16, 1e-3)
    x = torch.randn(4, 5, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 16))
    ours = (y := norm(x), *torch.autograd.grad(y.pow(3).sum(), (x, norm.weight)))
    xd, wd = x.detach().double().requires_grad_(), norm.weight.detach().double().requires_grad_()
    theirs = (y := torch.nn.functional.rms_norm(xd, (16,), wd, 1e-3), *torch.autograd.grad(y.pow(3).sum(), (xd, wd)))
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() < 2e-6 * b.abs().max()


def test_bf16_autocast_stays_near_fp32():
    model, (tokens, segments) = make(), batch(1)
    labels = next_token_labels(tokens, segments)
    losses, gradients = [], []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss, _ = cross_entropy(model(tokens, segments), model.head_VD, labels, 20.0)
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.02)
    assert gradients[1].dtype == torch.float32
    assert (gradients[1] - gradients[0]).norm() < 0.05 * gradients[0].norm()


def test_kaiyuan_2b_has_its_published_size():
    config = ModelConfig(layers=28, hidden=2048, mlp=6144, heads=16, kv_heads=8, logit_softcap=30)
    count = parameter_count(config, 151936)
    assert count["matrices"] == 1_409_286_144  # 1.409B
    assert count["embedding"] == 622_329_856  # 0.622B
    assert count["gains"] == 28 * (4 * 2048 + 2 * 128) + 2048
    assert flops_per_token(config, 151936, 4096) == 6 * (1_409_286_144 + 311_164_928) + 6 * 28 * 2048 * 4096


def test_softcap_bounds_every_logit():
    tokens, segments = batch(1)
    largest = []
    for cap in (5.0, 50.0, None):
        model = make(logit_softcap=cap)
        with torch.no_grad():
            model.head.weight.mul_(100)
            largest.append(float(model.logits(model(tokens, segments)).abs().max()))
    assert largest[0] <= 5 and 5 < largest[1] <= 50 < largest[2]


def test_initial_weights_depend_on_seed_and_name_alone():
    small, large = (
        initialise(Decoder(ModelConfig(**{**toy.MODEL, "layers": n}), toy.VOCAB), 11).state_dict() for n in (1, 2)
    )
    assert all(torch.equal(value, large[name]) for name, value in small.items())
    other = initialise(Decoder(ModelConfig(**toy.MODEL), toy.VOCAB), 12).state_dict()
    assert not torch.equal(other["embed.weight"], large["embed.weight"])
    assert float(large["head.weight"].std()) == pytest.approx(0.02, rel=0.1)
    assert float(large["embed.weight"].std()) == pytest.approx(1, rel=0.1)
    tied = initialise(Decoder(ModelConfig(**toy.MODEL, tie=True), toy.VOCAB), 11)
    assert tied.embed.weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"kv_heads": 3}, "kv_heads"),
        ({"hidden": 30}, "multiple of heads"),
        ({"head_dim": 7}, "even"),
        ({"logit_softcap": 0}, "logit_softcap"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes, word):
    with pytest.raises(ValidationError, match=word):
        ModelConfig(**{**toy.MODEL, **changes})
