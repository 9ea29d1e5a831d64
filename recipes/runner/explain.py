"""What is wrong with a recipe, in one line: file and line, key path, value, what was expected, the nearest name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from gristmill.kernels.common.errors import BadInput, nearest
from gristmill.kernels.common.textschema import MISMATCH, RANGE, choices
from gristmill.recipes.runner.yamltext import OVERRIDE, Node

Path = tuple[str | int, ...]
# pydantic's names for "this is not the kind of value the field holds", and ours for the kind
KINDS = {
    MISMATCH: None,
    RANGE: None,
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "bool_type": "true or false",
    "literal_error": None,
    "enum": None,
    "none_required": "null",
}
BOUNDS = {"greater_than": "above", "greater_than_equal": "at least", "less_than": "below", "less_than_equal": "at most"}
MANY = 3  # places named for a key that belongs elsewhere


def explain(error: ValidationError, root: Node, model: type[BaseModel], overrides: dict[Path, str]) -> BadInput:
    """The first mistake in ``error`` as one line, with the number of the others.

    Unknown keys come first (a misspelt key is why another is missing), then wrong values, then missing keys;
    within each, in the order of the file. ``overrides`` maps the path each override set to its dotted key.
    """
    schema = Schema(model)
    groups: dict[Path, list[dict]] = {}
    for e in error.errors(include_url=False):
        groups.setdefault(_path(e, root), []).append(e)
    # of a union's choices, the one that got further inside the value is the one that was meant
    kept = {
        path: errors
        for path, errors in groups.items()
        if not all(e["type"] in KINDS for e in errors)
        or not any(len(other) > len(path) and other[: len(path)] == path for other in groups)
    }

    def order(item: tuple[Path, list[dict]]) -> tuple:
        path, errors = item
        rank = {"extra_forbidden": 0, "missing": 2, "union_tag_not_found": 2}.get(errors[0]["type"], 1)
        node = _node(root, path)
        return rank, node.file != OVERRIDE, node.file != root.file, node.line or 0

    ordered = sorted(kept.items(), key=order)
    first = _explain(*ordered[0], root, schema, overrides)
    return BadInput(f"{first} (+{len(ordered) - 1} more)") if len(ordered) > 1 else first


def _explain(path: Path, errors: list[dict], root: Node, schema: Schema, overrides: dict[Path, str]) -> BadInput:
    e, node = errors[0], _node(root, path)
    key = dotted(path)
    if node.file == OVERRIDE:  # name what the user typed, where that says more
        key = next((full for set_path, full in overrides.items() if set_path[: len(path)] == path), key)
    where: dict[str, Any] = {"file": node.place, "key": key or None}
    kind = e["type"]
    if kind == "extra_forbidden":
        return _unknown(path, where, root, schema)
    if kind == "missing":
        if isinstance(node.value, list):
            return BadInput("too few values", **where, got=_shown(node))
        return BadInput("a required key is missing", **where)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _tag(path, e, where, root, schema)
    if kind == "value_error":
        return _refused(path, e, where, root)
    got = _shown(node)
    expected = [e.get("ctx", {}).get("expected") or KINDS[e["type"]] for e in errors if e["type"] in KINDS]
    if RANGE in (e["type"] for e in errors) or kind in BOUNDS:
        ranges = [e["ctx"]["expected"] for e in errors if e["type"] == RANGE]
        ranges += [f"{BOUNDS[e['type']]} {next(iter(e['ctx'].values()))}" for e in errors if e["type"] in BOUNDS]
        return BadInput("out of range", **where, got=got, expected=" or ".join(ranges))
    if expected:
        return BadInput("wrong value", **where, got=got, expected=" or ".join(dict.fromkeys(expected)))
    return BadInput(e["msg"][:1].lower() + e["msg"][1:], **where, got=got)


def _unknown(path: Path, where: dict, root: Node, schema: Schema) -> BadInput:
    """A key the schema has not: the nearest name beside it, or the place where that very key belongs."""
    *parent, name = path
    valid = schema.names(tuple(parent), root)
    what = f"unknown key {name!r}" if where["key"] == dotted(path) else f"unknown key {dotted(path)!r}"
    close = _nearest_key(str(name), valid)
    if close and _folded(close) == _folded(str(name)):
        return BadInput(f"{what}; did you mean {close!r}?", **where)
    homes = schema.homes(str(name))
    if not valid and not homes:  # inside a block that only its own hook understands
        return BadInput(what, **where)
    if homes:
        more = f" (or {len(homes) - MANY} other places)" if len(homes) > MANY else ""
        what += f"; {name} belongs under {', or '.join(homes[:MANY])}{more}"
        return BadInput(what + (f"; or did you mean {close!r}?" if close else ""), **where)
    if close:
        return BadInput(f"{what}; did you mean {close!r}?", **where)
    far = difflib.get_close_matches(str(name), schema.every_name(), n=1, cutoff=0.8)
    if far:
        what += f"; {far[0]} is a key under {', or '.join(schema.homes(far[0])[:MANY])}"
    return BadInput(f"{what}; valid here: {', '.join(valid) or 'none'}", **where)


def _tag(path: Path, e: dict, where: dict, root: Node, schema: Schema) -> BadInput:
    """``kind:`` of a block with variants, missing or not one of them."""
    ctx = e["ctx"]
    name = ctx["discriminator"].strip("'")
    node = _node(root, (*path, name))
    where |= {"file": node.place, "key": dotted((*path, name))}
    tags = schema.tags(path, root)
    if e["type"] == "union_tag_not_found":
        return BadInput("a required key is missing", **where, expected=choices(tags))
    close = nearest(str(ctx["tag"]), tags)
    hint = choices(tags) + (f" (did you mean {close!r}?)" if close else "")
    return BadInput("wrong value", **where, got=_shown(node), expected=hint)


def _refused(path: Path, e: dict, where: dict, root: Node) -> BadInput:
    """A model's own check; its message may begin with the key path of what it is about."""
    inner = e["ctx"]["error"]
    if isinstance(inner, ValidationError):  # a hook that validated a model of its own
        first = inner.errors(include_url=False)[0]
        what = first["msg"].removeprefix("Value error, ")
        if first["loc"]:
            what = f"{'.'.join(map(str, first['loc']))}: {what}"
        return BadInput(what, **where, got=first["input"])
    message = str(inner)
    named = re.match(r"([\w-]+(?:\.[\w-]+)*): ", message)
    about = resolve(root, (*path, *named[1].split("."))) if named else None
    if about is not None:
        where["file"] = about.place
        if not path:
            where["key"] = None  # the message begins with it
    return BadInput(message, **where)


