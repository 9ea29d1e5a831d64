"""YAML whose scalars stay text, each value with the file and line it came from.

YAML 1.1 guesses types (`no` is false, `1e-4` is a string, `017` is 15, `1:30` is 90). Nothing is guessed here:
the schema knows what a field is (`textschema`). Mappings, lists, comments, quotes, block text, anchors and
aliases work as usual. Refused: a key given twice, merge keys (`<<`: a recipe has `base:`), tags (`!!float`),
keys that are not text, several documents in a file, and anything that is not UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import yaml

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.textschema import NULLS, Quoted

# Aliases of aliases can spell a billion values in ten lines; the largest recipe has a few hundred.
MAX_VALUES = 100_000
OVERRIDE = "override"


@dataclass(frozen=True)
class Node:
    """One value: text, a dict of nodes or a list of nodes. ``line`` is 1-based, of the key where there is one."""

    value: Any
    file: str
    line: int | None = None

    @property
    def place(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def null(self) -> bool:
        return self.value in NULLS and not isinstance(self.value, Quoted) if isinstance(self.value, str) else False

    def at(self, line: int) -> Node:
        return replace(self, line=line)

    def plain(self, keep_marks: bool = False) -> Any:
        """Nested dicts, lists and strings; ``keep_marks`` leaves ``Quoted`` and ``Removed`` in place."""
        if isinstance(self.value, dict):
            return {key: child.plain(keep_marks) for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain(keep_marks) for child in self.value]
        return self.value if keep_marks else str(self.value)


def parse(data: bytes, file: str) -> Node:
    """The one document in ``data``. Raises BadInput naming ``file``, line and column."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"not UTF-8 (byte {data[error.start]:#04x} at offset {error.start})", file=f"{file}:{line}"
        ) from None
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        if root is None:
            raise BadInput("the file is empty", file=file)
        return _Builder(file).build(root, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = "expected a single document" if "single document" in (error.context or "") else error.problem
        raise BadInput(f"not valid YAML: {what}", file=f"{file}:{mark.line + 1}:{mark.column + 1}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        what = f"not valid YAML: character {error.character:#x} is not allowed"
        raise BadInput(what, file=f"{file}:{line}:{column}") from None
    except RecursionError:
        raise BadInput("not valid YAML: nested too deeply", file=file) from None


def parse_value(text: str) -> Node:
    """The value of an override: `[...]`, `{...}` and quoted text are YAML, anything else is taken as it stands.

    So `*.txt`, `#3`, `a: b` and `- x` need no quotes inside the shell's.
    """
    text = text.strip()
    if text[:1] not in ("[", "{", '"', "'"):
        return Node(text, OVERRIDE)
    return _without_lines(parse(text.encode("utf-8", "surrogateescape"), OVERRIDE))


def _without_lines(node: Node) -> Node:
    value = node.value
    if isinstance(value, dict):
        value = {key: _without_lines(child) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_without_lines(child) for child in value]
    return Node(value, node.file)


class _Builder:
    """PyYAML's composed nodes into ours."""

    def __init__(self, file: str):
        self.file, self.count, self.open = file, 0, set()

    def fail(self, what: str, node: yaml.Node, path: tuple, **kwargs: Any) -> BadInput:
        place = f"{self.file}:{node.start_mark.line + 1}"
        return BadInput(what, file=place, key=".".join(map(str, path)) or None, **kwargs)

    def build(self, node: yaml.Node, path: tuple) -> Node:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self.fail(f"more than {MAX_VALUES} values (aliases of aliases?)", node, ())
        if id(node) in self.open:
            raise self.fail("an alias that contains itself", node, path)
        kind = {yaml.MappingNode: "map", yaml.SequenceNode: "seq", yaml.ScalarNode: "str"}[type(node)]
        if node.tag != f"tag:yaml.org,2002:{kind}":
            raise self.fail("YAML tags are not used in recipes", node, path, got=node.tag)
        line = node.start_mark.line + 1
        if kind == "str":
            text = Quoted(node.value) if node.value in NULLS and node.style else node.value
            return Node(text, self.file, line)
        self.open.add(id(node))
        if kind == "seq":
            value: Any = [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
        else:
            value = self.mapping(node, path)
        self.open.discard(id(node))
        return Node(value, self.file, line)

    def mapping(self, node: yaml.MappingNode, path: tuple) -> dict[str, Node]:
        value: dict[str, Node] = {}
        for key_node, child in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fail("a key must be text", key_node, path)
            key = self.build(key_node, path).value
            if key == "<<" and not key_node.style:
                raise self.fail("merge keys are not supported; inherit with `base:`", key_node, path, got=key)
            if key in value:
                where = f"first on line {value[key].line}"
                raise self.fail(f"the key is given twice ({where})", key_node, (*path, key))
            value[str(key)] = self.build(child, (*path, key)).at(key_node.start_mark.line + 1)
        return value
