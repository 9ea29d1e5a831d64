"""The recipe loader: YAML text, inheritance and overrides in; a validated model out; every mistake in one line.

``base: other.yaml`` (relative to the file that says so, or a shipped name) inherits: mappings merge, lists and
scalars are replaced, and null takes an inherited key away (None where the field may be None, otherwise back to
its default; an entry of a table such as ``sources`` is gone). An override ``a.b.c=value`` replaces one value,
whatever it is; entries of a list are addressed by their ``name`` or by number. The schema types all text
(``textschema``), so a value means the same in a file, in quotes and in an override.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput, nearest
from gristmill.kernels.common.textschema import NULLS, Removed, validator
from gristmill.recipes.runner.explain import dotted, explain, name_of
from gristmill.recipes.runner.yamltext import OVERRIDE, Node, parse, parse_value

SUFFIXES = (".yaml", ".yml")
BREAKS = frozenset("\n\r\x85\u2028\u2029")
C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Loaded(Generic[C]):
    """A recipe, and where it came from."""

    config: C
    file: Path
    chain: tuple[Path, ...]  # the file, its base, the base's base ...
    overrides: tuple[str, ...]
    text: dict[str, Any]  # nested text after merging, before the schema


def load(recipe: str | Path, overrides: Sequence[str] = (), *, model: type[C], search: Sequence[Path]) -> Loaded[C]:
    """Read ``recipe`` (a path, or the name of a ``*.yaml`` in ``search``) and validate it as ``model``.

    Raises BadInput for the first mistake, with file, line, key path and the nearest valid name.
    """
    chain = _chain(find(recipe, search), search)
    root = chain[-1][1]
    for _, child in reversed(chain[:-1]):
        root = _merge(root, child)
    root, keys = _override(root, overrides)
    try:
        config = validator(model).validate_python(root.plain(keep_marks=True))
    except ValidationError as error:
        raise explain(error, root, model, keys) from None
    files = tuple(path for path, _ in chain)
    return Loaded(config, files[0], files, tuple(overrides), root.plain())


def find(recipe: str | Path, search: Sequence[Path], *, beside: Path | None = None, **where: Any) -> Path:
    """The file a path or shipped name stands for; relative paths start at ``beside`` or the working directory.

    ``where`` (file, key) tells BadInput who asked.
    """
    path = (beside or Path()) / recipe
    shipped = [folder / f"{recipe}.yaml" for folder in search]
    if not str(recipe).endswith(SUFFIXES):
        path = next((s for s in shipped if s.is_file()), path)
    if path.is_dir():
        raise BadInput("a folder, not a recipe file", **where, got=str(recipe))
    if path.is_file():
        return path
    if str(recipe).endswith(SUFFIXES):
        names = sorted(p.name for p in path.parent.glob("*") if p.name.endswith(SUFFIXES))
        close = nearest(path.name, names)
        wanted = "a recipe file" + (f" (did you mean {close!r}?)" if close else "")
        raise BadInput("no such file", **where, got=str(recipe), expected=wanted)
    names = sorted({p.stem for folder in search for p in Path(folder).glob("*.yaml")})
    raise BadInput("no such recipe", **where, got=str(recipe), valid=names)


def _chain(path: Path, search: Sequence[Path]) -> list[tuple[Path, Node]]:
    """The recipe and the files it inherits from, itself first; ``base`` is taken out of each."""
    chain: list[tuple[Path, Node]] = []
    seen: list[Path] = []
    while True:
        root = _read(path)
        base = root.value.pop("base", None)
        chain.append((path, root))
        seen.append(path.resolve())
        if base is None or base.null:
            return chain
        where = {"file": base.place, "key": "base"}
        if not isinstance(base.value, str):
            raise BadInput("wrong value", **where, expected="one file or shipped name")
        path = find(base.value, search, beside=path.parent, **where)
        if path.resolve() in seen:
            names = [p.name for p, _ in chain[seen.index(path.resolve()) :]] + [path.name]
            raise BadInput(f"a recipe inherits from itself: {' -> '.join(names)}", **where)


def _read(path: Path) -> Node:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path) from None
    root = parse(data, str(path))
    if not isinstance(root.value, dict):
        if root.null:
            raise BadInput("the file is empty", file=path)
        raise BadInput("wrong value", file=root.place, expected="a mapping of keys to values at the top level")
    return root


def _merge(base: Node, child: Node) -> Node:
    """``child`` over ``base``; both keep where each value came from."""
    if isinstance(base.value, dict) and isinstance(child.value, dict):
        value = dict(base.value)
        for key, node in child.value.items():
            value[key] = _merge(value[key], node) if key in value else node
        return Node(value, child.file, child.line)
    return Node(Removed(child.value), child.file, child.line) if child.null else child


def _override(root: Node, overrides: Sequence[str]) -> tuple[Node, dict[tuple, str]]:
    """Apply ``key=value`` in order. Returns the new tree and {path: key as typed}."""
    keys: dict[tuple, str] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals:
            raise BadInput("an override is written key=value", file=OVERRIDE, got=text)
        if not all(key.split(".")):
            raise BadInput("an override begins with a key, as in a.b.c=value", file=OVERRIDE, got=text)
        if key == "base":
            raise BadInput("`base` cannot be overridden; write a recipe that has it", file=OVERRIDE, got=text)
        root, path = _set(root, key.split("."), parse_value(value), (), key)
        for earlier, typed in keys.items():
            if earlier == path:
                raise BadInput(f"given twice ({typed} and {key}); keep one", file=OVERRIDE, key=key)
            if earlier[: len(path)] == path:
                raise BadInput(f"replaces the earlier override of {typed}; give it first", file=OVERRIDE, key=key)
        keys[path] = key
    return root, keys


def _set(node: Node, steps: list[str], value: Node, path: tuple, key: str) -> tuple[Node, tuple]:
    """(a copy of ``node`` with ``value`` put at ``steps``, the path it has now); missing mappings are made."""
    if not steps:
        return (Node(Removed(value.value), value.file) if value.null else value), path
    if isinstance(node.value, list):
        index = _index(node.value, steps[0], key)
        child, full = _set(node.value[index], steps[1:], value, (*path, index), key)
        return Node([*node.value[:index], child, *node.value[index + 1 :]], node.file, node.line), full
    if node.null:
        node = Node({}, OVERRIDE)
    if not isinstance(node.value, dict):
        what = f"{dotted(path)} is {node.value!r} ({node.place}) and has no keys; override {dotted(path)} as a whole"
        raise BadInput(what, file=OVERRIDE, key=key)
    # a key may have dots of its own: the longest that exists wins
    words = next((n for n in range(len(steps), 0, -1) if ".".join(steps[:n]) in node.value), 1)
    name, rest = ".".join(steps[:words]), steps[words:]
    if name in node.value or rest:
        child, full = _set(node.value.get(name, Node({}, OVERRIDE)), rest, value, (*path, name), key)
    else:  # nothing inherited: null is a value here, not a removal
        child, full = value, (*path, name)
    return Node({**node.value, name: child}, node.file, node.line), full


def _index(entries: list[Node], step: str, key: str) -> int:
    """Which entry of a list a step names: its ``name``, or its number from 0."""
    names = [name_of(entry) for entry in entries]
    if names.count(step) > 1:
        raise BadInput(f"{names.count(step)} entries are called {step!r}; use a number", file=OVERRIDE, key=key)
    if step in names:
        return names.index(step)
    if step.isdecimal() and int(step) < len(entries):
        return int(step)
    valid = [n for n in names if n is not None] + [str(i) for i in range(len(entries))]
    raise BadInput("no such entry in the list", file=OVERRIDE, key=key, got=step, valid=valid)


def dump(config: BaseModel) -> str:
    """The resolved recipe as YAML that loads back to an equal model: every key, floats as Python spells them."""
    plain = config.model_dump(mode="json", by_alias=True)
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)


class _Dumper(yaml.representer.SafeRepresenter, yaml.BaseDumper):
    """A dumper for which, as for our reader, every scalar is text."""

    def __init__(self, *args: Any, **kwargs: Any):
        yaml.BaseDumper.__init__(self, *args, **kwargs)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: Any) -> yaml.ScalarNode:
    if value is None or isinstance(value, bool):
        return dumper.represent_scalar("tag:yaml.org,2002:str", {None: "null", True: "true", False: "false"}[value])
    text = str(value) if isinstance(value, str) else repr(value)
    # text that would read as null, or a key that would read as a merge, says by its quotes that it is not
    style = "'" if text in (*NULLS, "<<") else None
    if not BREAKS.isdisjoint(text):  # escaped, since PyYAML's other styles lose some of these
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


for _kind in (type(None), bool, int, float, str):
    _Dumper.add_representer(_kind, _text)
_Dumper.add_multi_representer(str, _text)  # a quoted null that reached a field of any type


def flatten(config: BaseModel) -> dict[str, Any]:
    """Dotted key -> value of every leaf, in the spelling an override would use (entries of lists by name)."""
    return dict(_leaves(config.model_dump(mode="json", by_alias=True), ""))


def _leaves(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        names = [v.get("name") if isinstance(v, dict) else None for v in value]
        named = all(isinstance(n, str) for n in names) and len(set(names)) == len(names)
        value = {names[i] if named else str(i): v for i, v in enumerate(value)} or value
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value