def _shown(node: Node) -> Any:
    value = node.value
    if isinstance(value, (dict, list)):
        kind = "a mapping" if isinstance(value, dict) else "a list"
        return _Words(f"{kind} of {len(value)}")
    return _Words("nothing") if value == "" else str(value)


class _Words(str):
    """Text shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def resolve(node: Node, path: Path) -> Node | None:
    """The node at a path, or None; an entry of a list goes by its number or its name."""
    for step in path:
        if isinstance(node.value, dict) and str(step) in node.value:
            node = node.value[str(step)]
        elif isinstance(node.value, list) and str(step).isdecimal() and int(step) < len(node.value):
            node = node.value[int(step)]
        elif isinstance(node.value, list) and (named := [n for n in node.value if name_of(n) == step]):
            node = named[0]
        else:
            return None
    return node


def name_of(entry: Node) -> str | None:
    """The name of a list's entry, where it has one."""
    name = entry.value.get("name") if isinstance(entry.value, dict) else None
    return name.value if name is not None and isinstance(name.value, str) else None


def _node(root: Node, path: Path) -> Node:
    """The node at a path, or the deepest one on the way that exists. The root stands for the file, not its line."""
    for length in range(len(path), 0, -1):
        node = resolve(root, path[:length])
        if node is not None:
            return node
    return Node(root.value, root.file)


def _path(e: dict, root: Node) -> Path:
    """pydantic's location without the names of union choices and validators it passes through."""
    path: Path = ()
    for step in e["loc"]:
        if resolve(root, (*path, step)) is not None:
            path = (*path, step)
    last = e["loc"][-1:]
    if path[-1:] != last and last and isinstance(last[0], str):
        if e["type"] == "missing":
            return (*path, *last)
        # a hook that takes {name: settings} apart reports a location that is not quite the file's
        inside = [below for below in _below(resolve(root, path), path) if below[-1] == last[0]]
        if len(inside) == 1:
            return inside[0]
        if e["type"] == "extra_forbidden":
            return (*path, *last)
    return path


def _below(node: Node, path: Path) -> Iterator[Path]:
    """Paths of everything inside a node."""
    if isinstance(node.value, (dict, list)):
        for key, child in node.value.items() if isinstance(node.value, dict) else enumerate(node.value):
            yield (*path, key)
            yield from _below(child, (*path, key))


