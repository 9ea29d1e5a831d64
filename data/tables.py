"""Document tables: what every stage from ``corpus`` to ``split`` reads and writes.

    <folder>/documents.json                    {"sources": {name: {"parts": [{"name", "rows", "bytes"}]}}}
    <folder>/<source>/part-00000.parquet       id, text and further columns; sorted by id

``id`` is the first 32 hex digits of sha256(text). A part is an interval of the id space, so which part a
document lies in and where depends on its text alone: never on the order of files, nor on partitions. A
per-document stage turns part k into part k; nothing is ever shuffled for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.data import engine
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import atomic, read_json, write_json


def document_id(text: str) -> str:
    """Content id: 32 hex digits of sha256 over the UTF-8 text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def id_keys(ids: pa.Array | list[str]) -> np.ndarray:
    """The first 64 bits of each id as uint64: the key that seeded decisions about a document hash."""
    values = ids.to_pylist() if isinstance(ids, (pa.Array, pa.ChunkedArray)) else ids
    return np.fromiter((int(v[:16], 16) for v in values), np.uint64, len(values))


def part_of(doc_id: str, parts: int) -> int:
    """Which of ``parts`` equal intervals of the id space ``doc_id`` falls in."""
    return int(doc_id[:8], 16) * parts >> 32


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a parquet file atomically; the bytes depend on the table alone."""
    with atomic(path) as tmp:
        pq.write_table(table.combine_chunks(), tmp, compression="zstd", row_group_size=1 << 16)


def text_bytes(table: pa.Table) -> int:
    return sum(len(t.encode()) for t in table["text"].to_pylist())


def read_index(folder: Path) -> dict[str, list[dict]]:
    """source -> its parts ``{"name", "rows", "bytes"}``."""
    return {name: entry["parts"] for name, entry in read_json(Path(folder) / "documents.json")["sources"].items()}


def write_index(folder: Path, sources: dict[str, list[dict]]) -> None:
    write_json(Path(folder) / "documents.json", {"sources": {n: {"parts": p} for n, p in sorted(sources.items())}})


def part_name(number: int) -> str:
    return f"part-{number:05d}"


def part_path(folder: Path, source: str, part: str) -> Path:
    return Path(folder) / source / f"{part}.parquet"


def map_parts(
    config: engine.EngineConfig,
    function: Callable[[pa.Table, dict], tuple[pa.Table, dict]],
    source_args: Callable[[str], dict],
    folder: Path,
    out: Path,
) -> dict[str, dict]:
    """Run a per-document ``function(table, args) -> (kept, dropped)`` on every part; returns the ledger.

    ``source_args(source)`` is the plain-JSON argument every part of that source gets; ``dropped`` maps a
    reason to [documents, bytes]. Writes the document tables and their index under ``out``.
    """
    index = read_index(folder)
    jobs = [
        {
            "source": source,
            "part": part["name"],
            "from": str(part_path(folder, source, part["name"])),
            "to": str(part_path(out, source, part["name"])),
            "args": source_args(source),
        }
        for source, parts in index.items()
        for part in parts
    ]
    stage = function.__module__.rpartition(".")[2]
    results = engine.map_jobs(config, jobs, partial(_map_part, function), f"{stage}: parts")
    sources: dict[str, list[dict]] = {name: [] for name in index}
    ledger: dict[str, dict] = {name: empty_ledger() for name in index}
    for job, result in zip(jobs, results, strict=True):
        sources[job["source"]].append({"name": job["part"], "rows": result["kept"][0], "bytes": result["kept"][1]})
        add(ledger[job["source"]], result)
    write_index(out, sources)
    return ledger


def _map_part(function: Callable, job: dict) -> dict:
    table = pq.read_table(job["from"])
    kept, dropped = function(table, job["args"])
    write_parquet(Path(job["to"]), kept)
    return {
        "in": [table.num_rows, text_bytes(table)],
        "kept": [kept.num_rows, text_bytes(kept)],
        "dropped": dropped,
    }


# -- the ledger: per source, what came in, what was kept, what was dropped and why ------------------------


def empty_ledger() -> dict:
    return {"in": [0, 0], "kept": [0, 0], "dropped": {}}


def add(total: dict, part: dict) -> None:
    """Add a part's [documents, bytes] counts into ``total`` in place."""
    for side in ("in", "kept"):
        total[side] = [a + b for a, b in zip(total[side], part[side], strict=True)]
    for reason, counts in part["dropped"].items():
        have = total["dropped"].get(reason, [0, 0])
        total["dropped"][reason] = [a + b for a, b in zip(have, counts, strict=True)]


def check(ledger: dict[str, dict], stage: str) -> dict[str, dict]:
    """Raise unless in = kept + dropped for every source, and unless something is left of each."""
    for source, entry in ledger.items():
        for unit, k in (("documents", 0), ("bytes", 1)):
            gone = sum(counts[k] for counts in entry["dropped"].values())
            if entry["in"][k] != entry["kept"][k] + gone:
                raise AssertionError(f"{stage}: {source}: {unit} do not add up: {entry}")
        if entry["kept"][0] == 0:
            worst = max(entry["dropped"], key=lambda r: entry["dropped"][r][0], default="nothing came in")
            raise BadInput(
                f"no document is left after {stage} (most dropped by: {worst})",
                key=f"sources.{source}",
                got=entry["in"][0],
                expected="at least one document",
            )
        entry["dropped"] = dict(sorted(entry["dropped"].items()))
    return ledger
