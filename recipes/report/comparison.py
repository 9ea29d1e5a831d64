"""Two runs: which fields of their recipes differ, and from which stage on their artefacts do."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.recipes.report.blocks import Note, Section, Table
from gristmill.recipes.report.views import View
from gristmill.recipes.report.words import setting
from gristmill.recipes.runner.loader import flatten


def section(views: Sequence[View]) -> Section | None:
    if len(views) == 1:
        return None
    fields = fields_that_differ(*views)
    rows = [[key, *("–" if value is None else setting(value) for value in values)] for key, values in fields.items()]
    blocks: list = []
    if rows:
        head = ["field", *(view.name for view in views)]
        blocks.append(Table(head, rows, "Fields of the resolved recipes that are not equal.", texts=3))
    else:
        blocks.append(Note("The two recipes have the same values in every field."))
    same, other, alone = stages(*views)
    parts = [("Same artefacts", same), ("Different", other)]
    parts += [(f"Only {view.name} has", keys) for view, keys in zip(views, alone, strict=True) if keys]
    blocks.append(Note(" ".join(f"{what}: {', '.join(keys) or 'none'}." for what, keys in parts)))
    return Section("difference", "What differs", "All else is equal, down to the bytes of what they share.", blocks)


def fields_that_differ(a: View, b: View) -> dict[str, list]:
    """Key path -> [value in a, value in b], as `gristmill diff` names them."""
    left, right = flatten(a.run.recipe()), flatten(b.run.recipe())
    return {k: [left.get(k), right.get(k)] for k in {**left, **right} if left.get(k) != right.get(k)}


def stages(a: View, b: View) -> tuple[list[str], list[str], tuple[list[str], list[str]]]:
    """Stages of both runs with the same artefact, those with another, and those that only a or only b has."""
    both = [key for key in a.artefacts if b.has(key)]
    same = [key for key in both if a.artefacts[key].name == b.artefacts[key].name]
    alone = [key for key in a.artefacts if key not in both], [key for key in b.artefacts if key not in both]
    return same, [key for key in both if key not in same], alone