def _folded(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _nearest_key(name: str, valid: list[str]) -> str | None:
    folded = {_folded(v): v for v in valid}
    return folded.get(_folded(name)) or nearest(name, valid)


class Schema:
    """The keys a model knows, from pydantic's core schema."""

    def __init__(self, model: type[BaseModel]):
        self.root = model.__pydantic_core_schema__
        self.definitions: dict[str, dict] = {}
        self._collect(self.root)

    def _collect(self, value: Any) -> None:
        """Every schema with a ``ref``; a later ``definition-ref`` may point at any of them."""
        if isinstance(value, dict):
            if isinstance(value.get("ref"), str):
                self.definitions[value["ref"]] = value
            for key, child in value.items():
                if key not in ("default", "metadata", "serialization", "cls"):
                    self._collect(child)
        elif isinstance(value, (list, tuple)):
            for child in value:
                self._collect(child)

    def open(self, schema: dict, value: Any = None) -> Iterator[dict]:
        """The schemas that may look at a value: through defaults, hooks and unions, down to what holds values.

        ``value`` (a Node's) picks the variant of a discriminated union, where it says which.
        """
        kind = schema["type"]
        if kind == "definition-ref":
            yield from self.open(self.definitions[schema["schema_ref"]], value)
        elif kind == "tagged-union":
            yield schema
            tag = value.get(schema["discriminator"]) if isinstance(value, dict) else None
            tags = [tag.value] if tag is not None and tag.value in schema["choices"] else schema["choices"]
            for name in tags:
                yield from self.open(schema["choices"][name], value)
        elif kind == "union":
            for choice in schema["choices"]:
                yield from self.open(choice[0] if isinstance(choice, tuple) else choice, value)
        elif kind in ("model-fields", "dict", "list", "tuple"):
            yield schema
        elif "schema" in schema:
            yield from self.open(schema["schema"], value)

    def children(self, schema: dict) -> Iterator[tuple[str, dict]]:
        """(key, schema) of what a holder holds; ``*`` stands for a name the user gives or an index."""
        if schema["type"] == "model-fields":
            for name, field in schema["fields"].items():
                alias = field.get("validation_alias")
                yield alias if isinstance(alias, str) else name, field["schema"]
        elif schema["type"] == "dict":
            yield from [("*", s) for s in [schema.get("values_schema")] if s]
        elif schema["type"] in ("list", "tuple"):
            items = schema.get("items_schema") or []
            yield from (("*", s) for s in (items if isinstance(items, list) else [items]))

    def at(self, path: Path, root: Node) -> list[dict]:
        """The holders that may be at a path."""
        node: Node | None = root
        found = list(self.open(self.root, root.value))
        for step in path:
            node = resolve(node, (step,)) if node else None
            below = [s for holder in found for key, s in self.children(holder) if key in ("*", step)]
            found = [s for b in below for s in self.open(b, node.value if node else None)]
        return found

    def names(self, path: Path, root: Node) -> list[str]:
        """Keys that are valid at a path."""
        keys = (key for s in self.at(path, root) if s["type"] == "model-fields" for key, _ in self.children(s))
        return list(dict.fromkeys(keys))

    def tags(self, path: Path, root: Node) -> list[str]:
        """Variants of the discriminated union at a path."""
        return [str(t) for s in self.at(path, root) if s["type"] == "tagged-union" for t in s["choices"]]

    def homes(self, name: str) -> list[str]:
        """Every place a key belongs, nearest the root first: ``train.optimizer``, ``sources.*.from (kind: pypi)``."""
        found = {(path, variant): None for path, variant, key in self._walk(self.root, (), ()) if key == name}
        return [
            (dotted(path) or "the top level") + variant
            for path, variant in sorted(found, key=lambda place: len(place[0]))
        ]

    def every_name(self) -> list[str]:
        return list(dict.fromkeys(key for _, _, key in self._walk(self.root, (), ())))

    def _walk(self, schema: dict, path: Path, above: tuple[int, ...]) -> Iterator[tuple[Path, str, str]]:
        """(path, variant, key) of every key; ``variant`` tells the models of a discriminated union apart."""
        holders = list(self.open(schema))
        several = any(holder["type"] == "tagged-union" for holder in holders)
        for holder in holders:
            if id(holder) in above:  # a model that contains itself
                continue
            variant = self._variant(holder) if several else ""
            for key, child in self.children(holder):
                if key != "*":
                    yield path, variant, key
                yield from self._walk(child, (*path, key), (*above, id(holder)))

    @staticmethod
    def _variant(holder: dict) -> str:
        """`` (kind: pypi)`` for a model with a field that can have only that value."""
        for name, field in holder.get("fields", {}).items():
            schema = field["schema"]
            while schema["type"] != "literal" and "schema" in schema:
                schema = schema["schema"]
            if schema["type"] == "literal" and len(schema["expected"]) == 1:
                return f" ({name}: {schema['expected'][0]})"
        return ""
