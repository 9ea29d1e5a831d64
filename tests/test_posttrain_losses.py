"""Post-training's loss: what padding, micro-batches and baselines may not change, and what SePT and ReMax prove."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import toylm

from gristmill.posttrain.losses import Sample, log_probs, remax_weights, size, supervised, weighted_nll


@pytest.fixture(scope="module")
def model():
    return toylm.llama()


EOS = 2
SAMPLES = [
    supervised([1, 5, 9], [7, 8, EOS]),
    Sample([1], [4], [0.5]),
    Sample([1, 7, 3, 22, 30, 8], [11, EOS], [-1.0, 2.0]),
    supervised([1, 6], [9, 9, 9, 9, 3]),
]


class Table(torch.nn.Module):
    """A policy over one token: free logits, whatever the prompt."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float64))
        self.device = torch.device("cpu")

    def forward(self, input_ids, logits_to_keep, **_):
        return SimpleNamespace(logits=self.logits.expand(len(input_ids), logits_to_keep, -1))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_those_of_each_sample_alone(model, temperature):
    """Padding has the id of EOS here: it is told from EOS by place alone."""
    logp, mask = log_probs(model, SAMPLES, EOS, temperature)
    for k, s in enumerate(SAMPLES):
        ids = torch.tensor([[*s.prompt, *s.response]])
        whole = torch.log_softmax(model(ids).logits[0].detach().float() / temperature, -1)
        expected = [float(whole[len(s.prompt) - 1 + t, token]) for t, token in enumerate(s.response)]
        assert logp[k][mask[k]].tolist() == pytest.approx(expected, abs=1e-5)
        assert int(mask[k].sum()) == len(s.response)


@pytest.mark.parametrize("normaliser", ["tokens", "responses"])
def test_the_gradient_is_the_same_however_the_batch_is_cut(model, normaliser):
    def gradient(cut: int) -> torch.Tensor:
        model.zero_grad()
        count = size(SAMPLES, normaliser)
        for a in range(0, len(SAMPLES), cut):
            some = SAMPLES[a : a + cut]
            weighted_nll(*log_probs(model, some, 0), some, count).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    whole = gradient(4)
    assert float(whole.norm()) > 0.01
    for cut in (1, 2, 3):
        assert torch.allclose(gradient(cut), whole, atol=1e-6)


def enumerated(policy: Table, tau_s: float) -> list[Sample]:
    """Every answer, weighted by how often the frozen sampler gives it."""
    probabilities = torch.softmax(policy.logits.detach() / tau_s, -1).tolist()
    return [Sample([0], [v], [p]) for v, p in enumerate(probabilities)]


def step(policy: Table, samples: list[Sample], tau_t: float) -> torch.Tensor:
    policy.zero_grad()
    logits = policy(torch.zeros(len(samples), 2, dtype=torch.long), 1).logits[:, 0]
    logp = torch.log_softmax(logits / tau_t, -1)
    picked = logp.gather(1, torch.tensor([list(s.response) for s in samples]))
    weighted_nll(picked, torch.ones_like(picked, dtype=torch.bool), samples, 1).backward()
    return policy.logits.grad


def test_sept_learns_nothing_at_equal_temperatures():
    """arXiv 2510.18814: the score function has mean zero, so only a colder sampler moves the policy."""
    policy = Table([0.3, -1.0, 2.0, 0.0])
    assert step(policy, enumerated(policy, 1.0), 1.0).abs().max() < 1e-12
    colder = step(policy, enumerated(policy, 0.6), 1.0)
    assert colder[2] < -0.05 and (colder[[0, 1, 3]] > 0).all()  # descent raises the likeliest answer
    hotter = step(policy, enumerated(policy, 1.5), 1.0)
    assert hotter[2] > 0.05


@pytest.mark.parametrize(("tau_s", "tau_t"), [(0.6, 1.0), (0.9, 1.0), (1.2, 0.8)])
def test_sept_multiplies_every_margin_by_the_ratio_of_temperatures(tau_s, tau_t):
    old = Table([0.3, -1.0, 2.0, 0.0])
    samples, policy = enumerated(old, tau_s), Table([0.0] * 4)
    for _ in range(1500):  # plain descent
        gradient = step(policy, samples, tau_t)
        with torch.no_grad():
            policy.logits -= gradient
    margins, before = policy.logits.detach() - policy.logits[0].item(), old.logits.detach() - 0.3
    assert torch.allclose(margins, before * tau_t / tau_s, atol=1e-4)


REWARDS = [0.0, 1.0, 0.3, 0.7]


def remax_gradients(baseline: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(exact gradient of the expected reward, mean of the estimator, its total variance) for a bandit."""
    policy = Table([0.5, -0.2, 0.9, 0.0])
    probabilities = torch.softmax(policy.logits, -1)
    (exact,) = torch.autograd.grad((probabilities * torch.tensor(REWARDS)).sum(), policy.logits)
    gradients = []
    for action, reward in enumerate(REWARDS):
        sample = Sample([0], [action], remax_weights(reward, baseline, 1))
        gradients.append(-step(policy, [sample], 1.0).clone())
    stacked, p = torch.stack(gradients), probabilities.detach()[:, None]
    mean = (p * stacked).sum(0)
    return exact, mean, (p * (stacked - mean) ** 2).sum()


def test_remax_is_unbiased_and_its_baseline_lowers_the_variance():
    """arXiv 2310.10505: with the greedy answer's reward (0.3 here) or without any baseline."""
    exact, plain, loose = remax_gradients(0.0)
    _, mean, tight = remax_gradients(0.3)
    assert torch.allclose(plain, exact, atol=1e-12) and torch.allclose(mean, exact, atol=1e-12)
    assert tight < loose


def test_remax_weights_by_hand():
    assert remax_weights(1.0, 0.25, 3) == [0.75, 0.75, 0.75]
    assert remax_weights(1.0, 0.25, 3, gamma=0.99) == pytest.approx([0.75 * 0.99**3, 0.75 * 0.99**2, 0.75 * 0.99])
    assert remax_weights(9.0, 1.0, 2, clip=5.0) == [5.0, 5.0] and remax_weights(0.0, 9.0, 1, clip=5.0) == [-5.0]
    # log p - log p_ref of that token alone, none of the later ones'
    assert remax_weights(1.0, 0.0, 2, kl=0.1, logp=[-1.0, -2.0], reference=[-1.5, -1.0]) == pytest.approx([0.95, 1.1])
    # two responses of up to three tokens, mean over responses: -(0.75 (a + b + c) - 0.5 (d + e)) / 2
    samples = [Sample([0], [1, 2, 3], remax_weights(1, 0.25, 3)), Sample([0], [1, 2], remax_weights(0, 0.5, 2))]
    logp = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, float("nan")]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert float(weighted_nll(logp, mask, samples, 2)) == pytest.approx(-(0.75 * -6 - 0.5 * -9) / 2)


def test_equal_rewards_teach_nothing(model):
    model.zero_grad()
    samples = [Sample([1, 5], [7, 8], remax_weights(1.0, 1.0, 2))]
    weighted_nll(*log_probs(model, samples, 0), samples, 1).backward()
    assert all(float(p.grad.abs().max()) == 0 for p in model.parameters())
