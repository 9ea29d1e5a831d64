"""The order of training: how good the documents are, along the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gristmill.data.mix import read_order
from gristmill.data.tokens import TokenTables
from gristmill.kernels.common.files import read_json
from gristmill.recipes.report import charts
from gristmill.recipes.report.blocks import Chart, Note, Section
from gristmill.recipes.report.views import View, missing
from gristmill.recipes.report.words import plain

BINS = 40  # points a phase
PER_BIN = 8  # documents a point should stand for, at least
CELLS = 200  # resolution of the quantiles in a bin


@dataclass(frozen=True)
class Phase:
    """One phase in bins of equally many documents. ``x``: tokens trained on at a bin's middle (count)."""

    name: str
    order: str
    start: int  # tokens before the phase
    stop: int
    documents: np.ndarray  # with a score, per bin
    x: np.ndarray
    mean: np.ndarray  # of the score's quantile within the document's source, 0 worst to 1 best
    low: np.ndarray  # tenth percentile
    high: np.ndarray  # ninetieth


def section(views: Sequence[View]) -> Section:
    blocks: list = [Note(line) for line in missing(views, "tokens", "mix")]
    found = {view.number: phases(view) for view in views if view.has("tokens", "mix")}
    drawn = {number: rows for number, rows in found.items() if any(len(phase.x) for phase in rows)}
    for view in views:
        if view.number in found and view.number not in drawn:
            blocks.append(Note(f"{view.name}: no source has a score, so there is no quality to order by."))
    if drawn:
        blocks.append(_chart(views, drawn))
    return Section(
        "curriculum",
        "The order of training",
        "A shuffled phase is flat; a curriculum begins with its weakest documents and ends with its best.",
        blocks,
    )


