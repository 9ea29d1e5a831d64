"""Replay: which documents were in a step, and at which steps a document was seen."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gristmill.data.shards import Packed
from gristmill.kernels.common.errors import BadInput
from gristmill.recipes.runner.runs import Run
from gristmill.train.pretrain import rows_of_step, steps_of


def step(run: Run, number: int) -> dict[str, Any]:
    """The rows of step ``number`` (from 0), their phase, and the document pieces in them."""
    packed, per_step, rows = _packed(run)
    steps = steps_of(rows, per_step)
    if not 0 <= number < steps:
        raise BadInput("no such step", key="--step", got=number, expected=f"0 to {steps - 1}")
    start, stop = rows_of_step(number, rows, per_step)
    pieces: pa.Table = packed.pieces(start, stop)
    phases = list(dict.fromkeys(packed.phase_of(row) for row in range(start, stop)))
    return {"step": number, "rows": [start, stop], "phases": phases, "pieces": pieces.to_pylist()}


def document(run: Run, doc_id: str) -> list[dict[str, Any]]:
    """Every time a document (an id, or its beginning) was seen: step, phase, row, pass, and which tokens of it."""
    packed, per_step, rows = _packed(run)
    seen = [
        {"step": piece["row"] // per_step, "phase": packed.phase_of(piece["row"]), **piece}
        for piece in packed.find(doc_id)
        if piece["row"] < rows
    ]
    if not seen:
        raise BadInput("no document of this run has such an id (or it was never selected)", key="--doc", got=doc_id)
    return seen


def _packed(run: Run) -> tuple[Packed, int, int]:
    """The packed rows, rows per step, and how many rows the run trains on."""
    packed, train = Packed(run.artefact("pack").folder), run.recipe().train
    rows = packed.rows if train.max_tokens is None else min(packed.rows, train.max_tokens // packed.seq_len)
    return packed, train.batch_tokens // packed.seq_len, rows
