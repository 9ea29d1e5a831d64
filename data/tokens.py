"""Tokens: one token table per source, each document once.

    tokens.json                         {dtype, vocab_size, sources: {name: {documents, tokens, parts: [...]}}}
    <source>/part-00000.tokens          little-endian ids, documents end to end
    <source>/part-00000.parquet         id, part, row, offset (in the part), tokens, bytes, and every score column

A document is BOS + text + EOS. Everything that follows (mix, order, packing) refers to a document by
(source, part, row) and copies no tokens until packing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from gristmill.data import engine, tables
from gristmill.data.engine import EngineConfig
from gristmill.data.shards import token_dtype
from gristmill.data.tokenizer import Encoder
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.files import atomic, read_json, write_json


class TokensConfig(Config):
    """What is put around a document."""

    bos: bool = Field(True, description="begin each document with the BOS token, so that its first token is predicted")


class TokensStage(Config):
    tokens: TokensConfig = Field(description="the recipe's block")
    columns: tuple[str, ...] = Field(description="score columns to carry along where present")
    engine: EngineConfig = execution(EngineConfig(), description="where it runs")


def run(config: TokensStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"split", "tokenizer"}. Returns {source: {documents, bytes, tokens}}."""
    folder = inputs["split"] / "train"
    jobs = [
        {
            "source": source,
            "number": k,
            "from": str(tables.part_path(folder, source, part["name"])),
            "to": str(out / source / part["name"]),
            "tokenizer": str(inputs["tokenizer"]),
            "bos": config.tokens.bos,
            "columns": config.columns,
        }
        for source, parts in tables.read_index(folder).items()
        for k, part in enumerate(parts)
    ]
    results = engine.map_jobs(config.engine, jobs, _tokenise, "tokens: parts")
    sources: dict[str, dict] = {}
    for job, result in zip(jobs, results, strict=True):
        entry = sources.setdefault(job["source"], {"documents": 0, "tokens": 0, "bytes": 0, "parts": []})
        entry["parts"].append({"name": Path(job["to"]).name, **result})
        for unit in ("documents", "tokens", "bytes"):
            entry[unit] += result[unit]
    encoder = Encoder(inputs["tokenizer"])
    write_json(
        out / "tokens.json",
        {
            "dtype": token_dtype(encoder.vocab_size).str,
            "vocab_size": encoder.vocab_size,
            "bos_id": encoder.bos_id if config.tokens.bos else None,
            "eos_id": encoder.eos_id,
            "pad_id": encoder.pad_id,
            "sources": sources,
        },
    )
    return {name: {k: v for k, v in entry.items() if k != "parts"} for name, entry in sources.items()}


def _tokenise(job: dict) -> dict:
    encoder = Encoder(Path(job["tokenizer"]))
    table = pq.read_table(job["from"])
    dtype = token_dtype(encoder.vocab_size)
    head = [encoder.bos_id] if job["bos"] else []
    lengths, total = [], 0
    texts = table["text"].to_pylist()
    with atomic(Path(job["to"] + ".tokens")) as tmp, open(tmp, "wb") as f:
        for start in range(0, len(texts), 1024):
            for ids in encoder.encode(texts[start : start + 1024]):
                document = np.array(head + ids + [encoder.eos_id], dtype)
                document.tofile(f)
                lengths.append(len(document))
                total += len(document)
    length = np.array(lengths, np.int64)
    columns = {
        "id": table["id"],
        "part": pa.array(np.full(len(length), job["number"], np.int32)),
        "row": pa.array(np.arange(len(length), dtype=np.int32)),
        "offset": pa.array(np.cumsum(length) - length),
        "tokens": pa.array(length.astype(np.int32)),
        "bytes": pa.array([len(t.encode()) for t in texts], pa.int64()),
    }
    for name in job["columns"]:
        if name in table.column_names:
            columns[name] = table[name].cast(pa.float64())
    tables.write_parquet(Path(job["to"] + ".parquet"), pa.table(columns))
    return {"documents": len(length), "tokens": total, "bytes": int(sum(columns["bytes"].to_pylist()))}


class TokenTables:
    """Reader: the ids of any document by (source, part, row)."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.meta = read_json(self.folder / "tokens.json")
        self.first = {  # document number of each part's first row
            name: np.cumsum([0] + [p["documents"] for p in entry["parts"]])
            for name, entry in self.meta["sources"].items()
        }
        self._parts: dict[tuple[str, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def part_files(self, source: str) -> list[Path]:
        return [self.folder / source / f"{p['name']}.parquet" for p in self.meta["sources"][source]["parts"]]

    def document(self, source: str, part: int, row: int) -> np.ndarray:
        key = (source, part)
        if key not in self._parts:
            stem = self.folder / source / self.meta["sources"][source]["parts"][part]["name"]
            index = pq.read_table(f"{stem}.parquet", columns=["offset", "tokens"])
            ids = np.memmap(f"{stem}.tokens", np.dtype(self.meta["dtype"]), mode="r")
            self._parts[key] = ids, index["offset"].to_numpy(), index["tokens"].to_numpy()
        ids, offset, length = self._parts[key]
        return ids[offset[row] : offset[row] + length[row]]
