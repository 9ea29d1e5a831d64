"""What each stage writes is pinned: a change without a bump of its version in graph.VERSIONS fails here.

Rows and ids are hashed, not files, so the pins hold on any machine and pyarrow; weights and scores, which
follow the processor, are pinned by test_golden_losses instead. To renew a pin after a deliberate change, bump
the version and run `python -m pytest tests/test_stage_hashes.py`: the failure prints the new line.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gristmill.recipes.runner.graph import VERSIONS

PINS = json.loads((Path(__file__).parent / "stage_hashes.json").read_text("utf-8"))
PINNED = ("corpus", "clean", "dedup", "score", "split", "tokenizer", "tokens", "mix", "pack", "pretrain", "merge")
FLOATS = {"loss", "grad_norm", "lr"}  # of metrics.jsonl: follow the processor


def rows(path: Path) -> bytes:
    if path.suffix == ".parquet":
        return json.dumps(pq.read_table(path).to_pylist(), sort_keys=True).encode()
    if path.name == "metrics.jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return json.dumps([{k: v for k, v in line.items() if k not in FLOATS} for line in lines]).encode()
    if path.name == "raw.json":
        return b""  # names the files read; their content is in the tables
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, "pt") as f:
            return json.dumps({k: f.get_slice(k).get_shape() for k in sorted(f.keys())}).encode()
    if path.parent.name.startswith("step-") or path.name == "merge.json":
        return b""  # hold hashes of weights
    return path.read_bytes()


def logical_hash(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if not name.startswith("provenance/") and name != "manifest.json":
            total.update(name.encode() + b"\0" + hashlib.sha256(rows(path)).digest())
    return total.hexdigest()[:16]


@pytest.mark.parametrize("stage", PINNED)
def test_output_is_pinned(mini_run, stage):
    found = [VERSIONS[stage], logical_hash(mini_run.artefact(stage))]
    assert PINS.get(stage) == found, f'now "{stage}": {json.dumps(found)}'
