"""Score: log-likelihoods of continuations under a model. Everything an evaluation reports is made from these records.

The scored span is found by characters: context and continuation are tokenised as one text, and every token that
reaches past the context's end is scored. A token across the join is thus counted, never lost (an empty span is
impossible), and a tokenizer that would merge a trailing space of the context into the continuation still does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from gristmill.eval.models import LanguageModel

BATCH_LOGITS = 1 << 26  # logits held at once (count): 256 MB in FP32
BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Record:
    """One scored continuation. ``loglikelihood``: sum of log p in nats, FP32 log-softmax summed in FP64."""

    loglikelihood: float
    tokens: int  # scored
    greedy: bool  # every scored token was the most likely one
    truncated: bool  # the context lost tokens on its left to fit the model


@dataclass(frozen=True)
class Window:
    """A stretch of ids a model reads, of which ids[first:] are scored; ``owner`` says what the score is added to."""

    owner: int
    ids: list[int]
    first: int
    truncated: bool = False


def score(
    lm: LanguageModel, requests: Sequence[tuple[str, str]], *, advance: Callable[..., None] = lambda n: None
) -> list[Record]:
    """One record per (context, continuation), in order. An empty context is the model's prefix token.

    A record depends on its own request alone; batch-mates change it through floating-point rounding only. Raises
    ValueError for an empty continuation.
    """
    if empty := [k for k, (_, continuation) in enumerate(requests) if not continuation]:
        raise ValueError(f"request {empty[0]} has an empty continuation")
    windows = [_window(lm, k, *request) for k, request in enumerate(requests)]
    records: list[Record | None] = [None] * len(requests)
    for window, nats, greedy in forward(lm, windows):
        scored = len(window.ids) - window.first
        records[window.owner] = Record(nats, scored, greedy, window.truncated)
        advance(1)
    return records  # type: ignore[return-value]  # each owner is met once


def forward(lm: LanguageModel, windows: Iterable[Window]) -> Iterable[tuple[Window, float, bool]]:
    """(window, sum of log p over its scored ids, whether all were most likely) in any order; longest first."""
    vocab = lm.model.config.get_text_config().vocab_size
    limit = max(1, min(BATCH_TOKENS, BATCH_LOGITS // vocab))
    with torch.inference_mode():
        for batch in _batches(windows, limit):
            yield from _forward(lm, batch)


def _window(lm: LanguageModel, owner: int, context: str, continuation: str) -> Window:
    encoded = lm.tokenizer(
        context + continuation,
        add_special_tokens=False,
        split_special_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    ids = encoded["input_ids"]
    # offsets of byte-level tokens point at whole characters, so a token that ends past the join reaches past it
    first = next(k for k, (_, stop) in enumerate(encoded["offset_mapping"]) if stop > len(context))
    begin = lm.begin or ([lm.prefix_id] if first == 0 else [])
    ids, first = begin + ids, first + len(begin)
    over = len(ids) - lm.max_length
    if over <= 0:
        return Window(owner, ids, first)
    kept = len(begin)  # BOS stays; the context's left end goes
    ids = ids[:kept] + ids[kept + over :]
    return Window(owner, ids, max(max(1, kept), first - over), True)


def _batches(windows: Iterable[Window], limit: int) -> list[list[Window]]:
    """Windows of like length together, so that little is padded; at most ``limit`` tokens a batch."""
    batches: list[list[Window]] = []
    for window in sorted(windows, key=lambda w: (-len(w.ids), w.owner, w.first)):
        if not batches or (len(batches[-1]) + 1) * len(batches[-1][0].ids) > limit:
            batches.append([])
        batches[-1].append(window)
    return batches


def _forward(lm: LanguageModel, batch: list[Window]) -> list[tuple[Window, float, bool]]:
    width = len(batch[0].ids)
    ids_BT = torch.full((len(batch), width), lm.pad_id)
    mask_BT = torch.zeros_like(ids_BT)
    for k, window in enumerate(batch):  # padded on the right: a causal model cannot see it
        ids_BT[k, : len(window.ids)] = torch.tensor(window.ids)
        mask_BT[k, : len(window.ids)] = 1
    keep = width - min(window.first for window in batch) + 1  # logits are the memory: only from the first one needed
    out = lm.model(
        input_ids=ids_BT.to(lm.device), attention_mask=mask_BT.to(lm.device), use_cache=False, logits_to_keep=keep
    )
    logits_BKV = out.logits.float()[:, :-1]
    targets_BK = ids_BT[:, width - keep + 1 :].to(lm.device)
    logp_BK = torch.log_softmax(logits_BKV, -1).gather(-1, targets_BK[..., None])[..., 0].double().cpu()
    hit_BK = (logits_BKV.argmax(-1) == targets_BK).cpu()
    shift = width - keep + 1  # position of the first target
    return [
        (
            w,
            float(logp_BK[k, w.first - shift : len(w.ids) - shift].sum()),
            bool(hit_BK[k, w.first - shift : len(w.ids) - shift].all()),
        )
        for k, w in enumerate(batch)
    ]
