"""Split: training and validation by content hash, before anything repeats."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from gristmill.data import tables
from gristmill.kernels.common import seeds
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput


class SplitConfig(Config):
    """How much is held out."""

    validation: float = Field(0.02, gt=0, lt=1, description="share of documents held out (0-1)")


class SplitStage(Config):
    split: SplitConfig = Field(description="the recipe's block")
    seed: int = Field(description="seed of the draw")


def run(config: SplitStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"documents": scored}. Writes document tables under ``train/`` and ``validation/``.

    A document's side depends on (seed, its id) alone, so copies of a text in two sources land on one side.
    Returns the ledger of the training side by source; what is held out is counted as ``validation``.
    """
    ledger: dict[str, dict] = {}
    indexes: dict[str, dict[str, list]] = {"train": {}, "validation": {}}
    for source, parts in tables.read_index(inputs["documents"]).items():
        ledger[source] = tables.empty_ledger()
        for part in parts:
            table = pq.read_table(tables.part_path(inputs["documents"], source, part["name"]))
            held = seeds.uniform(config.seed, tables.id_keys(table["id"])) < config.split.validation
            for side, mask in (("train", ~held), ("validation", held)):
                mine = table.filter(pa.array(mask))
                tables.write_parquet(tables.part_path(out / side, source, part["name"]), mine)
                entry = {"name": part["name"], "rows": mine.num_rows, "bytes": tables.text_bytes(mine)}
                indexes[side].setdefault(source, []).append(entry)
            train, validation = indexes["train"][source][-1], indexes["validation"][source][-1]
            tables.add(
                ledger[source],
                {
                    "in": [part["rows"], part["bytes"]],
                    "kept": [train["rows"], train["bytes"]],
                    "dropped": {"validation": [validation["rows"], validation["bytes"]]},
                },
            )
    for side, index in indexes.items():
        tables.write_index(out / side, index)
    tables.check(ledger, "split")
    for source, entry in ledger.items():
        if not entry["dropped"]["validation"][0]:
            raise BadInput(
                f"no document of {source} fell into the validation split",
                key="split.validation",
                got=config.split.validation,
                expected=f"more than 1 / {entry['in'][0]} documents",
            )
    return ledger
