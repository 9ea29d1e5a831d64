"""A run as the report sees it: the finished artefacts, however far the run has got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json
from gristmill.recipes.runner.runs import RUN_FILE, Run
from gristmill.recipes.runner.store import Artefact


@dataclass(frozen=True)
class View:
    """One of the page's one or two runs."""

    run: Run
    name: str
    number: int  # 0, or 1 for the run it is compared with
    artefacts: dict[str, Artefact]  # stage -> artefact, in the order of the graph

    def has(self, *keys: str) -> bool:
        return all(key in self.artefacts for key in keys)

    def folder(self, key: str) -> Path:
        return self.artefacts[key].folder

    def ledger(self, key: str) -> dict[str, Any]:
        return self.artefacts[key].manifest["ledger"]

    def config(self, key: str) -> dict[str, Any]:
        return self.artefacts[key].manifest["config"]

    @property
    def recipe(self) -> dict[str, Any]:
        """The resolved recipe as plain data: a report also shows runs of an older version's recipes."""
        return self.run.record["recipe"]

    @property
    def tone(self) -> str:
        """The run's colour where two are drawn in one chart."""
        return f"var(--run{self.number})"

    def evals(self) -> dict[str, dict[str, Any]]:
        """Evaluation -> its scores.json."""
        names = [key for key in self.artefacts if key.startswith("eval.")]
        return {name.removeprefix("eval."): read_json(self.folder(name) / "scores.json") for name in names}

    def document_stages(self) -> list[str]:
        """Stages whose ledger counts documents in, kept and dropped, in the order of the graph."""
        return [key for key in self.artefacts if _counts_documents(self.ledger(key))]


def open_views(runs: Sequence[Run]) -> list[View]:
    """Raises BadInput for a run with no finished stage, and for the same run twice."""
    if len({run.folder for run in runs}) < len(runs):
        raise BadInput("a run cannot be compared with itself; give two runs", got=runs[0].name)
    views = []
    for number, run in enumerate(runs):
        if not run.record["stages"]:
            raise BadInput("the run has no finished stage yet", file=run.folder / RUN_FILE)
        twins = any(other.name == run.name for other in runs if other is not run)
        name = f"{run.folder.parent.name}/{run.name}" if twins else run.name
        views.append(View(run, name, number, {key: run.artefact(key) for key in run.record["stages"]}))
    return views


def heading(views: Sequence[View], view: View, text: str) -> str:
    """``text``, with the run's name in front where there are two."""
    return f"{view.name}: {text}" if len(views) > 1 else text[:1].upper() + text[1:]


def sources(views: Sequence[View]) -> list[str]:
    """Every source of the runs, in the order of the recipes: its place decides its colour in all charts."""
    return list(dict.fromkeys(source for view in views for source in view.recipe["sources"]))


def missing(views: Sequence[View], *keys: str) -> list[str]:
    """A sentence for each run that has not got to one of ``keys``."""
    lines = []
    for view in views:
        absent = [key for key in keys if not view.has(key)]
        if absent:
            lines.append(f"{view.name} has not got here yet: no {' and no '.join(absent)} stage.")
    return lines


def _counts_documents(ledger: dict[str, Any]) -> bool:
    return bool(ledger) and all(isinstance(e, dict) and {"in", "kept", "dropped"} <= set(e) for e in ledger.values())
