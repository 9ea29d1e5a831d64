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

    A document's side depends on (seed, its id) alone, so copies of a text in two sources land on one side, and a small
    source may have none held out. Raises BadInput for a domain of which nothing is. Returns the ledger of the
    training side by source; what is held out is counted as ``validation``.
    """
    domains: dict[str, list[int]] = {}  # domain -> documents, documents held out
    ledger: dict[str, dict] = {}
    indexes: dict[str, dict[str, list]] = {"train": {}, "validation": {}}
    for source, parts in tables.read_index(inputs["documents"]).items():
        ledger[source] = tables.empty_ledger()
        for part in parts:
            table = pq.read_table(tables.part_path(inputs["documents"], source, part["name"]))
            domain = table["domain"][0].as_py() if table.num_rows else None
            held = seeds.uniform(config.seed, tables.id_keys(table["id"])) < config.split.validation
            for side, mask in (("train", ~held), ("validation", held)):
                mine = table.filter(pa.array(mask))
                tables.write_parquet(tables.part_path(out / side, source, part["name"]), mine)
                entry = {"name": part["name"], "rows": mine.num_rows, "bytes": tables.text_bytes(mine)}
                indexes[side].setdefault(source, []).append(entry)
            train, validation = indexes["train"][source][-1], indexes["validation"][source][-1]
            if domain is not None:
                count = domains.setdefault(domain, [0, 0])
                count[0], count[1] = count[0] + part["rows"], count[1] + validation["rows"]
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
    for domain, (documents, held_out) in domains.items():
        if not held_out:
            raise BadInput(
                f"no document of domain {domain} fell into the validation split",
                key="split.validation",
                got=config.split.validation,
                expected=f"more than 1 / {documents} documents",
            )
    return ledger
