"""The top of the page: what was made, how large it is, what it has read, and what it scores."""

from __future__ import annotations

from typing import Any

from gristmill.kernels.common.files import read_json
from gristmill.recipes.report.provenance import seconds
from gristmill.recipes.report.scores import title
from gristmill.recipes.report.views import View
from gristmill.recipes.report.words import count, duration, several
from gristmill.recipes.runner.release import FOLDER
from gristmill.recipes.runner.scores import rows


def headline(view: View) -> dict[str, Any]:
    """{"name", "tone", "sentence", "numbers": [(value, unit, what)]}: as much as the run has got to."""
    numbers: list[tuple[str, str, str]] = []
    parameters = _parameters(view)
    if parameters:
        model = view.recipe["model"]
        numbers.append(
            (count(parameters), "", f"parameters in {several(model['layers'], 'layer')} of width {model['hidden']}")
        )
    if view.has("pretrain"):
        ledger = view.ledger("pretrain")
        numbers.append((count(ledger["tokens"]["seen"]), "", f"tokens in {several(ledger['steps'], 'step')}"))
    numbers += _scores(view)
    spent = duration(seconds(view)).split(" ", 1)
    numbers.append((spent[0], spent[1], f"of computing in {several(len(view.artefacts), 'stage')}"))
    return {"name": view.name, "tone": view.tone, "sentence": _sentence(view), "numbers": numbers}


def _parameters(view: View) -> int | None:
    """Counted from the model's card, without reading weights."""
    from gristmill.train.load import read_card
    from gristmill.train.model import ModelConfig, parameter_count

    if not view.has("pretrain"):
        return None
    card = read_card(view.folder("pretrain"))
    return sum(parameter_count(ModelConfig(**card["model"]), card["vocab_size"]).values())


def _scores(view: View) -> list[tuple[str, str, str]]:
    """The totals of the evaluation of what is released, or else of the last evaluation; two at most."""
    evals = view.evals()
    if not evals:
        return []
    of = {name: view.config(f"eval.{name}")["eval"]["of"] for name in evals}
    published = view.recipe["release"]["model"]
    name = next((n for n in evals if of[n] == published), list(evals)[-1])
    found = []
    for row in rows({name: evals[name]}):
        if row.depth == 0 and len(found) < 2:
            score = row.cells[name]
            found.append((f"{score['value']:.3f}", f"±{score['stderr']:.3f}", f"{title(row)}, {name} model"))
    return found


def _sentence(view: View) -> str:
    recipe = view.recipe
    text = f"Made by the recipe {recipe['name']} (seed {recipe['seed']}) "
    text += f"from {several(len(recipe['sources']), 'source')}"
    if recipe["scale"] < 1:
        text += f", {100 * recipe['scale']:g} % of each,"
    text += f" in {several(len(recipe['phases']), 'phase')}."
    if not view.has("pretrain"):
        return text + f" The run has got as far as {list(view.artefacts)[-1]}."
    parity = view.run.folder / FOLDER / "gristmill" / "parity.json"
    if not parity.is_file():
        return text + " Not released yet."
    check = read_json(parity)
    apart = check["max_abs_difference"]
    same = f"to within {apart:.1e}" if apart else "exactly"
    return text + f" Released as {check['class']}: a fresh process computed the trained model's logits {same}."
