"""The training run: loss and learning rate over the steps, and the raw and the merged model at its end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gristmill.kernels.common.files import read_json
from gristmill.recipes.report import charts
from gristmill.recipes.report.blocks import Chart, Note, Section
from gristmill.recipes.report.views import View, missing
from gristmill.recipes.report.words import count, plain, whole

POINTS = 1500  # a longer run is drawn in means of neighbouring steps
WINDOWS = 60  # the smooth line is the mean over a phase's steps within 1/60 of the run
OF = {"pretrain": "raw", "merge": "merged"}


def section(views: Sequence[View]) -> Section:
    blocks: list = [Note(line) for line in missing(views, "pretrain")]
    trained = [view for view in views if view.has("pretrain")]
    if trained:
        blocks.append(_chart(views, trained))
    lede = "Loss and learning rate over the steps, and what the model scores before and after merging its checkpoints."
    return Section("training", "Training", lede, blocks)


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a stage's metrics.jsonl."""
    with open(folder / "metrics.jsonl", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def spans(lines: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """(phase, its first step, the step after its last); a step that two phases share counts to the earlier."""
    found: list[tuple[str, int, int]] = []
    for line in lines:
        name = line["phases"][0]
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1], line["step"] + 1)
        else:
            found.append((name, line["step"], line["step"] + 1))
    return found


def smooth(lines: Sequence[dict[str, Any]]) -> list[float | None]:
    """Centred mean of the loss, which does not reach across the border of a phase: what changes there is no noise."""
    reach, values = max(1, len(lines) // (2 * WINDOWS)), []
    first = lines[0]["step"]
    for _, start, stop in spans(lines):
        part = [line["loss"] for line in lines[start - first : stop - first]]
        for k in range(len(part)):
            near = [v for v in part[max(0, k - reach) : k + reach + 1] if v is not None]
            values.append(sum(near) / len(near) if near else None)
    return values


def checkpoints(view: View) -> list[int]:
    """Steps done at each checkpoint, in order."""
    paths = (entry["path"] for entry in view.artefacts["pretrain"].manifest["outputs"])
    found = (re.fullmatch(r"checkpoints/step-(\d+)/model\.safetensors", path) for path in paths)
    return sorted(int(match.group(1)) for match in found if match)


def evaluated(view: View) -> list[dict[str, Any]]:
    """Bits per byte of the raw and the merged model: {"name", "of", "value", "stderr", "step", "first", "last"}.

    A merged model stands at the weighted mean step of its checkpoints, from ``first`` to ``last``.
    """
    last, points = view.ledger("pretrain")["steps"], []
    for name, scores in view.evals().items():
        of = view.config(f"eval.{name}")["eval"]["of"]
        if of not in OF or "bpb" not in scores["tasks"]:
            continue
        place = {"step": last, "first": last, "last": last}
        if of == "merge":
            used = read_json(view.folder("merge") / "merge.json")["checkpoints"]
            mean = sum(c["step"] * c["weight"] for c in used) / sum(c["weight"] for c in used)
            place = {"step": mean, "first": used[0]["step"], "last": used[-1]["step"]}
        score = scores["tasks"]["bpb"]
        points.append({"name": name, "of": of, "value": score["value"], "stderr": score["stderr"], **place})
    return points


def _chart(views: Sequence[View], trained: Sequence[View]) -> Chart:
    data, says, both = [], [], len(views) > 1
    logs = {view.number: metrics(view.folder("pretrain")) for view in trained}
    points = {view.number: evaluated(view) for view in trained}
    panel = any(points.values())
    for view in trained:
        lines, colour = logs[view.number], view.tone if both else charts.ACCENT
        data += _curves(view, lines, colour, both)
        for point in points[view.number]:
            data.append(_point(view, point, colour, both))
        if panel:
            data.append(_rug(view, colour))
        flat = [value for value in smooth(lines) if value is not None]
        says.append(_says(view, lines, flat, points[view.number]))
    first = trained[0]
    layout = charts.phase_bands((plain(name), start, stop) for name, start, stop in spans(logs[first.number]))
    tops = [("loss, nats a token", 1.0), ("bits per byte, held out", 0.38), ("learning rate", 0.13)]
    if panel:
        layout["yaxis2"] = charts.axis(domain=[0.2, 0.38], nticks=4)
    else:
        del tops[1]
    layout["yaxis3"] = charts.axis(domain=[0, 0.13], tickformat=".2~g", nticks=3, rangemode="tozero")
    layout["annotations"] += [_heading(text, top) for text, top in tops]
    end = max(log[-1]["step"] + 1 for log in logs.values())
    figure = charts.figure(
        data,
        600 if panel else 480,
        x=charts.axis("step", range=[0, 1.03 * end], anchor="y3", tickformat="~s"),
        y=charts.axis(domain=[0.46 if panel else 0.21, 1]),
        hovermode="closest",
        margin={"l": 8, "r": 8, "t": 22, "b": 8},
        **layout,
    )
    caption = (
        "The loss of each step's text before it is learned from, faint, and its mean over nearby steps; it may jump "
        "where a phase brings other text."
    )
    if panel:
        caption += (
            " Bits per byte, lower is better, are of held-out text, with one standard error: ○ the raw model, ◆ the "
            "merged one, at the mean step of the checkpoints its bar spans; the ticks are all checkpoints."
        )
    if both:
        caption += f" The phases marked are those of {first.name}."
    return Chart(figure, " ".join(says), caption)


def _heading(text: str, top: float) -> dict[str, Any]:
    """Over a panel rather than along its axis: a phone has no width to spare."""
    return {
        "text": text,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": top,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": charts.MUTED, "size": 11},
    }


