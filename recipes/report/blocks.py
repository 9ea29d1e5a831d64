"""What a section of the page is made of. Sections decide what is shown, the template how it looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Chart:
    """A Plotly figure (plain data; colours are names of CSS variables) and its two texts."""

    kind: ClassVar[str] = "chart"
    figure: dict[str, Any]
    says: str  # the text alternative: what the chart shows of this run, in one sentence
    caption: str  # how to read it, in one plain sentence
    title: str = ""
    wide: bool = True  # takes the whole width of the page


@dataclass(frozen=True)
class Table:
    """Rows of text; every column but the first ``texts`` holds numbers and is set flush right."""

    kind: ClassVar[str] = "table"
    head: list[str]
    rows: list[list[str]]
    caption: str
    texts: int = 1
    parts: frozenset[int] = frozenset()  # rows that are a part of the row above
    title: str = ""
    wide: bool = True


@dataclass(frozen=True)
class Note:
    """A sentence: mostly, what is missing and why."""

    kind: ClassVar[str] = "note"
    text: str
    wide: bool = True


@dataclass(frozen=True)
class Samples:
    """One prompt and how it was continued: ``lines`` are (who, text)."""

    kind: ClassVar[str] = "samples"
    title: str
    prompt: str
    lines: list[tuple[str, str]]
    code: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Tree:
    """Stages as rows of a graph: ``rails`` are SVG paths in units of (lane, row)."""

    kind: ClassVar[str] = "tree"
    title: str
    rows: list[dict[str, Any]]
    rails: list[str]
    lanes: int
    caption: str
    wide: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    id: str
    title: str
    lede: str
    blocks: list[Any] = field(default_factory=list)