def phases(view: View) -> list[Phase]:
    """The order, binned. Reads one shard at a time; what is kept does not grow with the corpus but for one score
    a document."""
    folder, scores = view.folder("mix"), dict(view.config("mix")["scores"])
    quantiles = _quantiles(view.folder("tokens"), scores)
    orders = {name: spec["order"] for name, spec in view.config("mix")["phases"]}
    meta = {phase["name"]: phase for phase in read_json(folder / "order.json")["phases"]}
    rows, start = [], 0
    for name, tables in _by_phase(folder):
        total = meta[name]["rows"]
        bins = max(1, min(BINS, total // PER_BIN))
        count, tokens = np.zeros(bins, np.int64), np.zeros(bins)
        sums, cells, at = np.zeros(bins), np.zeros((bins, CELLS), np.int64), 0
        for table in tables:
            which = (at + np.arange(table.num_rows)) * bins // total
            at += table.num_rows
            tokens += np.bincount(which, table["tokens"].to_numpy(), bins)
            value = _value(table, quantiles)
            known = ~np.isnan(value)
            which, value = which[known], value[known]
            count += np.bincount(which, minlength=bins)
            sums += np.bincount(which, value, bins)
            np.add.at(cells, (which, np.minimum((value * CELLS).astype(int), CELLS - 1)), 1)
        some = count > 0
        middle = start + np.cumsum(tokens) - tokens / 2
        rows.append(
            Phase(
                name,
                orders[name],
                start,
                start + meta[name]["tokens"],
                count[some],
                middle[some],
                sums[some] / count[some],
                *(_percentile(cells[some], share) for share in (0.1, 0.9)),
            )
        )
        start += meta[name]["tokens"]
    return rows


def _by_phase(folder: Path) -> Iterator[tuple[str, Iterator]]:
    """(phase, its shards); a shard never holds two phases."""
    shards = ((table["phase"][0].as_py(), table) for table in read_order(folder) if table.num_rows)
    for name, group in itertools.groupby(shards, key=lambda shard: shard[0]):
        yield name, (table for _, table in group)


def _quantiles(folder: Path, scores: dict[str, str | None]) -> dict[str, list[np.ndarray]]:
    """source -> per part, each row's share of the source's documents that score lower (ties count half)."""
    found, tables = {}, TokenTables(folder)
    for source, column in scores.items():
        if column is None or source not in tables.meta["sources"]:
            continue
        parts = [pq.read_table(path, columns=[column])[column].to_numpy() for path in tables.part_files(source)]
        values = np.concatenate(parts)
        ordered = np.sort(values[~np.isnan(values)])
        if not len(ordered):
            continue
        below = [np.searchsorted(ordered, p, "left") + np.searchsorted(ordered, p, "right") for p in parts]
        pairs = zip(parts, below, strict=True)
        found[source] = [np.where(np.isnan(p), np.nan, twice / (2 * len(ordered))) for p, twice in pairs]
    return found


def _value(table, quantiles: dict[str, list[np.ndarray]]) -> np.ndarray:
    """The quantile of each row of an order shard; NaN where its source has no score."""
    value = np.full(table.num_rows, np.nan)
    for source, parts in quantiles.items():
        mine = pc.equal(table["source"], source).to_numpy()
        part, row = table["part"].to_numpy()[mine], table["row"].to_numpy()[mine]
        first = np.cumsum([0, *map(len, parts)])
        value[mine] = np.concatenate(parts)[first[part] + row]
    return value


def _percentile(cells: np.ndarray, share: float) -> np.ndarray:
    """Per row of counts, the middle of the first cell at which ``share`` of them is reached."""
    reached = np.cumsum(cells, 1) >= share * cells.sum(1, keepdims=True)
    return (reached.argmax(1) + 0.5) / CELLS


def _chart(views: Sequence[View], drawn: dict[int, list[Phase]]) -> Chart:
    data = []
    for view in (v for v in views if v.number in drawn):
        colour = view.tone if len(views) > 1 else charts.ACCENT
        for number, phase in enumerate(drawn[view.number]):
            if len(views) == 1:
                x = [*phase.x, *phase.x[::-1]]
                band = charts.line(x, [*phase.high, *phase.low[::-1]], "middle 80 %", colour, hoverinfo="skip")
                data.append(
                    {**band, "fill": "toself", "fillcolor": f"{colour}/0.16", "line": {"width": 0}, "showlegend": False}
                )
            data.append(
                charts.line(
                    phase.x,
                    phase.mean,
                    plain(view.name),
                    colour,
                    showlegend=number == 0,
                    hovertemplate=plain(phase.name) + ": %{x:,.3s} tokens, mean quantile %{y:.2f}<extra></extra>",
                )
            )
    first = next(iter(drawn.values()))
    bands = charts.phase_bands((plain(phase.name), phase.start, phase.stop) for phase in first)
    figure = charts.figure(
        [{**trace, "x": _plain(trace["x"], 1), "y": _plain(trace["y"], 4)} for trace in data],
        320,
        x=charts.axis("tokens trained on", tickformat="~s", range=[0, max(rows[-1].stop for rows in drawn.values())]),
        y=charts.axis("quality: quantile in its source", range=[0, 1.08], tickvals=[0, 0.25, 0.5, 0.75, 1]),
        **bands,
    )
    says = "; ".join(
        f"{view.name}: "
        + ", ".join(f"{p.name} ({p.order}) {p.mean[0]:.2f} to {p.mean[-1]:.2f}" for p in drawn[view.number] if len(p.x))
        for view in views
        if view.number in drawn
    )
    caption = "Mean rank of the documents' score within their own source, 0 the worst and 1 the best, along training"
    caption += "; the band holds the middle 80 %." if len(views) == 1 else "."
    if len(views) > 1:
        caption += f" The phases marked are those of {views[min(drawn)].name}."
    return Chart(figure, f"Mean quality at the beginning and the end of each phase: {says}.", caption)


def _plain(values: Sequence[float], digits: int) -> list[float]:
    return [round(float(v), digits) for v in values]
