"""Verify: re-hash everything a run or a bundle holds, re-derive the data order, and name each mismatch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from gristmill.kernels.common.config import result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import digest, file_hash, read_json, walk
from gristmill.recipes.runner import graph
from gristmill.recipes.runner.runs import RUN_FILE, Run, open_run, say
from gristmill.recipes.runner.schema import Recipe
from gristmill.recipes.runner.store import MANIFEST, UNHASHED, content_of

SUMS = "SHA256SUMS"
REDERIVED = ("mix", "pack")  # the data order and the rows made of it: cheap, and the thing most often lost


def verify(target: str, root: Path) -> list[str]:
    """Every mismatch, one line each; an empty list means all is as it was recorded."""
    folder = Path(target)
    if not (folder / RUN_FILE).is_file() and (folder / SUMS).is_file():
        return list(_bundle(folder))
    return list(_run(open_run(target, root)))


def _run(run: Run) -> Iterator[str]:
    manifests: dict[str, dict] = {}
    for key, name in run.record["stages"].items():
        folder = run.store.folder / name
        try:
            manifests[key] = read_json(folder / MANIFEST)
        except (FileNotFoundError, ValueError):
            yield f"{key}: {name}/{MANIFEST}: missing or unreadable"
            continue
        yield from (f"{key}: {problem}" for problem in _files(folder, manifests[key]))
    recipe = run.recipe()
    if digest(result_fields(recipe)) != run.record["result"]:
        yield f"{RUN_FILE}: the recipe is not the one that was run"
    yield from _chain(recipe, manifests)
    say("files and manifests read; deriving the data order again")
    yield from _rederive(run, recipe, manifests)


def _files(folder: Path, manifest: dict) -> Iterator[str]:
    """Files of one artefact against its manifest, and the manifest against itself."""
    listed = {entry["path"]: entry for entry in manifest["outputs"]}
    present = {p for p in walk(folder) if not p.startswith(UNHASHED) and p != MANIFEST}
    for path in sorted(present - set(listed)):
        yield f"{folder.name}/{path}: not in the manifest"
    for path, entry in listed.items():
        if path not in present:
            yield f"{folder.name}/{path}: missing"
        elif (size := (folder / path).stat().st_size) != entry["size"]:
            yield f"{folder.name}/{path}: {size} bytes, the manifest says {entry['size']}"
        elif file_hash(folder / path) != entry["sha256"]:
            yield f"{folder.name}/{path}: sha256 differs from the manifest"
    if content_of(manifest) != manifest["content"]:
        yield f"{folder.name}/{MANIFEST}: its content hash does not follow from its fields"


def _chain(recipe: Recipe, manifests: dict[str, dict]) -> Iterator[str]:
    """Each stage was made with the recipe's configuration, from the very contents the others have."""
    external = {key: manifest["external"] for key, manifest in manifests.items()}
    try:
        nodes = graph.build(recipe, cache=Path(), root=Path(), external=external)
    except BadInput as error:
        yield f"recipe: {error}"
        return
    for key, node in nodes.items():
        manifest = manifests.get(key)
        if manifest is None:
            yield f"{key}: the recipe has this stage, the record does not"
            continue
        config = result_fields(node.config)
        if manifest["config"] != config:
            difference = _difference(manifest["config"], config)
            yield f"{key}: made with another configuration than the recipe's ({difference})"
        for name, source in node.inputs.items():
            if source in manifests and manifest["inputs"].get(name) != manifests[source]["content"]:
                yield f"{key}: was not made from this {source}"


def _difference(a: object, b: object, path: str = "") -> str:
    """The first place where two JSON values differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            if a.get(key) != b.get(key):
                return _difference(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    return f"{path}: {a!r} against {b!r}"


def _rederive(run: Run, recipe: Recipe, manifests: dict[str, dict]) -> Iterator[str]:
    external = {key: manifest["external"] for key, manifest in manifests.items()}
    nodes = graph.build(recipe, cache=Path(), root=Path(), external=external)
    with tempfile.TemporaryDirectory(dir=run.folder, prefix=".verify-") as scratch:
        made: dict[str, Path] = {}
        for key in REDERIVED:
            if key not in manifests:
                continue
            inputs = {
                name: made.get(source, run.store.folder / run.record["stages"][source])
                for name, source in nodes[key].inputs.items()
            }
            made[key] = Path(scratch) / key
            made[key].mkdir()
            try:
                nodes[key].run(nodes[key].config, inputs, made[key])
            except Exception as error:  # a damaged input may fail in any way; which one is named above
                yield f"{key}: cannot be derived again ({type(error).__name__}: {error})"
                return
            listed = {entry["path"]: entry["sha256"] for entry in manifests[key]["outputs"]}
            again = {p: file_hash(made[key] / p) for p in walk(made[key]) if not p.startswith(UNHASHED)}
            for path in sorted(set(listed) | set(again)):
                if listed.get(path) != again.get(path):
                    yield f"{key}: {path}: deriving it again gives something else"


def _bundle(folder: Path) -> Iterator[str]:
    sums = {}
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        value, _, path = line.partition("  ")
        sums[path] = value
    present = set(walk(folder)) - {SUMS}
    for path in sorted(present - set(sums)):
        yield f"{path}: not in {SUMS}"
    for path, value in sums.items():
        if path not in present:
            yield f"{path}: missing"
        elif file_hash(folder / path) != value:
            yield f"{path}: sha256 differs from {SUMS}"
    manifests = {}
    for path in sorted((folder / "gristmill" / "manifests").glob("*.json")):
        try:
            manifests[path.stem] = manifest = read_json(path)
        except ValueError:
            yield f"gristmill/manifests/{path.name}: not readable JSON"
            continue
        if content_of(manifest) != manifest["content"]:
            yield f"gristmill/manifests/{path.name}: its content hash does not follow from its fields"
    from gristmill.recipes.runner.loader import load

    try:
        recipe = load(folder / "gristmill" / "recipe.yaml", model=Recipe, search=[]).config
    except BadInput as error:
        yield f"gristmill/recipe.yaml: {error}"
        return
    yield from _chain(recipe, manifests)