def _curves(view: View, lines: list[dict], colour: str, both: bool) -> list[dict]:
    groups = charts.thin(len(lines), POINTS)
    step = [lines[a]["step"] + (b - a - 1) / 2 for a, b in groups]
    tokens = [lines[b - 1]["tokens"] for _, b in groups]
    raw = [_mean([line["loss"] for line in lines[a:b]]) for a, b in groups]
    fine = smooth(lines)
    calm = [_mean(fine[a:b]) for a, b in groups]
    name = plain(f"{view.name}: loss" if both else "loss, mean")
    hover = "step %{x:,.0f}, %{customdata:.3s} tokens: %{y:.3f}<extra></extra>"
    curves = [
        charts.line(step, _round(calm), name, colour, customdata=tokens, hovertemplate=hover, zorder=2),
        charts.line(
            step,
            [lines[b - 1]["lr"] for _, b in groups],
            "learning rate",
            colour,
            yaxis="y3",
            showlegend=False,
            hovertemplate="step %{x:,.0f}: %{y:.2e}<extra></extra>",
        ),
    ]
    curves[1]["line"]["width"] = 1.5
    faint = charts.line(step, _round(raw), "loss, each step", f"{colour}/0.3", hoverinfo="skip", showlegend=not both)
    faint["line"]["width"] = 1
    curves.insert(0, faint)
    skipped = [line["step"] for line in lines if line["skipped"]]
    if skipped:
        level = min(v for v in calm if v is not None)
        curves.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": skipped,
                "y": [level] * len(skipped),
                "name": plain(f"{view.name}: skipped" if both else "skipped step"),
                "marker": {"symbol": "x", "color": "var(--bad)", "size": 7},
                "hovertemplate": "step %{x:,} was skipped: no usable gradient<extra></extra>",
            }
        )
    return curves


def _point(view: View, point: dict, colour: str, both: bool) -> dict:
    merged = point["of"] == "merge"
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [point["step"]],
        "y": [point["value"]],
        "yaxis": "y2",
        "error_y": {"type": "data", "array": [point["stderr"]], "thickness": 1.5, "width": 4, "color": colour},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [point["last"] - point["step"]],
            "arrayminus": [point["step"] - point["first"]],
            "thickness": 1.5,
            "width": 0,
            "color": colour,
            "visible": merged,
        },
        "name": plain(f"{point['name']} {point['value']:.3f}"),
        "marker": {
            "size": 10,
            "symbol": "diamond" if merged else "circle-open",
            "color": colour,
            "line": {"width": 2, "color": colour},
        },
        "showlegend": not both,
        "hovertemplate": plain(point["name"]) + f": %{{y:.4f}} ±{point['stderr']:.4f}<extra></extra>",
    }


def _rug(view: View, colour: str) -> dict:
    steps = checkpoints(view)
    low = min(p["value"] - 2 * p["stderr"] for p in evaluated(view)) if evaluated(view) else 0
    return {
        "type": "scatter",
        "mode": "markers",
        "x": steps,
        "y": [low] * len(steps),
        "yaxis": "y2",
        "marker": {"symbol": "line-ns-open", "size": 8, "color": f"{colour}/0.7", "line": {"width": 1.5}},
        "name": "checkpoints",
        "showlegend": False,
        "hovertemplate": "checkpoint after step %{x:,}<extra></extra>",
    }


def _says(view: View, lines: list[dict], flat: list[float], points: list[dict]) -> str:
    ledger = view.ledger("pretrain")
    text = f"{view.name}: the loss goes from {flat[0]:.2f} to {flat[-1]:.2f} in {whole(len(lines))} steps "
    text += f"({count(ledger['tokens']['seen'])} tokens), {whole(ledger['skipped'])} of them skipped."
    for point in points:
        text += f" Bits per byte of {point['name']}: {point['value']:.3f} ±{point['stderr']:.3f}."
    return text


def _mean(values: Sequence[float | None]) -> float | None:
    some = [value for value in values if value is not None]
    return sum(some) / len(some) if some else None


def _round(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
