"""Scores of every evaluated model, side by side: a chart per task, and the table."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.recipes.report import charts
from gristmill.recipes.report.blocks import Chart, Note, Section, Table
from gristmill.recipes.report.views import View
from gristmill.recipes.report.words import plain
from gristmill.recipes.runner.scores import Row, cell, rows

LANE = 17  # pixels a model takes in a row
LOWEST = 120  # pixels of a chart, below which its axis runs into its ticks
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")


def section(views: Sequence[View]) -> Section:
    columns, looks = {}, {}
    for view in views:
        for k, (name, scores) in enumerate(view.evals().items()):
            column = f"{view.name}: {name}" if len(views) > 1 else name
            columns[column] = scores
            looks[column] = (view.tone if len(views) > 1 else charts.hue(k), SYMBOLS[k % len(SYMBOLS)])
    blocks: list = [Note(f"{view.name} has no finished evaluation yet.") for view in views if not view.evals()]
    if columns:
        tasks = _tasks(rows(columns))
        blocks += [_chart(looks, task, wide=len(tasks) == 1) for task in tasks]
        blocks.append(_table(columns))
    return Section("scores", "Scores", "What the models can do, each number with its standard error.", blocks)


def _tasks(lines: Sequence[Row]) -> list[list[Row]]:
    """Rows by task: each total with its parts."""
    found: list[list[Row]] = []
    for row in lines:
        found.append([row]) if row.depth == 0 else found[-1].append(row)
    return found


def title(total: Row) -> str:
    """A task's name and what is measured: `cloze: accuracy`."""
    metric = next(iter(total.cells.values()))["metric"].replace("_", " ")
    return f"{total.label.removesuffix(metric).strip()}: {metric}"


def _chart(looks: dict[str, tuple[str, str]], task: list[Row], wide: bool) -> Chart:
    present = [name for name in looks if any(name in row.cells for row in task)]
    data, marks = [], []
    for k, name in enumerate(present):
        shift = (k - (len(present) - 1) / 2) * 0.7 / len(present)
        colour, symbol = looks[name]
        have = [(at, row.cells[name], row) for at, row in enumerate(task) if name in row.cells]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [score["value"] for _, score, _ in have],
                "y": [at + shift for at, _, _ in have],
                "error_x": {
                    "type": "data",
                    "array": [score["stderr"] for _, score, _ in have],
                    "color": colour,
                    "thickness": 2,
                    "width": 4,
                },
                "marker": {"color": colour, "size": 9, "symbol": symbol},
                "name": plain(name),
                "customdata": [[score["stderr"], score["n"]] for _, score, _ in have],
                "hovertemplate": "%{x:.4f} ±%{customdata[0]:.4f}, n %{customdata[1]:,}<extra>%{fullData.name}</extra>",
            }
        )
    chances = [next((c["chance"] for c in row.cells.values() if c.get("chance") is not None), None) for row in task]
    for at, chance in enumerate(chances):
        if chance is not None:
            line = {"color": charts.MUTED, "width": 1.5, "dash": "dot"}
            marks.append({"type": "line", "x0": chance, "x1": chance, "y0": at - 0.45, "y1": at + 0.45, "line": line})
    total = next(iter(task[0].cells.values()))
    better = "higher is better" if total["higher_is_better"] else "lower is better"
    figure = charts.figure(
        data,
        max(LOWEST, 56 + len(task) * (16 + LANE * len(present))),
        x=charts.axis(f"{total['metric'].replace('_', ' ')} ({better})", nticks=6, rangemode="nonnegative"),
        y=charts.axis(
            tickvals=list(range(len(task))),
            ticktext=["all" if row.depth == 0 else plain(row.label) for row in task],
            range=[len(task) - 0.45, -0.55],
            showgrid=False,
        ),
        shapes=marks,
    )
    says = "; ".join(f"{name} {cell(task[0].cells.get(name))}" for name in present)
    caption = "A dot is a score, its bar one standard error to either side."
    if any(chance is not None for chance in chances):
        caption += " The dotted line is what chance would score."
    return Chart(figure, f"{title(task[0])}. {says}.", caption, title(task[0]), wide=wide)


def _table(columns: dict[str, dict]) -> Table:
    lines = rows(columns)
    return Table(
        ["score", *columns, "items"],
        [[row.label, *(cell(row.cells.get(name)) for name in columns), row.note] for row in lines],
        "Every score with its standard error, the number of items, and what chance would score where there is chance.",
        parts=frozenset(k for k, row in enumerate(lines) if row.depth),
        title="All scores",
    )
