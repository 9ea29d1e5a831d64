"""A study into arms: every variant with every seed, each an ordinary recipe with overrides. Builds nothing."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.eval.suites import SUITES
from gristmill.kernels.common.config import result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import digest
from gristmill.kernels.common.textschema import NULLS, Quoted
from gristmill.recipes.runner import graph, loader
from gristmill.recipes.runner.loader import Loaded
from gristmill.recipes.runner.runs import made_from
from gristmill.recipes.runner.schema import Recipe
from gristmill.recipes.runner.store import Node
from gristmill.recipes.study.config import Study, Variant

JOIN = "+"  # of the levels of factors, in a variant's name


@dataclass(frozen=True)
class Arm:
    """One run of a study."""

    variant: str
    seed: int
    run: str  # name of its run
    eval: str  # the evaluation that scores it
    overrides: tuple[str, ...]
    loaded: Loaded[Recipe]
    nodes: dict[str, Node]  # the scored stage and what it is made from, in order
    prints: dict[str, str]  # node key -> hash of all that decides it, known before anything is built

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"

    @property
    def target(self) -> str:
        return f"eval.{self.eval}"


def expand(loaded: Loaded[Study], root: Path, search: Sequence[Path]) -> list[Arm]:
    """All arms, seed by seed. Raises BadInput for an override the recipe refuses, an evaluation, task or part it does
    not have, and for two arms that would be the same run."""
    study, file = loaded.config, loaded.file
    recipe = loader.find(study.recipe, search, beside=file.parent, file=file, key="recipe")
    external: dict[str, dict] = {}
    arms: list[Arm] = []
    for seed, (name, variant) in itertools.product(study.seeds, variants(study, file).items()):
        changes = {**study.set, **variant.set, study.vary: str(seed)}
        given = (*study.set, *variant.set, study.vary)
        if twice := [key for key in given if given.count(key) > 1]:
            raise BadInput(f"{name}: set twice (`set`, a variant and `vary` add up)", file=file, key=twice[0])
        # Floats depend on the number of threads: one number for all arms, whatever the recipe says
        overrides = tuple(override(key, value) for key, value in changes.items())
        overrides += (f"train.threads={study.threads}",)
        try:
            arm = loader.load(recipe, overrides, model=Recipe, search=search)
        except BadInput as error:
            raise BadInput(f"{name}: {error}", file=file) from None
        scored = _scored_by(study, name, variant, arm.config, file)
        nodes = _nodes(arm, root, external)
        nodes = {key: nodes[key] for key in made_from(nodes, f"eval.{scored}")}
        run = f"{study.name}--{name}--{seed}"
        arms.append(Arm(name, seed, run, scored, overrides, arm, nodes, prints(nodes)))
    first: dict[str, Arm] = {}
    for arm in arms:
        same = first.setdefault(arm.prints[arm.target], arm)
        if same.seed != arm.seed:
            what = f"its seeds change nothing that {arm.target} of {arm.variant} is made from"
            raise BadInput(what, file=file, key="vary", got=study.vary, expected="a seed, such as seed or train.seed")
        if same is not arm:
            what = f"the same run twice: {same} and {arm} do not differ in anything that {arm.target} is made from"
            raise BadInput(what, file=file)
    return arms


def variants(study: Study, file: Path) -> dict[str, Variant]:
    """Name -> variant; combinations of factors' levels add up their overrides. The first is the baseline."""
    if study.variants:
        return dict(study.variants)
    found = {}
    for combination in itertools.product(*(levels.items() for levels in study.factors.values())):
        name = JOIN.join(level for level, _ in combination)
        parts = [variant for _, variant in combination]
        keys = [key for part in parts for key in part.set]
        scores = [part.eval for part in parts if part.eval is not None]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise BadInput(f"{name}: two factors set it", file=file, key=twice[0])
        if len(scores) > 1:
            raise BadInput(f"{name}: two factors say which evaluation counts; one may", file=file, key="factors")
        found[name] = Variant(set={k: v for part in parts for k, v in part.set.items()}, eval=next(iter(scores), None))
    return found


def override(key: str, value: Any) -> str:
    """``key=value`` as the command line takes it, of a value the loader read from YAML."""
    plain = isinstance(value, str) and value == value.strip() and value[:1] not in ("[", "{", '"', "'")
    return f"{key}={value if plain and not isinstance(value, Quoted) else _flow(value)}"


def _flow(value: Any) -> str:
    """One line of YAML that reads back as ``value``: nested dicts, lists and text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value in NULLS and not isinstance(value, Quoted):
        return "null"
    bare = re.fullmatch(r"[\w.][\w.*+ -]*", value) and value not in NULLS and value == value.strip()
    return str(value) if bare else json.dumps(str(value), ensure_ascii=False)


def prints(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Node key -> hash of its stage, its settings and, through its inputs, everything it is made from."""
    found: dict[str, str] = {}
    for key, node in nodes.items():
        inputs = {name: found[source] for name, source in node.inputs.items()}
        found[key] = digest([node.stage, node.version, result_fields(node.config), node.external, inputs])
    return found


def varies(arms: Sequence[Arm]) -> list[str]:
    """Stages of the first variant whose own settings the seed changes: what its error bars are about."""
    mine = [arm for arm in arms if arm.variant == arms[0].variant][:2]
    if len(mine) < 2:
        return []
    a, b = (arm.nodes for arm in mine)
    return [key for key in a if result_fields(a[key].config) != result_fields(b[key].config)]


def _nodes(arm: Loaded[Recipe], root: Path, external: dict[str, dict]) -> dict[str, Node]:
    """The arm's graph; files that recipes do not pin are hashed once for all arms that name the same."""
    settings = result_fields(arm.config)
    named = digest([settings[block] for block in ("sources", "tokenizer", "posttrain")])
    where = {"cache": Path(root).resolve() / "downloads", "root": arm.file.resolve().parent}
    nodes = graph.build(arm.config, **where, external=external.get(named))
    external.setdefault(named, {key: dict(node.external) for key, node in nodes.items()})
    return nodes


def _scored_by(study: Study, name: str, variant: Variant, recipe: Recipe, file: Path) -> str:
    """Name of the evaluation that scores a variant, once the recipe is known to have what the metric asks for."""
    wanted, metric = variant.eval or study.metric.eval, study.metric
    entries = {entry.name: entry for entry in recipe.eval}
    if wanted is None:
        raise BadInput(f"{name}: neither metric.eval nor the variant says which evaluation counts", file=file)
    if wanted not in entries:
        raise BadInput(f"{name}: the recipe has no such evaluation", file=file, key="eval", got=wanted, valid=entries)
    tasks = SUITES[entries[wanted].suite]
    if metric.task not in tasks:
        what = f"{name}: evaluation {wanted} (suite {entries[wanted].suite}) has no such task"
        raise BadInput(what, file=file, key="metric.task", got=metric.task, valid=tasks)
    domains = sorted({source.domain for source in recipe.sources.values()})
    if metric.task == "bpb" and metric.part is not None and metric.part not in domains:
        raise BadInput("no such domain in the recipe", file=file, key="metric.part", got=metric.part, valid=domains)
    return wanted
