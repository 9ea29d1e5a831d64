"""How large a first model of so much text should be. Ours: what trains on a CPU in minutes, not an optimum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.recipes.init.scan import FEWEST, Found

BYTES_PER_TOKEN = 3.2  # of the small vocabularies below, about; English a little more, Chinese a little less
MOST_TOKENS = 1.5e6  # read of the text by a first run: ten minutes on two cores
PASSES = 1.5  # of the mix below: everything once, then the better half
STEPS = 200
HELD_OUT = 10  # documents expected in the validation part of the smallest source


@dataclass(frozen=True)
class Sizes:
    """Everything in a recipe that depends on the amount of text."""

    scale: float
    tokens: int  # of all the text, about
    vocab_size: int
    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    seq_len: int
    batch_tokens: int
    checkpoints: int
    last: int
    validation: float
    min_chars: int


# tokens read, from which: vocabulary, layers, hidden, mlp, heads, kv_heads, seq_len
_RUNGS = (
    (0, (512, 2, 96, 256, 3, 1, 128)),
    (60_000, (1024, 3, 128, 384, 4, 2, 256)),
    (400_000, (4096, 4, 192, 512, 3, 1, 512)),
)


def sizes(found: Sequence[Found]) -> Sizes:
    """Sizes for all of ``found``, or for as large a share (``scale``) as a first run should read."""
    tokens = sum(source.bytes for source in found) / BYTES_PER_TOKEN
    scale = min(1.0, MOST_TOKENS / tokens)
    # the smallest source must keep enough documents for the split
    scale = min(1.0, float(f"{max(scale, *(FEWEST / source.documents for source in found)):.1g}"))
    used = tokens * scale
    vocab, layers, hidden, mlp, heads, kv_heads, seq_len = next(r for least, r in reversed(_RUNGS) if used >= least)
    batch, trained = seq_len, used * PASSES
    while trained / (2 * batch) >= STEPS and 2 * batch <= 4096:
        batch *= 2
    checkpoints = int(min(24, max(2, trained / batch / 8)))
    fewest = min(source.documents for source in found) * scale
    median = min(sorted(map(len, source.sample))[len(source.sample) // 2] for source in found)
    return Sizes(
        scale=scale,
        tokens=round(tokens),
        vocab_size=min(vocab, _reachable(found)),
        layers=layers,
        hidden=hidden,
        mlp=mlp,
        heads=heads,
        kv_heads=kv_heads,
        seq_len=seq_len,
        batch_tokens=batch,
        checkpoints=checkpoints,
        last=max(1, checkpoints // 4),
        validation=round(min(0.3, max(0.02, HELD_OUT / fewest)), 3),
        min_chars=min(30, median // 2),
    )


def _reachable(found: Sequence[Found]) -> int:
    """A vocabulary that byte-pair encoding reaches on this text: it can make every distinct word a token."""
    words = {word for source in found for text in source.sample for word in re.findall(r"\w{3,8}", text)}
    return 300 + len(words) // 2
