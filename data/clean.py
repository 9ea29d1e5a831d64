"""Clean: named filters over every document, a reason for each drop."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, field_validator, model_serializer

from gristmill.data import filters, tables
from gristmill.data.engine import EngineConfig
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.errors import nearest
from gristmill.kernels.common.textschema import validator


class FilterUse(Config):
    """One filter and its settings; written ``name`` or ``{name: {setting: value}}`` in a recipe."""

    name: str = Field(description="a registered filter")
    settings: Any = Field(description="that filter's own settings")

    @model_serializer
    def _short(self) -> Any:
        given = self.settings.model_dump(exclude_defaults=True)
        return {self.name: given} if given else self.name

    @classmethod
    def parse(cls, value: Any) -> Any:
        if isinstance(value, FilterUse):
            return value
        name, settings = (value, {}) if isinstance(value, str) else _single(value)
        if name not in filters.FILTERS:
            close = nearest(name, filters.FILTERS)
            hint = f"did you mean {close!r}?" if close else f"valid: {', '.join(filters.FILTERS)}"
            raise ValueError(f"unknown filter {name!r}; {hint}")
        return cls(name=name, settings=validator(filters.FILTERS[name]).validate_python(settings or {}))


def _single(value: Any) -> tuple[str, Any]:
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"a filter is a name or {{name: settings}}, got {value!r}")
    return next(iter(value.items()))


class CleanConfig(Config):
    """Which documents are dropped before anything else looks at them."""

    filters: tuple[FilterUse, ...] = Field(
        (), description="filters in order; the first that refuses a document names the reason"
    )
    on_bad_row: Literal["strict", "skip"] = Field(
        "skip", description="unreadable rows of the raw files: strict stops at the first, skip counts them by reason"
    )

    @field_validator("filters", mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        return [FilterUse.parse(v) for v in value] if isinstance(value, (list, tuple)) else value


class CleanStage(Config):
    """Input of the stage: the block and what it needs to know of each source."""

    clean: CleanConfig = Field(description="the recipe's block")
    sources: dict[str, dict[str, str]] = Field(description="source -> {domain, lang}")
    engine: EngineConfig = execution(EngineConfig(), description="where it runs")


def run(config: CleanStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"documents": corpus}. Writes document tables; returns the ledger by source."""
    uses = [(use.name, use.settings.model_dump()) for use in config.clean.filters]
    ledger = tables.map_parts(
        config.engine,
        _clean,
        lambda source: {"filters": uses, **config.sources[source]},
        inputs["documents"],
        out,
    )
    return tables.check(ledger, "clean")


def _clean(table: pa.Table, args: dict) -> tuple[pa.Table, dict]:
    keep_if = [
        (name, filters.FILTERS[name].model_validate(settings).build(args["lang"]))
        for name, settings in args["filters"]
        if filters.applies(settings, args["domain"])
    ]
    kept, dropped = [], {}
    for text in table["text"].to_pylist():
        reason = next((f"{name}: {why}" for name, test in keep_if if (why := test(text))), None)
        kept.append(reason is None)
        if reason is not None:
            count = dropped.setdefault(reason, [0, 0])
            count[0] += 1
            count[1] += len(text.encode())
    return table.filter(pa.array(kept, pa.bool_())), dropped
