"""What all charts share: one look, in colours that are names of CSS variables.

The page's script replaces ``var(--name)`` and ``var(--name)/alpha`` by what the style sheet says, so one figure
serves light and dark.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

HUES = 10  # --c0 ... --c9 in style.css
HATCHES = ("", "/", ".", "x")  # for the eleventh source and on
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
INK, MUTED, RULE, ACCENT = "var(--ink)", "var(--muted)", "var(--rule)", "var(--accent)"

GLYPHS = {"circle": "●", "circle-open": "○", "diamond": "◆", "square": "■", "triangle-up": "▲", "cross": "✚"}
HATCHED = dict(zip(HATCHES, "■▨▦▩", strict=True))


def hue(number: int) -> str:
    return f"var(--c{number % HUES})"


def fill(number: int, alpha: float | None = None) -> dict[str, Any]:
    """A bar's ``marker``: a colour, and a pattern once the colours are used up."""
    colour = hue(number) if alpha is None else f"{hue(number)}/{alpha}"
    return {"color": colour, "pattern": {"shape": HATCHES[number // HUES % len(HATCHES)]}, "line": {"width": 0}}


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 12, "color": MUTED}},
        "gridcolor": RULE,
        "linecolor": RULE,
        "zeroline": False,
        "tickfont": {"color": MUTED, "size": 12},
        "automargin": True,
        "fixedrange": True,  # a finger that scrolls the page must not zoom a chart
        **more,
    }


def figure(data: Sequence[dict[str, Any]], height: int, *, x: dict, y: dict, **layout: Any) -> dict[str, Any]:
    """{"data", "layout"} for Plotly; ``layout`` adds to or replaces the shared look."""
    shared = {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": INK},
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": RULE, "font": {"color": INK, "family": FONT}},
        "showlegend": False,  # the page writes the key above the chart, where it wraps as text does
        "xaxis": x,
        "yaxis": y,
    }
    return {"data": list(data), "layout": {**shared, **layout}}


def key(figure: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(glyph, colour, name) of every trace that is not hidden from the key; empty where there is only one."""
    found = {}
    for trace in figure["data"]:
        if trace.get("showlegend") is False:
            continue
        if trace["type"] == "bar":
            glyph, colour = HATCHED[trace["marker"]["pattern"]["shape"]], trace["marker"]["color"]
        elif "markers" in trace["mode"] and "lines" not in trace["mode"]:
            glyph, colour = GLYPHS.get(trace["marker"]["symbol"], "✕"), trace["marker"]["color"]
        else:
            glyph, colour = "━", trace["line"]["color"]
        found[trace["name"]] = (glyph, colour.partition("/")[0], html.unescape(trace["name"]))
    return list(found.values()) if len(found) > 1 else []


def bars(labels: Sequence[str], values: Sequence[float], name: str, number: int, **more: Any) -> dict[str, Any]:
    """Horizontal bars, which leave room for words on a phone."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(labels),
        "x": list(values),
        "name": name,
        "marker": fill(number),
        **more,
    }


def line(x: Sequence[float], y: Sequence[float | None], name: str, colour: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "name": name,
        "line": {"color": colour, "width": 2},
        **more,
    }


def phase_bands(spans: Iterable[tuple[str, float, float]]) -> dict[str, Any]:
    """Layout for phases (name, start, stop on the x axis): every other one shaded, each named at its top."""
    shapes, names = [], []
    for number, (name, start, stop) in enumerate(spans):
        if number % 2:
            shapes.append(
                {
                    "type": "rect",
                    "xref": "x",
                    "yref": "paper",
                    "x0": start,
                    "x1": stop,
                    "y0": 0,
                    "y1": 1,
                    "fillcolor": f"{INK}/0.05",
                    "line": {"width": 0},
                    "layer": "below",
                }
            )
        names.append(
            {
                "x": (start + stop) / 2,
                "y": 1,
                "yref": "paper",
                "yanchor": "top",
                "text": name,
                "showarrow": False,
                "font": {"color": MUTED, "size": 11},
            }
        )
    return {"shapes": shapes, "annotations": names}


def thin(count: int, most: int) -> list[tuple[int, int]]:
    """``count`` values as at most ``most`` neighbouring groups [start, stop) of near-equal size."""
    groups = min(count, most)
    return [(k * count // groups, (k + 1) * count // groups) for k in range(groups)]
