"""Bits per byte on held-out text, by domain: the one score a small model can be trusted with.

bits per byte = sum of -log2 p(token) over a document's tokens / its UTF-8 bytes. Each document stands alone,
after BOS; EOS is not scored. A document longer than the context is read in windows that overlap by half, each
token scored once, with the longest left context its window gives.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
import torch
from pydantic import Field

from gristmill.data import tables
from gristmill.data.tokenizer import Encoder
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.files import atomic, write_json
from gristmill.kernels.common.progress import bar
from gristmill.train.load import load_model


class EvalConfig(Config):
    """One evaluation of one model of the recipe."""

    name: str = Field(description="name of the evaluation, unique in the recipe")
    of: str = Field(description="the model artefact it scores: pretrain (the last raw checkpoint) or merge")
    suite: Literal["bpb"] = Field(
        "bpb", description="what is measured: bpb, bits per byte by domain on validation text"
    )
    max_documents: int = Field(500, ge=1, description="validation documents scored per source (count), in id order")
    batch_tokens: int = execution(8192, ge=1, description="tokens a forward pass takes at most (count)")


class EvalStage(Config):
    eval: EvalConfig = Field(description="one entry of the recipe's list")
    domains: dict[str, str] = Field(description="source -> domain")


def run(config: EvalStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"model", "split", "tokenizer"}. Writes records.jsonl (one document a line) and scores.json.

    scores.json: {"domains": {domain: {bits_per_byte, documents, bytes, stderr}}, "sources": {...}, "mean"};
    ``mean`` is the unweighted mean over domains, ``stderr`` the standard error over documents of the ratio.
    """
    model, meta = load_model(inputs["model"])
    encoder = Encoder(inputs["tokenizer"])
    documents = _documents(config, inputs["split"] / "validation", encoder)
    windows = [w for k, d in enumerate(documents) for w in _windows(k, d["ids"], meta["seq_len"])]
    nats = np.zeros(len(documents))
    with bar(f"eval {config.eval.name}", len(windows)) as advance, torch.inference_mode():
        for batch in _batches(windows, config.eval.batch_tokens):
            for (document, *_), value in zip(batch, _score(model, batch, encoder.pad_id), strict=True):
                nats[document] += value
            advance(len(batch))
    out.mkdir(parents=True, exist_ok=True)
    with atomic(out / "records.jsonl") as tmp, open(tmp, "w") as f:
        for d, value in zip(documents, nats, strict=True):
            d["bits"] = round(float(value) / math.log(2), 6)
            f.write(json.dumps({k: d[k] for k in ("source", "domain", "id", "tokens", "bytes", "bits")}) + "\n")
    scores: dict[str, Any] = {
        "domains": {
            name: _ratio([d for d in documents if d["domain"] == name]) for name in _unique(documents, "domain")
        },
        "sources": {
            name: _ratio([d for d in documents if d["source"] == name]) for name in _unique(documents, "source")
        },
    }
    scores["mean"] = round(float(np.mean([s["bits_per_byte"] for s in scores["domains"].values()])), 5)
    write_json(out / "scores.json", scores)
    return {"documents": len(documents), "bytes": sum(d["bytes"] for d in documents), "windows": len(windows)}


def _documents(config: EvalStage, folder: Path, encoder: Encoder) -> list[dict]:
    documents = []
    for source, parts in tables.read_index(folder).items():
        left = config.eval.max_documents
        for part in parts:
            table = pq.read_table(tables.part_path(folder, source, part["name"]), columns=["id", "text"]).slice(0, left)
            left -= table.num_rows
            texts = table["text"].to_pylist()
            for doc_id, text, ids in zip(table["id"].to_pylist(), texts, encoder.encode(texts), strict=True):
                documents.append(
                    {
                        "source": source,
                        "domain": config.domains[source],
                        "id": doc_id,
                        "bytes": len(text.encode()),
                        "tokens": len(ids),
                        "ids": [encoder.bos_id, *ids],
                    }
                )
    return documents


def _windows(document: int, ids: list[int], seq_len: int) -> list[tuple[int, list[int], int]]:
    """(document, ids of the window, first position scored): every token but BOS is scored in just one window."""
    windows, done, step = [], 1, seq_len // 2
    for start in range(0, len(ids), step):
        window = ids[start : start + seq_len]
        windows.append((document, window, done - start))
        done = start + len(window)
        if done == len(ids):
            return windows
    return windows


def _batches(windows: list, limit: int) -> list[list]:
    """Windows of like length together, so little is padded; at most ``limit`` tokens a batch."""
    batches: list[list] = []
    for window in sorted(windows, key=lambda w: (-len(w[1]), w[0], w[2])):
        if not batches or (len(batches[-1]) + 1) * len(batches[-1][0][1]) > limit:
            batches.append([])
        batches[-1].append(window)
    return batches


def _score(model: torch.nn.Module, batch: list, pad_id: int) -> list[float]:
    """Summed -log p (nats, float64 over float32 log-probabilities) of each window's scored tokens."""
    width = max(len(ids) for _, ids, _ in batch)
    tokens = torch.full((len(batch), width), pad_id)
    segments = torch.full((len(batch), width), -1)
    for k, (_, ids, _) in enumerate(batch):
        tokens[k, : len(ids)] = torch.tensor(ids)
        segments[k, : len(ids)] = 0
    logits = model.logits(model(tokens, segments)).float()
    logp = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, tokens[:, 1:, None])[..., 0].double()
    return [-float(logp[k, first - 1 : len(ids) - 1].sum()) for k, (_, ids, first) in enumerate(batch)]


def _ratio(documents: list[dict]) -> dict:
    """Bits per byte of a set of documents, with the standard error of a ratio of sums over documents."""
    bits = np.array([d["bits"] for d in documents])
    size = np.array([d["bytes"] for d in documents], float)
    ratio = bits.sum() / size.sum()
    n = len(documents)
    spread = math.sqrt(((bits - ratio * size) ** 2).sum() / max(1, n - 1) / n) / size.mean()
    return {
        "bits_per_byte": round(float(ratio), 5),
        "stderr": round(spread, 5),
        "documents": n,
        "bytes": int(size.sum()),
    }


def _unique(documents: list[dict], key: str) -> list[str]:
    return sorted({d[key] for d in documents})
