"""The shard format: the one thing ``train`` knows of ``data``.

A packed folder holds ``pack.json`` and, per shard, ``shard-00000.tokens`` (little-endian ids, row-major,
``rows x seq_len``) and ``shard-00000.parquet`` (one row per document piece: which row it fills and from
where). Rows are in training order; phases are contiguous runs of rows.

    pack.json  {version, dtype, seq_len, vocab_size, pad_id, eos_id, rows, shards: [{name, rows}],
                phases: [{name, first_row, rows, tokens}]}
    parquet    row int64 (global), start int32, length int32, source string, document int64 (row in the
               source's token table), id string, pass int16, offset int32 (of the piece in its document),
               position int64 (in the order)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json, write_json

VERSION = 1
PIECES = pa.schema(
    [
        ("row", pa.int64()),
        ("start", pa.int32()),
        ("length", pa.int32()),
        ("source", pa.string()),
        ("document", pa.int64()),
        ("id", pa.string()),
        ("pass", pa.int16()),
        ("offset", pa.int32()),
        ("position", pa.int64()),
    ]
)


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest little-endian unsigned type that holds every id below ``vocab_size``."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class Packed:
    """Reader. ``batch(start, stop)`` is arithmetic on row numbers, so any position can be resumed from."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        try:
            meta = read_json(self.folder / "pack.json")
        except FileNotFoundError:
            raise BadInput("not a packed folder (no pack.json)", file=self.folder) from None
        if meta["version"] != VERSION:
            raise BadInput("unknown shard format version", file=self.folder / "pack.json", got=meta["version"])
        self.meta = meta
        self.seq_len: int = meta["seq_len"]
        self.vocab_size: int = meta["vocab_size"]
        self.pad_id: int = meta["pad_id"]
        self.rows: int = meta["rows"]
        self.phases: list[dict] = meta["phases"]
        self._starts = np.cumsum([0] + [s["rows"] for s in meta["shards"]])
        self._maps: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def _shard(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (memory-mapped, [rows, seq_len]) and segments (int16, same shape, -1 for padding) of shard k."""
        if k not in self._maps:
            entry = self.meta["shards"][k]
            path = self.folder / f"{entry['name']}.tokens"
            dtype = np.dtype(self.meta["dtype"])
            expected = entry["rows"] * self.seq_len * dtype.itemsize
            if path.stat().st_size != expected:
                raise BadInput("shard has the wrong size", file=path, got=path.stat().st_size, expected=str(expected))
            tokens = np.memmap(path, dtype=dtype, mode="r", shape=(entry["rows"], self.seq_len))
            pieces = pq.read_table(self.folder / f"{entry['name']}.parquet", columns=["row", "start", "length"])
            if len(self._maps) > 1:  # a run moves forward through shards: two are enough to straddle a border
                self._maps.pop(min(self._maps))
            self._maps[k] = tokens, _segments(pieces, int(self._starts[k]), entry["rows"], self.seq_len)
        return self._maps[k]

    def batch(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows [start, stop): tokens int64 and segments int16, both [stop - start, seq_len].

        ``segments`` numbers the document pieces of a row from 0; -1 marks padding. An id at or above the
        vocabulary raises, naming shard and row: never folded by a modulo.
        """
        if not 0 <= start < stop <= self.rows:
            raise IndexError(f"rows [{start}, {stop}) of {self.rows}")
        tokens, segments = [], []
        while start < stop:
            k = int(np.searchsorted(self._starts, start, side="right")) - 1
            end = min(stop, int(self._starts[k + 1]))
            t, s = self._shard(k)
            a, b = start - int(self._starts[k]), end - int(self._starts[k])
            tokens.append(t[a:b].astype(np.int64))
            segments.append(s[a:b])
            if tokens[-1].max(initial=0) >= self.vocab_size:
                row = a + int(np.argmax(tokens[-1].max(axis=1) >= self.vocab_size))
                name = self.meta["shards"][k]["name"]
                raise BadInput(
                    f"token id outside the vocabulary at row {row} of {name}.tokens",
                    file=self.folder,
                    got=int(tokens[-1].max()),
                    expected=f"below {self.vocab_size}",
                )
            start = end
        return np.concatenate(tokens), np.concatenate(segments)

    def pieces(self, start: int, stop: int) -> pa.Table:
        """The document pieces (schema ``PIECES``) that fill rows [start, stop)."""
        tables = []
        for k, entry in enumerate(self.meta["shards"]):
            if self._starts[k] < stop and self._starts[k + 1] > start:
                table = pq.read_table(self.folder / f"{entry['name']}.parquet")
                row = table["row"].to_numpy()
                tables.append(table.filter(pa.array((row >= start) & (row < stop))))
        return pa.concat_tables(tables) if tables else PIECES.empty_table()

    def find(self, doc_id: str) -> Iterator[dict]:
        """Every piece of the documents whose id begins with ``doc_id``, in training order."""
        for entry in self.meta["shards"]:
            table = pq.read_table(self.folder / f"{entry['name']}.parquet")
            for piece in table.to_pylist():
                if piece["id"].startswith(doc_id):
                    yield piece

    def phase_of(self, row: int) -> str:
        for phase in self.phases:
            if phase["first_row"] <= row < phase["first_row"] + phase["rows"]:
                return phase["name"]
        raise IndexError(f"row {row} of {self.rows}")


def _segments(pieces: pa.Table, first_row: int, rows: int, seq_len: int) -> np.ndarray:
    """Expand (row, start, length) into a [rows, seq_len] int16 map of piece numbers, -1 where padded."""
    row = pieces["row"].to_numpy() - first_row
    start, length = pieces["start"].to_numpy(), pieces["length"].to_numpy()
    first_in_row = np.searchsorted(row, np.arange(rows))
    number = np.arange(len(row)) - first_in_row[row]
    flat = np.full(rows * seq_len, -1, np.int16)
    at = np.repeat(row * seq_len + start - np.cumsum(length) + length, length) + np.arange(int(length.sum()))
    flat[at] = np.repeat(number, length)
    return flat.reshape(rows, seq_len)


class Writer:
    """Writes rows in training order; ``close`` writes ``pack.json`` last."""

    def __init__(self, folder: Path, *, seq_len: int, vocab_size: int, pad_id: int, eos_id: int, shard_rows: int):
        self.folder, self.seq_len, self.shard_rows = Path(folder), seq_len, shard_rows
        self.dtype = token_dtype(vocab_size)
        self.meta = {
            "version": VERSION,
            "dtype": self.dtype.str,
            "seq_len": seq_len,
            "vocab_size": vocab_size,
            "pad_id": pad_id,
            "eos_id": eos_id,
            "rows": 0,
            "shards": [],
            "phases": [],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tokens: list[np.ndarray] = []
        self._pieces: list[dict] = []

    def phase(self, name: str) -> None:
        """Begin a phase; it ends where the next begins."""
        self.meta["phases"].append({"name": name, "first_row": self.meta["rows"], "rows": 0, "tokens": 0})

    def row(self, tokens: np.ndarray, pieces: list[dict]) -> None:
        """Append one padded row of ``seq_len`` ids and the pieces in it (``row`` is filled in here)."""
        assert tokens.shape == (self.seq_len,)
        number = self.meta["rows"]
        self._tokens.append(tokens.astype(self.dtype))
        self._pieces.extend({**piece, "row": number} for piece in pieces)
        self.meta["rows"] += 1
        self.meta["phases"][-1]["rows"] += 1
        self.meta["phases"][-1]["tokens"] += sum(piece["length"] for piece in pieces)
        if len(self._tokens) == self.shard_rows:
            self._flush()

    def _flush(self) -> None:
        if not self._tokens:
            return
        name = f"shard-{len(self.meta['shards']):05d}"
        np.stack(self._tokens).tofile(self.folder / f"{name}.tokens")
        pq.write_table(pa.Table.from_pylist(self._pieces, PIECES), self.folder / f"{name}.parquet", compression="zstd")
        self.meta["shards"].append({"name": name, "rows": len(self._tokens)})
        self._tokens, self._pieces = [], []

    def close(self) -> None:
        self._flush()
        write_json(self.folder / "pack.json", self.meta)
