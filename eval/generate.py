"""Generate: token rollouts from any Hugging Face causal language model, sampled and greedy in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field

from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.seeds import derive


class SamplingParams(Config):
    """How one rollout is drawn. Every field is explicit: no default of the model's own is ever used."""

    temperature: float = Field(0.0, ge=0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus: the smallest set of tokens with this mass (0-1]")
    max_tokens: int = Field(64, ge=1, description="new tokens at most (count)")
    seed: int = Field(0, ge=0, description="seed of this rollout; nothing else enters its draws")


@dataclass(frozen=True)
class Rollout:
    """What was generated: new token ids (the stop token included), log p of each under temperature 1, and why it
    ended (``stop`` or ``length``)."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str


@torch.inference_mode()
def generate(
    model: Any, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams], *, stop: set[int], pad_id: int
) -> list[Rollout]:
    """One rollout per (prompt, params) pair, in order; all advance together through one key-value cache.

    ``stop``: ids that end a rollout. A rollout depends on its own prompt and params; batch-mates change it only
    through floating-point rounding.
    """
    if len(prompts) != len(params):
        raise ValueError(f"{len(prompts)} prompts but {len(params)} sampling parameters")
    if empty := [k for k, prompt in enumerate(prompts) if not prompt]:
        raise BadInput("a prompt must hold at least one token (BOS will do)", key=f"prompts[{empty[0]}]")
    width = max(map(len, prompts))
    tokens = torch.full((len(prompts), width), pad_id)
    mask = torch.zeros_like(tokens)
    for k, prompt in enumerate(prompts):  # padded on the left, so every next token is in the last column
        tokens[k, width - len(prompt) :] = torch.tensor(list(prompt))
        mask[k, width - len(prompt) :] = 1
    generators = [torch.Generator().manual_seed(derive(p.seed, "rollout")) for p in params]
    ids: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    reasons: list[str | None] = [None] * len(prompts)
    positions, cache = (mask.cumsum(-1) - 1).clamp(min=0), None
    while True:
        out = model(
            input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        cache = out.past_key_values
        logits = out.logits[:, -1].float()
        logp = torch.log_softmax(logits, -1)
        chosen = torch.full((len(prompts), 1), pad_id)
        for k, p in enumerate(params):
            if reasons[k]:
                continue
            token = _draw(logits[k], p, generators[k])
            ids[k].append(token)
            logprobs[k].append(float(logp[k, token]))
            chosen[k] = token
            if token in stop:
                reasons[k] = "stop"
            elif len(ids[k]) == p.max_tokens:
                reasons[k] = "length"
        if all(reasons):
            return [Rollout(*r) for r in zip(ids, logprobs, reasons, strict=True)]
        tokens = chosen
        mask = torch.cat([mask, torch.ones_like(chosen)], 1)
        positions = positions[:, -1:] + 1


def _draw(logits: torch.Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    if params.temperature == 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits / params.temperature, -1)
    if params.top_p < 1:
        ordered, index = probabilities.sort(descending=True)
        # keep a token when the mass before it is below top_p: the first always stays
        ordered[ordered.cumsum(-1) - ordered >= params.top_p] = 0
        probabilities = torch.zeros_like(probabilities).scatter(0, index, ordered)
    return int(torch.multinomial(probabilities, 1, generator=generator))
