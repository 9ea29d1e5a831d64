"""Score: a quality column per scorer, by which sources are later selected and ordered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pydantic import Field

from gristmill.data import tables
from gristmill.data.engine import EngineConfig
from gristmill.data.heuristics import HeuristicsConfig, heuristic_score
from gristmill.kernels.common.config import Config, execution


class ScoreConfig(Config):
    """One entry per scorer; each adds a float64 column of its own name, larger is better."""

    heuristics: HeuristicsConfig | None = Field(None, description="surface statistics; needs no model")


class ScoreStage(Config):
    score: ScoreConfig = Field(description="the recipe's block")
    sources: dict[str, dict[str, str]] = Field(description="source -> {domain, lang}")
    engine: EngineConfig = execution(EngineConfig(), description="where it runs")


# scorer name -> function(text, settings, {domain, lang}) -> float
SCORERS: dict[str, Callable[[str, dict, dict], float]] = {"heuristics": heuristic_score}


def names(config: ScoreConfig) -> list[str]:
    """The score columns a block adds, in order."""
    return [name for name in SCORERS if getattr(config, name) is not None]


def run(config: ScoreStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"documents": deduplicated}. Writes the same document tables with score columns added."""
    settings = {name: getattr(config.score, name).model_dump() for name in names(config.score)}
    ledger = tables.map_parts(
        config.engine, _score, lambda s: {"scorers": settings, **config.sources[s]}, inputs["documents"], out
    )
    return tables.check(ledger, "score")


def _score(table: pa.Table, args: dict) -> tuple[pa.Table, dict]:
    for name, settings in args["scorers"].items():
        values = [SCORERS[name](text, settings, args) for text in table["text"].to_pylist()]
        table = table.append_column(name, pa.array(values, pa.float64()))
    return table, {}
