"""Pack: the order's documents into rows of ``seq_len`` tokens, in training order.

Every token is packed, truncated by name, or it is padding; the ledger adds up. Phases begin on a new row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from gristmill.data.mix import read_order
from gristmill.data.shards import Writer
from gristmill.data.tokens import TokenTables
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.files import read_json
from gristmill.kernels.common.progress import bar


class PackConfig(Config):
    """How documents share rows."""

    seq_len: int = Field(512, ge=8, le=1 << 20, description="tokens a row (count)")
    method: Literal["best_fit", "concat"] = Field(
        "best_fit", description="best_fit: whole pieces, least waste; concat: end to end, cut at row ends"
    )
    long_document: Literal["split", "truncate"] = Field(
        "split", description="a document longer than a row: split over rows, or keep its first row"
    )
    buffer: int = Field(
        64, ge=1, description="rows open at once for best_fit; bounds how far a document can move (rows)"
    )
    shard_rows: int = Field(8192, ge=1, description="rows a shard (count)")


class PackStage(Config):
    pack: PackConfig = Field(description="the recipe's block")


class Piece(NamedTuple):
    """A stretch of one document (a row of the order): tokens [offset, offset + length)."""

    doc: Any
    offset: int
    length: int


Row = list[Piece]


def cut(doc: Any, length: int, seq_len: int, policy: str) -> tuple[list[Piece], int]:
    """A document's pieces of at most ``seq_len`` tokens, and how many tokens were truncated."""
    if length <= seq_len or policy == "truncate":
        return [Piece(doc, 0, min(length, seq_len))], max(0, length - seq_len)
    return [Piece(doc, a, min(seq_len, length - a)) for a in range(0, length, seq_len)], 0


def best_fit(pieces: Iterator[Piece], seq_len: int, buffer: int) -> Iterator[Row]:
    """Each piece goes to the open row with the least room that still holds it; else to a new row.

    A full row is emitted at once; the oldest open one when more than ``buffer`` would be open, and when ``buffer``
    rows were emitted since it was opened. So no row comes out more than ``buffer`` places from where it was opened,
    and packing always ends.
    """
    rows: list[Row] = []
    room: list[int] = []
    born: list[int] = []  # rows emitted before this one was opened
    emitted = 0

    def emit(k: int) -> Row:
        nonlocal emitted
        emitted += 1
        del room[k], born[k]
        return rows.pop(k)

    for piece in pieces:
        fits = [(space, k) for k, space in enumerate(room) if space >= piece.length]
        if fits:
            _, k = min(fits)
        else:
            if len(rows) == buffer:
                yield emit(0)
            rows.append([])
            room.append(seq_len)
            born.append(emitted)
            k = len(rows) - 1
        rows[k].append(piece)
        room[k] -= piece.length
        if room[k] == 0:
            yield emit(k)
        while rows and emitted - born[0] >= buffer:
            yield emit(0)
    yield from rows


def concat(pieces: Iterator[Piece], seq_len: int, buffer: int) -> Iterator[Row]:
    """Pieces end to end, cut wherever a row ends; only the last row of a phase is padded."""
    row, room = [], seq_len
    for piece in pieces:
        while piece.length >= room:
            row.append(Piece(piece.doc, piece.offset, room))
            yield row
            piece = Piece(piece.doc, piece.offset + room, piece.length - room)
            row, room = [], seq_len
        if piece.length:
            row.append(piece)
            room -= piece.length
    if row:
        yield row


METHODS: dict[str, Callable[[Iterator[Piece], int, int], Iterator[Row]]] = {"best_fit": best_fit, "concat": concat}


def run(config: PackStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"tokens", "mix"}. Writes the shard format; returns {tokens: {in, packed, truncated, padding}}."""
    spec, token_tables = config.pack, TokenTables(inputs["tokens"])
    meta = token_tables.meta
    writer = Writer(
        out,
        seq_len=spec.seq_len,
        vocab_size=meta["vocab_size"],
        pad_id=meta["pad_id"],
        eos_id=meta["eos_id"],
        shard_rows=spec.shard_rows,
    )
    ledger = {"in": 0, "packed": 0, "truncated": 0, "padding": 0}
    with bar("pack", read_json(inputs["mix"] / "order.json")["rows"]) as advance:
        for phase in read_json(inputs["mix"] / "order.json")["phases"]:
            writer.phase(phase["name"])
            pieces = _pieces(inputs["mix"], phase["name"], spec, ledger, advance)
            for row in METHODS[spec.method](pieces, spec.seq_len, spec.buffer):
                tokens = np.full(spec.seq_len, meta["pad_id"], np.int64)
                entries, at = [], 0
                for piece in row:
                    ids = token_tables.document(piece.doc["source"], piece.doc["part"], piece.doc["row"])
                    tokens[at : at + piece.length] = ids[piece.offset : piece.offset + piece.length]
                    entries.append(_entry(piece, at, token_tables))
                    at += piece.length
                ledger["packed"] += at
                ledger["padding"] += spec.seq_len - at
                writer.row(tokens, entries)
    writer.close()
    assert ledger["in"] == ledger["packed"] + ledger["truncated"], ledger
    assert writer.meta["rows"] * spec.seq_len == ledger["packed"] + ledger["padding"], ledger
    return {"tokens": ledger, "rows": writer.meta["rows"]}


def _entry(piece: Piece, at: int, token_tables: TokenTables) -> dict:
    doc = piece.doc
    return {
        "start": at,
        "length": piece.length,
        "source": doc["source"],
        "document": int(token_tables.first[doc["source"]][doc["part"]]) + doc["row"],
        "id": doc["id"],
        "pass": doc["pass"],
        "offset": piece.offset,
        "position": doc["position"],
    }


def _pieces(folder: Path, phase: str, spec: PackConfig, ledger: dict, advance: Callable) -> Iterator[Piece]:
    """The phase's documents as pieces, in training order; counts tokens in and truncated."""
    for doc in _documents(folder, phase):
        ledger["in"] += doc["tokens"]
        if spec.method == "concat" and spec.long_document == "split":
            yield Piece(doc, 0, doc["tokens"])  # rows cut it
        else:
            pieces, lost = cut(doc, doc["tokens"], spec.seq_len, spec.long_document)
            ledger["truncated"] += lost
            yield from pieces
        advance(1)


def _documents(folder: Path, phase: str) -> Iterator[dict]:
    for table in read_order(folder):
        if table.num_rows and table["phase"][0].as_py() == phase:
            for batch in table.to_batches(max_chunksize=8192):
                yield from batch.to_pylist()
