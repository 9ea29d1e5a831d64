"""What follows pretraining: every number the steps of post-training logged, as small curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gristmill.recipes.report import charts
from gristmill.recipes.report.blocks import Chart, Note, Section
from gristmill.recipes.report.training import metrics
from gristmill.recipes.report.views import View
from gristmill.recipes.report.words import plain

PREFIX = "posttrain."
POINTS = 400
X = "step"
MEANINGS = {  # what the steps' usual numbers are; a number of another name is drawn under its name
    "loss": "what the step minimises",
    "grad_norm": "length of the gradient before clipping",
    "lr": "learning rate",
    "tokens": "tokens learned from since the beginning",
    "tau": "temperature answers are sampled at",
    "length": "mean length of an answer (tokens)",
    "cut": "share of answers that ran into the length limit",
    "reward": "mean reward of sampled answers",
    "greedy_reward": "mean reward of the most likely answer, which sampled ones are compared with",
    "informative": "share of sampled answers whose reward differs from the most likely answer's",
}


def section(views: Sequence[View]) -> Section | None:
    """None where no run has post-training: a recipe without it lacks nothing."""
    names = list(dict.fromkeys(key for view in views for key in view.artefacts if key.startswith(PREFIX)))
    blocks: list = []
    for name in names:
        logs = {
            view.number: metrics(view.folder(name))
            for view in views
            if view.has(name) and (view.folder(name) / "metrics.jsonl").is_file()
        }
        short = name.removeprefix(PREFIX)
        keys = list(dict.fromkeys(key for log in logs.values() for key in series(log)))
        flat = {key: values.pop() for key in keys if len(values := _values(logs, key)) == 1}
        blocks += [_chart(views, short, key, logs) for key in keys if key not in flat]
        if flat:
            blocks.append(Note(f"{short}, the same throughout: {', '.join(f'{k} {v:g}' for k, v in flat.items())}."))
        if not keys:
            blocks.append(Note(f"{short} logged no numbers."))
    if not names:
        return None
    return Section("posttraining", "After pretraining", "Each step's log, one curve a number.", blocks)


def series(log: Sequence[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Name -> (step, value) of every number that a log holds; what is logged now and then keeps its own steps."""
    found: dict[str, list[tuple[float, float]]] = {}
    for at, entry in enumerate(log):
        for key, value in entry.items():
            if key != X and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                found.setdefault(key, []).append((entry.get(X, at), value))
    return found


def _values(logs: dict[int, list[dict]], key: str) -> set[float]:
    return {value for log in logs.values() for _, value in series(log).get(key, [])}


def _chart(views: Sequence[View], name: str, key: str, logs: dict[int, list[dict]]) -> Chart:
    data, ends = [], []
    for view in (v for v in views if v.number in logs):
        points = series(logs[view.number]).get(key, [])
        if not points:
            continue
        groups = [points[a:b] for a, b in charts.thin(len(points), POINTS)]
        x, y = ([sum(p[k] for p in group) / len(group) for group in groups] for k in (0, 1))
        colour = view.tone if len(views) > 1 else charts.ACCENT
        trace = charts.line(x, y, plain(view.name), colour, hovertemplate="step %{x:,.0f}: %{y:.5g}<extra></extra>")
        data.append({**trace, "mode": "lines+markers" if len(x) < 40 else "lines", "marker": {"size": 4}})
        ends.append(f"{view.name}: from {y[0]:.4g} to {y[-1]:.4g}")
    words = key.replace("_", " ")
    large = max(max(map(abs, trace["y"])) for trace in data) >= 1000  # 0.001 must not read "1m"
    axis = charts.axis(nticks=4, tickformat=".3~s" if large else ".3~g")
    figure = charts.figure(data, 190, x=charts.axis("step", nticks=5), y=axis)
    meaning = MEANINGS.get(key, f"{words} over the steps")
    says = f"{name}, {words}. {'; '.join(ends)}."
    return Chart(figure, says, f"{meaning[:1].upper()}{meaning[1:]}.", f"{name}: {words}", wide=False)
