"""What a reader yields: documents, and the rows that gave none, each with a reason.

A :class:`Bad` row is one of two kinds. One of :data:`REASONS` is a defect of the file, and stops a ``strict`` run. One
of :data:`ASIDE` is sound and simply no text to train on, such as a redirect: it is counted under either policy.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gristmill.data.raw import RawFile

REASONS = {
    "not_utf8": "text that has no UTF-8 form",
    "not_json": "a line that is not JSON",
    "not_object": "JSON that is not an object",
    "missing_field": "a field that is absent or null",
    "wrong_type": "a field of the wrong type",
    "empty": "text without a visible character",
    "truncated": "the file ends in the middle of a row",
    "corrupt": "data that does not decode",
    "not_python": "a file that does not parse as Python",
}
ASIDE = {
    "redirect": "a page that only names another",
    "other_namespace": "a page that is no article: a talk page, a template, a category",
    "little_prose": "next to nothing but headings, tables or code once the markup is gone",
}


class Bad(NamedTuple):
    """A row that gives no document.

    ``line`` counts from 1: lines of text, rows of parquet, items of JSON, pages of a dump. ``bytes`` is the row's size
    in the decompressed file where rows are lines, files or pages, else 0.
    """

    reason: str
    file: str
    line: int
    bytes: int = 0


def decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def encodable(text: str) -> bool:
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False


def get(record: dict, name: str) -> Any:
    """``record[name]``, or its parts by descent where ``name`` has dots and is no key itself; None if absent."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def document(record: Any, name: str, columns: tuple[str, ...]) -> dict | str:
    """The document in a parsed record, or the reason there is none."""
    if not isinstance(record, dict):
        return "not_object"
    text = get(record, name)
    if text is None:
        return "missing_field"
    if not isinstance(text, str):
        return "wrong_type"
    if not encodable(text):
        return "not_utf8"
    if not text.strip():
        return "empty"
    found = {"text": text}
    for column in columns:
        value = found[column] = get(record, column)
        if value is None:
            return "missing_field"
        if not isinstance(value, (str, int, float)):
            return "wrong_type"
        if isinstance(value, str) and not encodable(value):
            return "not_utf8"
    return found


def or_bad(found: dict | str, raw: RawFile, line: int, size: int = 0) -> dict | Bad:
    return Bad(found, raw.name, line, size) if isinstance(found, str) else found


def parse_json(text: str) -> Any:
    """``json.loads``; too deep a nesting or too long a number is a ValueError like any other bad JSON."""
    try:
        return json.loads(text)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
