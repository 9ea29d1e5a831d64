"""Where everything came from: each stage, what it was made of, and what made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gristmill.recipes.report.blocks import Section, Table, Tree
from gristmill.recipes.report.views import View, heading
from gristmill.recipes.report.words import duration, size

SHORT = 12  # digits of a hash that are shown; the whole of it is in the title
CURVE = 0.35  # of a row: how soon a rail bends into its stage


def section(views: Sequence[View]) -> Section:
    shared = set.intersection(*({a.name for a in view.artefacts.values()} for view in views))
    blocks: list = []
    for view in views:
        blocks.append(_tree(views, view, shared if len(views) > 1 else set()))
    blocks += [_table(views, view) for view in views] + [_versions(views)]
    return Section(
        "provenance",
        "Where it came from",
        "Each stage's artefact is named by what went into it; two runs that share a name share the bytes.",
        blocks,
    )


def inputs(view: View) -> dict[str, list[str]]:
    """Stage -> the stages it was made from, in the order of the graph."""
    by_name = {artefact.name: key for key, artefact in view.artefacts.items()}
    found = {}
    for key, artefact in view.artefacts.items():
        made_from = {by_name[name] for name in artefact.manifest["artefacts"].values() if name in by_name}
        found[key] = [other for other in view.artefacts if other in made_from]
    return found


def seconds(view: View) -> float:
    return sum(a.manifest["provenance"]["seconds"] for a in view.artefacts.values())


def rails(order: Sequence[str], made_from: dict[str, list[str]]) -> tuple[list[str], int]:
    """(SVG paths, lanes): from each stage one rail down to all that is made of it, bending into their rows.

    Lane 0 is the stages' own; x counts lanes to the left, y rows. A rail takes the first lane that is free from
    its stage to the last stage it feeds.
    """
    row = {key: k for k, key in enumerate(order)}
    paths, busy = [], []  # busy[lane - 1]: the row a lane is taken up to
    for key in order:
        fed = [row[other] for other in order if key in made_from[other]]
        start, far = row[key], [stop for stop in fed if stop > row[key] + 1]
        if start + 1 in fed:
            paths.append(f"M0 {start} V{start + 1}")
        if not far:
            continue
        lane = next((k for k, until in enumerate(busy) if until <= start), len(busy))
        busy[lane : lane + 1] = [max(far)]
        x = -(lane + 1)
        for stop in far:
            paths.append(
                f"M0 {start} C{x / 2:g} {start} {x} {start + CURVE / 2:g} {x} {start + CURVE:g}"
                f" V{stop - CURVE:g} C{x} {stop - CURVE / 2:g} {x / 2:g} {stop} 0 {stop}"
            )
    return paths, len(busy)


def _tree(views: Sequence[View], view: View, shared: set[str]) -> Tree:
    made_from, total = inputs(view), max(seconds(view), 1e-9)
    paths, lanes = rails(list(view.artefacts), made_from)
    rows: list[dict[str, Any]] = []
    for key, artefact in view.artefacts.items():
        spent = artefact.manifest["provenance"]["seconds"]
        rows.append(
            {
                "stage": key,
                "artefact": artefact.name,
                "content": artefact.content,
                "short": artefact.content[:SHORT],
                "inputs": made_from[key],
                "time": duration(spent),
                "share": round(100 * spent / total, 2),
                "shared": artefact.name in shared,
            }
        )
    caption = "Lines lead from a stage to all that is made from it; the bar is its share of the computing time"
    caption += f", {duration(seconds(view))} in all."
    caption += " A filled dot is an artefact that both runs use." if shared else ""
    title = heading(views, view, f"{len(rows)} stages, {duration(seconds(view))}")
    return Tree(title, rows, paths, lanes, caption, len(views) == 1)


def _table(views: Sequence[View], view: View) -> Table:
    rows = []
    for key, artefact in view.artefacts.items():
        manifest, made = artefact.manifest, artefact.manifest["provenance"]
        commit = (made["commit"] or "a package")[:SHORT] + (" + changes" if made["dirty"] else "")
        rows.append(
            [
                key,
                artefact.name,
                ", ".join(inputs(view)[key]) or "raw text",
                manifest["content"][:SHORT],
                str(manifest["version"]),
                commit,
                made["finished"].replace("T", " ").replace("+00:00", " UTC"),
                size(sum(entry["size"] for entry in manifest["outputs"])),
                duration(made["seconds"]),
            ]
        )
    return Table(
        ["stage", "artefact", "made from", "content", "version", "commit", "finished", "size", "time"],
        rows,
        "Content is the beginning of the sha256 over all that decides the artefact and all that it holds; "
        "gristmill verify computes it again.",
        texts=7,
        title=heading(views, view, "artefacts"),
    )


def _versions(views: Sequence[View]) -> Table:
    """What the stages ran on; several values where stages of a run were made at different times or places."""
    columns: dict[str, dict[str, list[str]]] = {}
    for view in views:
        found = columns.setdefault(view.name, {})
        for artefact in view.artefacts.values():
            made = artefact.manifest["provenance"]
            facts = {"Python": made["python"], "platform": made["platform"], "cores": str(made["cores"])}
            for name, value in {**facts, **made["packages"]}.items():
                values = found.setdefault(name, [])
                if value not in values:
                    values.append(value)
    names = list(dict.fromkeys(name for found in columns.values() for name in found))
    return Table(
        ["what", *columns],
        [[name, *(", ".join(found.get(name, ["–"])) for found in columns.values())] for name in names],
        "Versions are recorded, never hashed: another version that gives the same bytes is the same artefact.",
        texts=1 + len(columns),
        title="Versions",
    )
