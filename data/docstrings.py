"""Docstrings of Python files -> documents: one a definition, headed by its name.

A definition is what a docstring is about, so it is the unit that can be ranked, deduplicated and sampled; a file's
docstrings together would be one long page of unrelated entries. The name in front (``Segment.midpoint``, or the
module's) says what the text speaks of, as an article's title does. Doctests stay: they are worked examples. A
docstring with hardly a sentence beside them ("Return the degree.") teaches nothing alone and is counted as
``little_prose``; a definition without one is no row. Files are parsed, never imported or run.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gristmill.data import decompress
from gristmill.data.rows import Bad, decode, encodable

if TYPE_CHECKING:
    from gristmill.data.raw import RawFile

MIN_PROSE = 120  # characters outside of examples and headings
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_UNDERLINE = re.compile(r"(?m)^[=~^*#\-]{3,}[ \t]*\n?")  # of a reStructuredText heading, or a rule
_EXAMPLE = re.compile(r"(?m)^[ \t]*>>>.*(?:\n[ \t]*\S.*)*")  # a doctest up to the blank line that ends its output


def definitions(raw: RawFile, name: str | None, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """One document a docstring: the definition's name, an empty line, the docstring without its indentation."""
    data = decompress.whole(raw)
    source = decode(data)
    if source is None:
        yield Bad("not_utf8", raw.name, 1, len(data))
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings are their business
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield Bad("not_python", raw.name, getattr(error, "lineno", None) or 1, len(data))
        return
    for title, node, line in _walk(tree, _module(raw.name)):
        text = ast.get_docstring(node, clean=False)
        if text is None or not text.strip():
            continue
        size = len(text.encode("utf-8", "replace"))
        if not encodable(text):  # a lone surrogate, written as an escape
            yield Bad("not_utf8", raw.name, line, size)
            continue
        text = _UNDERLINE.sub("", inspect.cleandoc(text)).strip()
        if len(_EXAMPLE.sub("", text).strip()) < MIN_PROSE:
            yield Bad("little_prose", raw.name, line, size)
        else:
            yield {"text": f"{title}\n\n{text}"}


def _module(file: str) -> str:
    """The module's own name; a package's for its __init__."""
    path = PurePosixPath(file.partition(".py")[0])
    return path.parent.name if path.name == "__init__" else path.name


def _walk(tree: ast.Module, module: str) -> Iterator[tuple[str, ast.AST, int]]:
    """(name, node, line) of the module and of every definition in it, in the order of the file."""
    yield module, tree, 1
    waiting: list[tuple[str, ast.stmt]] = [("", node) for node in reversed(tree.body)]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, _DEFINITIONS):
            yield prefix + node.name, node, node.lineno
            prefix += f"{node.name}."
        # statements alone: expressions hold no docstrings, and are most of the tree
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, _HOLDERS)]
        waiting += [(prefix, child) for child in reversed(inner)]
