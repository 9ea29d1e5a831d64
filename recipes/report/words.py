"""Numbers as people read them, and text as Plotly may draw it."""

from __future__ import annotations

from typing import Any

UNITS = ("", "k", "M", "B", "T")
TIMES = ((86400, "d"), (3600, "h"), (60, "min"))


def count(value: float) -> str:
    """Three significant digits and a unit: 987k, 3.15M, 2B."""
    for unit in UNITS:
        if abs(value) < 999.5 or unit == UNITS[-1]:
            return (f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}") + unit
        value /= 1000
    raise AssertionError("unreachable")


def whole(value: int) -> str:
    """All digits, in threes: 987,123."""
    return f"{value:,}"


def size(value: float) -> str:
    """Bytes: 512 B, 1.21 MB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            return f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def share(value: float) -> str:
    """A share as a percentage; what is there but below a tenth of a percent says so."""
    return "< 0.1 %" if 0 < value < 0.001 else f"{100 * value:.1f} %"


def duration(seconds: float) -> str:
    """Two units at most: 120 ms, 2.5 s, 42 s, 3 min 21 s, 2 h 5 min."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    units = [*TIMES, (1, "s")]
    for (length, unit), (below, smaller) in zip(units, units[1:], strict=False):
        if seconds >= length - below / 2:
            many, rest = divmod(round(seconds / below), length // below)
            return f"{many} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError("unreachable")


def several(number: int, what: str) -> str:
    """1 layer, 2 layers."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def setting(value: Any) -> str:
    """A recipe's value as it would be written there."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def plain(text: object) -> str:
    """Text that Plotly, which reads a subset of HTML, draws as it stands."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
