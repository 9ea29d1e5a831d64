"""Bits per byte on held-out text, by domain: the one score a small model can be trusted with.

bits per byte = sum of -log2 p(token) over a document's tokens / its UTF-8 bytes, so models with different tokenizers
compare. Each document stands alone, after the token the model's texts begin with; EOS is not scored. A document
longer than the context is read in windows that overlap by half, each token scored once, with the longest left
context its window gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from pydantic import Field

from gristmill.eval.material import Material
from gristmill.eval.models import LanguageModel
from gristmill.eval.scorer import Window, forward
from gristmill.eval.tasks import Result
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.progress import bar


class BpbConfig(Config):
    """Bits per byte on validation text."""

    documents: int = Field(500, ge=1, description="validation documents scored per source (count), in id order")
    context: int = Field(
        2048, ge=2, description="longest window read (tokens); a model made for less reads less", le=1 << 20
    )


def measure(lm: LanguageModel, config: BpbConfig, material: Material) -> Result:
    """Scores by domain and by source, ``mean`` (unweighted over domains), and a record for each document.

    ``stderr`` is over documents, of a ratio of sums; that of the mean treats domains as independent.
    """
    documents = list(_documents(lm, config, material))
    length = min(config.context, lm.max_length)
    windows = [w for k, d in enumerate(documents) for w in split_windows(k, d.pop("ids"), length)]
    nats = np.zeros(len(documents))
    with bar("bits per byte", len(windows)) as advance:
        for window, value, _ in forward(lm, windows):
            nats[window.owner] -= value
            advance(1)
    for document, value in zip(documents, nats, strict=True):
        document["bits"] = round(float(value) / math.log(2), 6)
    domains, sources = (
        {name: ratio([d for d in documents if d[key] == name]) for name in sorted({d[key] for d in documents})}
        for key in ("domain", "source")
    )
    mean = float(np.mean([s["bits_per_byte"] for s in domains.values()]))
    spread = math.sqrt(sum(s["stderr"] ** 2 for s in domains.values())) / len(domains)
    return Result(
        metric="bits_per_byte",
        value=round(mean, 5),
        stderr=round(spread, 5),
        n=len(documents),
        higher_is_better=False,
        records=documents,
        extra={"domains": domains, "sources": sources, "mean": round(mean, 5)},
    )


def split_windows(owner: int, ids: list[int], length: int) -> list[Window]:
    """``ids`` (the first is not scored) in windows of at most ``length``: every other token in just one of them."""
    windows, done, step = [], 1, max(1, length // 2)
    for start in range(0, len(ids), step):
        window = ids[start : start + length]
        windows.append(Window(owner, window, done - start))
        done = start + len(window)
        if done == len(ids):
            break
    return windows


def ratio(documents: list[dict]) -> dict:
    """Bits per byte of a set of documents, with the standard error of a ratio of sums over documents."""
    bits = np.array([d["bits"] for d in documents])
    size = np.array([d["bytes"] for d in documents], float)
    value = bits.sum() / size.sum()
    n = len(documents)
    spread = math.sqrt(((bits - value * size) ** 2).sum() / max(1, n - 1) / n) / size.mean()
    return {
        "bits_per_byte": round(float(value), 5),
        "stderr": round(float(spread), 5),
        "documents": n,
        "bytes": int(size.sum()),
    }


def _documents(lm: LanguageModel, config: BpbConfig, material: Material) -> Iterator[dict]:
    begin = lm.begin or [lm.prefix_id]
    for source in material.sources():
        rows = material.documents(source, config.documents)
        for (doc_id, text), ids in zip(rows, lm.encode([text for _, text in rows]), strict=True):
            yield {
                "source": source,
                "domain": material.domains[source],
                "id": doc_id,
                "bytes": len(text.encode()),
                "tokens": len(ids),
                "ids": [*begin, *ids],
            }
