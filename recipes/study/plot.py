"""A study as one SVG file, nothing outside it: above, what every variant scored; below, the differences compared.

Each seed is a dot, and a line joins what one seed scored: where the lines run side by side, the difference is the
variants' and not the seeds'. Bars: one standard error around a variant's mean; the 95 % interval around a difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, LABEL, RIGHT, ROW, TOP, AXIS = 760, 300, 24, 34, 30, 44  # px
STYLE = """
svg { font: 13px system-ui, sans-serif; background: #fff; }
text { fill: #222; } .quiet { fill: #666; font-size: 12px; } .grid { stroke: #ddd; } .zero { stroke: #888; }
.pair { stroke: #9ab; fill: none; opacity: .7; } .dot { fill: #1f77b4; opacity: .8; }
.bar { stroke: #d1495b; stroke-width: 2; } .mean { fill: #d1495b; }
@media (prefers-color-scheme: dark) {
  svg { background: #16181d; } text { fill: #ddd; } .quiet { fill: #999; } .grid { stroke: #333; }
  .zero { stroke: #777; } .pair { stroke: #567; } .dot { fill: #6db3f2; } .bar { stroke: #ff8fa3; }
  .mean { fill: #ff8fa3; }
}
"""


@dataclass(frozen=True)
class Row:
    """One line of a panel: ``points``: seed -> value."""

    label: tuple[str, ...]
    points: dict[str, float]
    mean: float
    low: float | None
    high: float | None


def svg(results: dict[str, Any]) -> str:
    """The picture of what ``results.collect`` returned."""
    scores = [
        Row(
            (name,),
            {str(arm["seed"]): arm["value"] for arm in results["arms"] if arm["variant"] == name},
            e["mean"],
            None if e["stderr"] is None else e["mean"] - e["stderr"],
            None if e["stderr"] is None else e["mean"] + e["stderr"],
        )
        for name, e in results["variants"].items()
    ]
    differences = [
        Row((c["left"], f"minus {c['right']}"), c["by_seed"], c["mean"], c["low"], c["high"])
        for c in results["comparisons"]
    ]
    direction = "higher is better" if results["higher_is_better"] else "lower is better"
    title = f"{results['study']['name']}: {results['unit']}, {direction}"
    upper, height = _panel(scores, title, TOP, joined=True)
    lower, end = _panel(differences, "differences within a seed", height + TOP, joined=False)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {end:.0f}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", f"<title>{escape(title)}</title>", *upper, *lower, "</svg>\n"])


def _panel(rows: Sequence[Row], title: str, top: float, joined: bool) -> tuple[list[str], float]:
    """(elements, lower edge). A panel that is not ``joined`` is one of differences and shows where zero is."""
    values = [v for row in rows for v in (*row.points.values(), row.low, row.high) if v is not None]
    values += [] if joined else [0.0]
    ticks = _ticks(min(values), max(values))
    first, last = min(ticks[0], *values), max(ticks[-1], *values)
    scale = (WIDTH - LABEL - RIGHT) / (last - first)

    def x(value: float) -> float:
        return LABEL + (value - first) * scale

    bottom = top + ROW * (len(rows) + 0.5)
    out = [f'<text x="8" y="{top - 10}" font-weight="600">{escape(title)}</text>']
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    for tick in ticks:
        kind = "zero" if tick == 0 and not joined else "grid"
        out.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{bottom}"/>')
        text = f"{tick:.{digits}f}".replace("-", "−")
        out.append(f'<text class="quiet" x="{x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    height = [top + ROW * (k + 0.75) for k in range(len(rows))]
    if joined:
        for seed in rows[0].points:
            path = " ".join(f"{x(row.points[seed]):.1f},{y:.1f}" for row, y in zip(rows, height, strict=True))
            out.append(f'<polyline class="pair" points="{path}"/>')
    for row, y in zip(rows, height, strict=True):
        for k, line in enumerate(row.label):
            shift = 4 + 14 * (k - (len(row.label) - 1) / 2)
            style = "" if k == 0 else ' class="quiet"'
            out.append(f'<text{style} x="8" y="{y + shift:.1f}">{escape(_short(line))}</text>')
        if row.low is not None:
            out.append(f'<line class="bar" x1="{x(row.low):.1f}" x2="{x(row.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<rect class="mean" x="{x(row.mean) - 2:.1f}" y="{y - 8:.1f}" width="4" height="16"/>')
        for seed, value in row.points.items():
            tip = f"<title>seed {escape(seed)}: {value:.5f}</title>"
            out.append(f'<circle class="dot" cx="{x(value):.1f}" cy="{y:.1f}" r="4">{tip}</circle>')
    return out, bottom + AXIS


def _short(label: str, most: int = 42) -> str:
    """As much of a label as fits beside the panel."""
    return label if len(label) <= most else label[: most - 1] + "…"


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) inside [low, high], at least two."""
    span = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / about))
    step = next(power * k for k in (1, 2, 5, 10) if span / (power * k) <= about)
    first = math.floor(low / step)
    last = max(math.ceil(high / step), first + 1)
    return [k * step for k in range(first, last + 1)]
