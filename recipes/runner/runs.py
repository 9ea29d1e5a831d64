"""A run: a recipe carried out against the store, and the small folder that remembers it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gristmill.kernels.common.config import result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import digest, read_json, write_json
from gristmill.recipes.runner import graph
from gristmill.recipes.runner.loader import Loaded, dump
from gristmill.recipes.runner.schema import Recipe
from gristmill.recipes.runner.store import Artefact, Node, Store

RUN_FILE = "run.json"


@dataclass(frozen=True)
class Run:
    """An existing run folder."""

    folder: Path
    record: dict

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def store(self) -> Store:
        return Store(self.folder.parent)

    def recipe(self) -> Recipe:
        """The resolved recipe. Raises BadInput for one that this version has other fields for."""
        try:
            return Recipe.model_validate(self.record["recipe"])
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise BadInput(
                f"was made by another version of gristmill ({first['msg']}); run the recipe again",
                file=self.folder / RUN_FILE,
                key=f"recipe.{key}",
            ) from None

    def artefact(self, key: str) -> Artefact:
        if key not in self.record["stages"]:
            raise BadInput(
                "the run has no such stage yet", file=self.folder / RUN_FILE, got=key, valid=self.record["stages"]
            )
        return self.store.open(self.record["stages"][key])


def open_run(run: str, root: Path) -> Run:
    """A run by folder, or by name below ``root``."""
    for folder in (Path(run), Path(root) / run):
        if (folder / RUN_FILE).is_file():
            try:
                return Run(folder.resolve(), read_json(folder / RUN_FILE))
            except ValueError:
                raise BadInput("not readable JSON", file=folder / RUN_FILE) from None
    names = sorted(p.parent.name for p in Path(root).glob(f"*/{RUN_FILE}"))
    raise BadInput(f"no such run in {root}", got=run, valid=names)


def run_name(loaded: Loaded, name: str | None) -> str:
    """The recipe's name; with overrides that change a result, plus a hash of the resolved recipe."""
    if name:
        return name
    recipe = loaded.config
    return f"{recipe.name}--{digest(result_fields(recipe))[:8]}" if loaded.overrides else recipe.name


def nodes_of(loaded: Loaded, root: Path) -> dict[str, Node]:
    return graph.build(loaded.config, cache=Path(root).resolve() / "downloads", root=loaded.file.resolve().parent)


def made_from(nodes: dict[str, Node], key: str) -> list[str]:
    """Keys of what ``key`` is made from, itself last, in the order of the graph."""
    needed = {key}
    for node in reversed(nodes.values()):
        if node.key in needed:
            needed |= set(node.inputs.values())
    return [k for k in nodes if k in needed]


def execute(loaded: Loaded, root: Path, name: str | None, until: str | None, only: str | None) -> Run:
    """Build what is missing, in order; remember each stage as it is done.

    ``until``: build this stage and what it is made from, nothing beside; ``only``: just this stage."""
    store, nodes = Store(root), nodes_of(loaded, root)
    for key, option in ((until, "--until"), (only, "--only")):
        if key is not None and key not in nodes:
            raise BadInput(f"no such stage for {option}", got=key, valid=nodes)
    if until is not None:
        nodes = {key: nodes[key] for key in made_from(nodes, until)}
    folder = Path(root) / run_name(loaded, name)
    if (folder / RUN_FILE).is_file():
        before = read_json(folder / RUN_FILE)
        if name and before["recipe"]["name"] != loaded.config.name:
            raise BadInput(
                "the name is taken by a run of another recipe", file=folder, key="--name", got=before["recipe"]["name"]
            )
    # what `auto` came to here is part of what was done: elsewhere the recorded recipe must mean the same
    recipe = loaded.config.model_copy(update={"train": loaded.config.train.resolved()})
    record = {
        "recipe": recipe.model_dump(mode="json", by_alias=True),
        "result": digest(result_fields(recipe)),
        "overrides": list(loaded.overrides),
        "files": [f.name for f in loaded.chain],
        "stages": {},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(dump(recipe), encoding="utf-8")
    built: dict[str, Artefact] = {}
    width = max(map(len, nodes))
    for key, node in nodes.items():
        inputs = {name: built[source] for name, source in node.inputs.items()}
        contents = {name: artefact.content for name, artefact in inputs.items()}
        have = store.find(node, contents)
        if have is None:
            if only is not None and key != only:
                raise BadInput(f"--only {only} needs {key}, which is not built; run without --only", key="--only")
            say(f"{key:<{width}}  running")
            have = store.build(node, inputs)
            say(f"{key:<{width}}  {have.manifest['provenance']['seconds']:7.1f} s  {have.name}")
        else:
            say(f"{key:<{width}}   cached    {have.name}")
        built[key] = have
        record["stages"][key] = have.name
        write_json(folder / RUN_FILE, record)
        if key == only:
            break
    return Run(folder.resolve(), record)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
