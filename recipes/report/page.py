"""The page: sections in order, one template, one file with everything in it.

    runs/<name>/report.html               of one run
    runs/<name>/report-vs-<other>.html    of two

Written again only when an artefact, the release or this package changed: the page carries the hash of all three.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from gristmill.kernels.common.files import atomic, digest, file_hash, walk
from gristmill.recipes.report import (
    charts,
    comparison,
    curriculum,
    funnel,
    ledger,
    mixture,
    posttraining,
    provenance,
    samples,
    scores,
    training,
)
from gristmill.recipes.report.blocks import Section
from gristmill.recipes.report.headline import headline
from gristmill.recipes.report.views import View, open_views
from gristmill.recipes.runner.release import FOLDER
from gristmill.recipes.runner.runs import Run, say

HERE = Path(__file__).resolve().parent
HEAD = 4096  # bytes of a page in which its key stands
# a new section is one file and its place here; one that returns None has nothing to say of these runs
SECTIONS: tuple[Callable[[Sequence[View]], Section | None], ...] = (
    comparison.section,
    scores.section,
    training.section,
    mixture.section,
    curriculum.section,
    funnel.section,
    samples.section,
    posttraining.section,
    ledger.section,
    provenance.section,
)


def report(runs: Sequence[Run]) -> Path:
    """Write the page of one run, or of two beside each other, into the first one's folder; returns its path.

    Done already when it shows these very artefacts. Raises BadInput for a run with no finished stage.
    """
    views = open_views(runs)
    name = "report.html" if len(runs) == 1 else f"report-vs-{runs[1].name}.html"
    path = runs[0].folder / name
    key = _key(views)
    if path.is_file() and key in _head(path):
        say(f"report     cached    {path}")
        return path
    say("report     running")
    text = render(views, key)
    with atomic(path) as tmp:
        tmp.write_text(text, encoding="utf-8")
    say(f"report     done      {path}")
    return path


def render(views: Sequence[View], key: str) -> str:
    """The page's text: a function of the artefacts (and of the samples drawn from them), nothing else."""
    from plotly.offline import get_plotlyjs

    made = [part for make in SECTIONS if (part := make(views)) is not None]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html").render(
        title=" and ".join(view.name for view in views),
        key=key,
        heads=[headline(view) for view in views],
        sections=made,
        figure=figure_json,
        legend=charts.key,
        style=Markup((HERE / "style.css").read_text("utf-8")),
        script=Markup((HERE / "draw.js").read_text("utf-8")),
        plotly=Markup(get_plotlyjs()),
    )


def figure_json(figure: dict[str, Any]) -> Markup:
    """A figure for a script element: no `<` of the data can end it."""
    text = json.dumps(figure, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _head(path: Path) -> str:
    with open(path, "rb") as f:
        return f.read(HEAD).decode("utf-8", "replace")


def _key(views: Sequence[View]) -> str:
    """Of the artefacts with their provenance, which the page shows, the release's check, and this package."""
    code = {path: file_hash(HERE / path) for path in walk(HERE) if "__pycache__" not in path}
    shown = []
    for view in views:
        parity = view.run.folder / FOLDER / "gristmill" / "parity.json"
        shown.append(
            {
                "name": view.name,
                "recipe": view.recipe,
                "stages": {key: digest(artefact.manifest) for key, artefact in view.artefacts.items()},
                "release": file_hash(parity) if parity.is_file() else None,
            }
        )
    return digest({"code": code, "runs": shown})
