"""Score: log-likelihoods of continuations under a model. Everything an evaluation reports is made from these records.

The scored span is found by characters: context and continuation are tokenised as one text, and every token that
reaches past the context's end is scored. A token across the join is thus counted, never lost (an empty span is
impossible), and a tokenizer that would merge a trailing space of the context into the continuation still does.

Requests in a row that begin alike (the options of an item, items after the same examples) have the common beginning
read once and kept in the key-value cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from gristmill.eval.models import LanguageModel

BATCH_LOGITS = 1 << 26  # logits held at once (count): 256 MB in FP32
BATCH_TOKENS = 8192
SHARED = 16  # tokens that windows in a row must begin with alike to be read together


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
    groups = group(windows)
    with torch.inference_mode():
        for batch in _batches((w for some in groups if len(some) == 1 for w in some), limit):
            yield from _forward(lm, batch)
        for batch in _group_batches([some for some in groups if len(some) > 1], limit):
            yield from _forward_groups(lm, batch)


def group(windows: Iterable[Window]) -> list[list[Window]]:
    """Windows in a row whose common beginning, none of it scored, is long; the others each alone."""
    groups: list[list[Window]] = []
    for window in windows:
        if groups and common(groups[-1] + [window]) >= SHARED:
            groups[-1].append(window)
        else:
            groups.append([window])
    return groups


def common(windows: Sequence[Window]) -> int:
    """How many ids the windows begin with alike, short of what the first scored id of any is predicted from."""
    most = min(w.first for w in windows) - 1
    head = windows[0].ids
    for window in windows[1:]:
        while head[:most] != window.ids[:most]:
            most = next(k for k in range(most) if head[k] != window.ids[k])
    return most


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
    targets_BK = ids_BT[:, width - keep + 1 :].to(lm.device)
    return _gather(batch, out.logits.float()[:, :-1], targets_BK, [width - keep + 1] * len(batch))


def _group_batches(groups: list[list[Window]], limit: int) -> list[list[list[Window]]]:
    """Groups of like length together; at most ``limit`` tokens a batch once every window has its cache."""
    batches: list[list[list[Window]]] = []
    rows = 0
    for some in sorted(groups, key=lambda g: (-max(len(w.ids) for w in g), g[0].owner)):
        longest = max(len(w.ids) for w in (batches[-1][0] if batches else some))
        if not batches or (rows + len(some)) * longest > limit:
            batches.append([])
            rows = 0
        batches[-1].append(some)
        rows += len(some)
    return batches


def _forward_groups(lm: LanguageModel, groups: list[list[Window]]) -> list[tuple[Window, float, bool]]:
    """Each group's beginning once (padded on the left), then every window's rest (padded on the right)."""
    heads = [some[0].ids[: common(some)] for some in groups]
    width = max(map(len, heads))
    ids_GT, mask_GT = torch.full((len(groups), width), lm.pad_id), torch.zeros(len(groups), width, dtype=torch.long)
    for k, head in enumerate(heads):
        ids_GT[k, width - len(head) :], mask_GT[k, width - len(head) :] = torch.tensor(head), 1
    device = lm.device
    cache = lm.model(
        input_ids=ids_GT.to(device),
        attention_mask=mask_GT.to(device),
        position_ids=(mask_GT.cumsum(-1) - 1).clamp(min=0).to(device),
        use_cache=True,
        logits_to_keep=1,
    ).past_key_values
    batch = [w for some in groups for w in some]
    owner = torch.tensor([k for k, some in enumerate(groups) for _ in some])
    cache.batch_select_indices(owner.to(device))
    begun = [len(heads[k]) for k in owner.tolist()]
    length = max(len(w.ids) - n for w, n in zip(batch, begun, strict=True))
    ids_BR, mask_BR = torch.full((len(batch), length), lm.pad_id), torch.zeros(len(batch), length, dtype=torch.long)
    for k, (window, n) in enumerate(zip(batch, begun, strict=True)):
        rest = window.ids[n:]
        ids_BR[k, : len(rest)], mask_BR[k, : len(rest)] = torch.tensor(rest), 1
    logits_BRV = lm.model(
        input_ids=ids_BR.to(device),
        attention_mask=torch.cat([mask_GT[owner], mask_BR], 1).to(device),
        position_ids=(torch.tensor(begun)[:, None] + torch.arange(length)).to(device),
        past_key_values=cache,
        use_cache=True,
    ).logits.float()[:, :-1]
    return _gather(batch, logits_BRV, ids_BR[:, 1:].to(device), [n + 1 for n in begun])


def _gather(
    batch: list[Window], logits_BKV: torch.Tensor, targets_BK: torch.Tensor, first: Sequence[int]
) -> list[tuple[Window, float, bool]]:
    """Sums over each window's scored ids; ``first``: position in the window of row k's first target."""
    logp_BK = torch.log_softmax(logits_BKV, -1).gather(-1, targets_BK[..., None])[..., 0].double().cpu()
    hit_BK = (logits_BKV.argmax(-1) == targets_BK).cpu()
    found = []
    for k, window in enumerate(batch):
        scored = slice(window.first - first[k], len(window.ids) - first[k])
        found.append((window, float(logp_BK[k, scored].sum()), bool(hit_BK[k, scored].all())))
    return found
