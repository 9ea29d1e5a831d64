"""Generate: token rollouts from any Hugging Face causal language model, sampled and greedy in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    model: Any,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    *,
    stop: set[int],
    pad_id: int,
    on_token: Callable[[int, int], None] | None = None,
) -> list[Rollout]:
    """One rollout per (prompt, params) pair, in order; all advance together through one key-value cache.

    ``stop``: ids that end a rollout. A rollout depends on its own prompt and params; batch-mates change it only
    through floating-point rounding. A prompt that occurs several times is read once. ``on_token(k, token)`` is called
    as soon as rollout k has a new token.
    """
    if len(prompts) != len(params):
        raise ValueError(f"{len(prompts)} prompts but {len(params)} sampling parameters")
    if empty := [k for k, prompt in enumerate(prompts) if not prompt]:
        raise BadInput("a prompt must hold at least one token (BOS will do)", key=f"prompts[{empty[0]}]")
    generators = [torch.Generator().manual_seed(derive(p.seed, "rollout")) for p in params]
    ids: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    reasons: list[str | None] = [None] * len(prompts)
    logits, cache, mask = _read(model, prompts, pad_id)
    positions = mask.sum(-1, keepdim=True) - 1
    while True:
        logp = torch.log_softmax(logits, -1)
        best = logits.argmax(-1).tolist()
        chosen = torch.full((len(prompts), 1), pad_id)
        for k, p in enumerate(params):
            if reasons[k]:
                continue
            token = best[k] if p.temperature == 0 else _draw(logits[k], p, generators[k])
            ids[k].append(token)
            logprobs[k].append(float(logp[k, token]))
            chosen[k] = token
            if on_token:
                on_token(k, token)
            if token in stop:
                reasons[k] = "stop"
            elif len(ids[k]) == p.max_tokens:
                reasons[k] = "length"
        if all(reasons):
            return [Rollout(*r) for r in zip(ids, logprobs, reasons, strict=True)]
        mask = torch.cat([mask, mask.new_ones((len(prompts), 1))], 1)
        positions = positions + 1
        logits, cache = _forward(model, chosen.to(model.device), mask, positions, cache)


def _read(model: Any, prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, Any, torch.Tensor]:
    """(logits of what follows each prompt, FP32, on the CPU; the cache; the attention mask). Each different prompt
    goes through the model once."""
    different = {tuple(prompt): None for prompt in prompts}
    number = {prompt: k for k, prompt in enumerate(different)}
    width = max(map(len, prompts))
    tokens = torch.full((len(different), width), pad_id)
    mask = torch.zeros_like(tokens)
    for k, prompt in enumerate(different):  # padded on the left, so every next token is in the last column
        tokens[k, width - len(prompt) :] = torch.tensor(prompt)
        mask[k, width - len(prompt) :] = 1
    tokens, mask = tokens.to(model.device), mask.to(model.device)
    logits, cache = _forward(model, tokens, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)
    if len(different) < len(prompts):
        rows = torch.tensor([number[tuple(prompt)] for prompt in prompts])
        logits, mask = logits[rows], mask[rows.to(mask.device)]
        cache.batch_select_indices(rows.to(mask.device))
    return logits, cache, mask


def _forward(model: Any, tokens: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> tuple:
    out = model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return out.logits[:, -1].float().cpu(), out.past_key_values


def _draw(logits: torch.Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    probabilities = torch.softmax(logits / params.temperature, -1)
    if params.top_p < 1:
        ordered, index = probabilities.sort(descending=True)
        # keep a token when the mass before it is below top_p: the first always stays
        ordered[ordered.cumsum(-1) - ordered >= params.top_p] = 0
        probabilities = torch.zeros_like(probabilities).scatter(0, index, ordered)
    return int(torch.multinomial(probabilities, 1, generator=generator))
