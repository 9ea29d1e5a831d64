"""The one loss of post-training, -sum_t w_t log p(y_t | prompt, y_<t) / N, and the weights that make it SFT, SePT or
ReMax. Pure functions; B responses of at most R tokens.

N is a count over the whole optimizer batch, never over a micro-batch: a mean of means weighs a token by its company.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Normaliser = Literal["tokens", "responses"]


@dataclass(frozen=True)
class Sample:
    """Token ids of a prompt and of a response to learn from, with a weight for each of the response's tokens."""

    prompt: Sequence[int]
    response: Sequence[int]
    weights: Sequence[float]


def supervised(prompt: Sequence[int], response: Sequence[int]) -> Sample:
    """Every token of the response counts 1: supervised fine-tuning, and SePT's own answers."""
    return Sample(prompt, response, [1.0] * len(response))


def size(samples: Sequence[Sample], normaliser: Normaliser) -> int:
    """N: response tokens, or responses."""
    return sum(len(s.response) for s in samples) if normaliser == "tokens" else len(samples)


def log_probs(model: Any, samples: Sequence[Sample], pad_id: int, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """(log p of every response token [B, R] under softmax(z / temperature), FP32; mask [B, R] of those there are).

    Prompts are padded on the left and responses on the right, so that only R columns of logits are ever made; mask
    and positions come from lengths, never from the ids (padding may share its id with EOS, which is learned).
    """
    width = max(len(s.prompt) for s in samples)
    length = max(len(s.response) for s in samples)
    tokens = torch.full((len(samples), width + length), pad_id)
    attended = torch.zeros_like(tokens)
    for k, s in enumerate(samples):
        here = slice(width - len(s.prompt), width + len(s.response))
        tokens[k, here] = torch.tensor([*s.prompt, *s.response])
        attended[k, here] = 1
    positions = (attended.cumsum(-1) - 1).clamp(min=0)
    tokens, attended, positions = (t.to(model.device) for t in (tokens, attended, positions))
    out = model(
        input_ids=tokens, attention_mask=attended, position_ids=positions, logits_to_keep=length + 1, use_cache=False
    )
    logp_BRV = torch.log_softmax(out.logits[:, :-1].float() / temperature, -1)
    logp_BR = logp_BRV.gather(-1, tokens[:, width:, None]).squeeze(-1)
    return logp_BR, attended[:, width:].bool()


def weighted_nll(logp_BR: Tensor, mask_BR: Tensor, samples: Sequence[Sample], count: int) -> Tensor:
    """-sum w log p / count over the tokens of the mask."""
    weights_BR = torch.zeros_like(logp_BR)
    for k, s in enumerate(samples):
        weights_BR[k, : len(s.weights)] = torch.tensor(s.weights, dtype=logp_BR.dtype)
    return -(weights_BR * logp_BR.masked_fill(~mask_BR, 0.0)).sum() / count


def remax_weights(
    reward: float,
    baseline: float,
    length: int,
    *,
    gamma: float = 1.0,
    clip: float | None = None,
    kl: float = 0.0,
    logp: Sequence[float] = (),
    reference: Sequence[float] = (),
) -> list[float]:
    """Weights of a sampled response's tokens t = 1 .. length: gamma^(length - t + 1) (r - b) - kl (log p - log p_ref).

    arXiv 2310.10505: b is the reward of the greedy response, which makes the estimator unbiased with no critic, no
    ratio and no clipping of ratios. Discount, clip of r - b and per-token KL (a constant weight: no gradient passes
    through it, and it holds no later token's) are those of the authors' code; gamma 1, no clip and kl 0 leave the
    plain estimator.
    """
    advantage = reward - baseline
    if clip is not None:
        advantage = max(-clip, min(clip, advantage))
    weights = [gamma ** (length - t) * advantage for t in range(length)]
    if kl:
        weights = [w - kl * (a - b) for w, a, b in zip(weights, logp, reference, strict=True)]
    return weights
