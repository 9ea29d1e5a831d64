"""`gristmill eval MODEL`: a suite on any model, with the validation text of a run as material."""

from __future__ import annotations

import re
from pathlib import Path

from gristmill.eval import models, shipped, suites
from gristmill.eval.material import Material
from gristmill.kernels.common.errors import BadInput
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
