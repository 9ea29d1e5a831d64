"""`gristmill eval MODEL`: a suite on any model, with the validation text of a run as material."""

from __future__ import annotations

import math
import re
from pathlib import Path

from gristmill.eval import models, shipped, suites
from gristmill.eval.material import Material
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json
from gristmill.kernels.common.seeds import derive
from gristmill.recipes.runner import runs


def evaluate(model: str, suite: str, run: str, root: Path) -> tuple[dict, Path]:
    """(scores, folder they are in). ``model``: a folder, a run's name (its release), a shipped name, or a hub name."""
    if suite not in suites.SUITES:
        raise BadInput("no such suite", key="--suite", got=suite, valid=suites.SUITES)
    source = runs.open_run(run, root)
    folder = resolve(model, root)
    # asked as the run's own models were asked, where its recipe has this suite
    same = [entry for entry in source.recipe().eval if entry.suite == suite]
    config = same[0] if same else suites.EvalConfig(name="command", of="merge", suite=suite)
    name = re.sub(r"[^\w.-]+", "_", str(model)).strip("_")
    out = Path(root) / "evals" / f"{name}--{suite}"
    material = material_of(source, root)
    scores = suites.evaluate(models.load(folder), config, material, out)
    return scores, out


def resolve(model: str, root: Path) -> str | Path:
    """What ``models.load`` takes, for all the ways to name a model."""
    if (Path(model) / "config.json").is_file():
        return Path(model)
    for folder in (Path(model), Path(root) / model):
        if (folder / runs.RUN_FILE).is_file():
            if (folder / "release" / "config.json").is_file():
                return folder / "release"
            raise BadInput("the run has no release yet; `gristmill release` makes it", file=folder)
    if model in shipped.MODELS:
        return shipped.folder_of(model, Path(root).resolve() / "downloads")
    if Path(model).exists() or model.count("/") != 1:
        known = [*shipped.MODELS, *(p.parent.name for p in Path(root).glob(f"*/{runs.RUN_FILE}"))]
        raise BadInput("no such model: neither a Hugging Face folder, nor a run, nor shipped", got=model, valid=known)
    return model


def material_of(run: runs.Run, root: Path) -> Material:
    """The validation text of ``run``, and the seed its own evaluations draw their items with."""
    recipe = run.recipe()
    return Material(
        split=run.artefact("split").folder,
        domains={name: source.domain for name, source in recipe.sources.items()},
        languages={name: source.lang for name, source in recipe.sources.items()},
        cache=Path(root).resolve() / "downloads",
        seed=derive(recipe.seed, "eval"),
    )


def table(columns: dict[str, dict]) -> str:
    """Scores of several models side by side: name -> contents of its scores.json."""
    rows: dict[str, dict[str, str]] = {}
    notes: dict[str, str] = {}
    for name, scores in columns.items():
        for key, row in _lines(scores):
            rows.setdefault(key, {})[name] = f"{row['value']:.4f} ±{row['stderr']:.4f}"
            arrow = "lower is better" if not row["higher_is_better"] else ""
            chance = f"chance {row['chance']:g}" if row.get("chance") is not None else ""
            notes[key] = ", ".join(filter(None, (f"n {row['n']}", chance, arrow)))
    width = max((len(key) for key in rows), default=0) + 2
    cell = {name: max(len(name), 15) for name in columns}
    lines = [" " * width + "  ".join(f"{name:>{cell[name]}}" for name in columns)]
    for key, cells in rows.items():
        values = "  ".join(f"{cells.get(name, '-'):>{cell[name]}}" for name in columns)
        lines.append(f"{key:<{width}}{values}   {notes[key]}")
    return "\n".join(lines)


def _lines(scores: dict) -> list[tuple[str, dict]]:
    """(label, row) of every score, groups and domains after the total they make up."""
    lines = []
    for task, row in scores["tasks"].items():
        label = f"{task} {row['metric']}" if task != "bpb" else "bits per byte"
        lines.append((label, row))
        for group, part in row.get("groups", {}).items():
            lines.append((f"  {group}", {**row, **part}))
        if task == "bpb":
            for domain, part in scores["domains"].items():
                values = {"value": part["bits_per_byte"], "stderr": part["stderr"], "n": part["documents"]}
                lines.append((f"  {domain} text", {**row, **values}))
    return [line for line in lines if math.isfinite(line[1]["value"])]


def saved(folder: Path) -> dict:
    """Contents of a finished evaluation's scores.json."""
    return read_json(folder / "scores.json")
