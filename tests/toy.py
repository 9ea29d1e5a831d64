"""A packed folder and a training configuration that take a second: what the tests of the training room run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from gristmill.data.shards import Writer
from gristmill.kernels.common.files import file_hash, walk
from gristmill.train import pretrain
from gristmill.train.model import ModelConfig

SEQ, VOCAB, PAD, EOS = 32, 48, 0, 1
MODEL = {"layers": 2, "hidden": 32, "mlp": 48, "heads": 4, "kv_heads": 2, "logit_softcap": 20}


def packed(folder: Path, rows: int = 80, phases: tuple[str, ...] = ("p1", "p2"), shard_rows: int = 30) -> Path:
    """``rows`` rows of one to four documents and some padding: runs through an alphabet, so they can be learnt."""
    rng = np.random.default_rng(7)
    writer = Writer(folder, seq_len=SEQ, vocab_size=VOCAB, pad_id=PAD, eos_id=EOS, shard_rows=shard_rows)
    document = 0
    for number in range(rows):
        if number % (-(-rows // len(phases))) == 0:
            writer.phase(phases[number * len(phases) // rows])
        row, pieces, at = np.full(SEQ, PAD), [], 0
        for _ in range(rng.integers(1, 5)):
            length = int(min(rng.integers(2, 20), SEQ - at))
            if length < 2:
                break
            row[at : at + length] = 2 + (rng.integers(VOCAB) + rng.integers(1, 4) * np.arange(length)) % (VOCAB - 2)
            row[at + length - 1] = EOS
            pieces.append(
                {"start": at, "length": length, "source": "s", "document": document, "id": f"{document:016x}"}
                | {"pass": 0, "offset": 0, "position": document}
            )
            at, document = at + length, document + 1
        writer.row(row, pieces)
    writer.close()
    return folder


def config(model: dict | None = None, optimizer: dict | None = None, seed: int = 3, **train) -> pretrain.PretrainConfig:
    """Twenty steps of four rows, four checkpoints."""
    defaults = {
        "batch_tokens": 4 * SEQ,
        "precision": "fp32",
        "optimizer": {"lr": 1e-2, **(optimizer or {})},
        "schedule": {"kind": "wsm", "warmup": 0.1},
        "checkpoints": 4,
        "device": "cpu",
        "micro_batch": 2,
        "threads": 1,
    }
    return pretrain.PretrainConfig(
        model=ModelConfig(**{**MODEL, **(model or {})}), train={**defaults, **train}, seed=seed
    )


def metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def final_weights(out: Path) -> dict:
    (*_, last) = sorted((out / "checkpoints").iterdir())
    return load_file(last / "model.safetensors")


def contents(out: Path) -> dict[str, str]:
    """Hash of every file that belongs to an artefact's content."""
    return {p: file_hash(out / p) for p in walk(out) if not p.startswith("provenance/")}
