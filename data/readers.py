"""Raw files -> documents: one reader per format, one rule for bad rows in all of them.

A reader yields, for each row of a raw file, a document (``text`` and the carried columns) or a :class:`Bad`
with a reason (``data.rows``). :func:`read` then applies ``on_bad_row``: ``strict`` stops at the first bad row,
``skip`` counts it. Skipping drops *rows*: a container whose rows cannot be told apart any more (a JSON
document that does not parse, a parquet file without its footer) is :class:`BadInput` under both.

Text comes out as it went in. It is strictly UTF-8; a byte order mark at the head of a file is dropped; NUL
is a character like any other and stays; a lone surrogate (JSON's ``"\\ud800"``) has no UTF-8 form, so its row is
``not_utf8``. Lines end at LF or CRLF and nowhere else. A blank line or an empty file holds no row at all; a
record whose text is blank is a row, and is ``empty``. Files named ``.gz``, ``.bz2`` or ``.zst`` are decompressed
(several members in a row as one stream); one that ends early yields its complete rows, then ``truncated``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gristmill.data import decompress, docstrings, rows, wikitext
from gristmill.data.decompress import Broken
from gristmill.data.rows import ASIDE, REASONS, Bad
from gristmill.kernels.common.errors import BadInput

_EXAMPLES = 3

if TYPE_CHECKING:
    from gristmill.data.raw import Fetched, RawFile
    from gristmill.data.sources import SourceConfig

# --- readers ----------------------------------------------------------------------------------------------------


def files(raw: RawFile, name: str | None, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """One document a file."""
    data = decompress.whole(raw)
    text = rows.decode(data)
    if text is None:
        yield Bad("not_utf8", raw.name, 1, len(data))
    elif text.strip():
        yield {"text": text}


def lines(raw: RawFile, name: str | None, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """One document a line."""
    for number, line, _ in decompress.lines(raw):
        text = rows.decode(line)
        if text is None:
            yield Bad("not_utf8", raw.name, number, len(line))
        elif text.strip():
            yield {"text": text}


def jsonl(raw: RawFile, name: str, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """One JSON object a line. A last line that has no line end and does not parse was cut: ``truncated``."""
    for number, line, ended in decompress.lines(raw):
        if not line.strip():
            continue
        text = rows.decode(line)
        if text is None:
            yield Bad("not_utf8", raw.name, number, len(line))
            continue
        try:
            record = rows.parse_json(text)
        except ValueError:
            yield Bad("not_json" if ended else "truncated", raw.name, number, len(line))
            continue
        yield rows.or_bad(rows.document(record, name, columns), raw, number, len(line))


def _json_file(raw: RawFile, kind: type, expected: str) -> Any:
    try:
        value = rows.parse_json(decompress.whole(raw).decode())
    except Broken as e:
        raise BadInput(f"{e.reason}: {REASONS[e.reason]}", file=raw.path) from None
    except UnicodeDecodeError as e:
        raise BadInput(f"not_utf8: {REASONS['not_utf8']}, at byte {e.start}", file=raw.path) from None
    except ValueError as e:
        raise BadInput(f"not a JSON document, or only half of one: {e}", file=raw.path) from None
    if not isinstance(value, kind):
        raise BadInput("JSON of the wrong shape", file=raw.path, got=type(value).__name__, expected=expected)
    return value


def json_list(raw: RawFile, name: str, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """A file that is one JSON list of objects."""
    for number, record in enumerate(_json_file(raw, list, "a list of objects"), 1):
        yield rows.or_bad(rows.document(record, name, columns), raw, number)


def wiki_leads(raw: RawFile, name: str | None, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """Encyclopedia leads: a JSON object title -> {extract, description, topic}; text = title, line feed, extract."""
    entries = _json_file(raw, dict, "an object of title -> entry")
    for number, (title, entry) in enumerate(entries.items(), 1):
        document = rows.document(entry, "extract", columns)
        if isinstance(document, dict):
            document["text"] = f"{title}\n{document['text']}"
            if not rows.encodable(title):
                document = "not_utf8"
        yield rows.or_bad(document, raw, number)


def parquet(raw: RawFile, name: str, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """Rows of a parquet file; the text column is string or binary, and is held to UTF-8 either way."""
    try:
        with pq.ParquetFile(raw.path) as file:
            schema = file.schema_arrow
            paths = {column: _column(schema, column, raw) for column in (name, *columns)}
            kind = _type(schema, paths[name])
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not any(test(kind) for test in _TEXT):
                raise BadInput(
                    "text column of the wrong type", file=raw.path, key=name, got=str(kind), expected="string"
                )
            number = 1
            # 256 rows: even 3 MB documents keep a batch below a gigabyte
            for batch in file.iter_batches(256, columns=[".".join(path) for path in paths.values()]):
                values = {column: _values(batch, path) for column, path in paths.items()}
                for at in range(batch.num_rows):
                    record = {column: value[at] for column, value in values.items()}
                    undecodable = any(isinstance(v, bytes) for v in record.values())
                    yield rows.or_bad("not_utf8" if undecodable else rows.document(record, name, columns), raw, number)
                    number += 1
    except (pa.ArrowException, OSError) as e:
        raise BadInput(f"not a readable parquet file, or only half of one: {e}", file=raw.path) from None


_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


def _column(schema: pa.Schema, name: str, raw: RawFile) -> tuple[str, ...]:
    """Path of a column: its name, or its dotted parts where it lies inside structs."""
    for path in ((name,), tuple(name.split("."))):
        try:
            _type(schema, path)
        except KeyError:
            continue
        return path
    raise BadInput("no such column", file=raw.path, got=name, valid=schema.names)


def _type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """Type of the column or nested field at ``path``; KeyError where there is none."""
    kind = schema.field(path[0]).type
    for part in path[1:]:
        index = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if index < 0:
            raise KeyError(part)
        kind = kind.field(index).type
    return kind


def _values(batch: pa.RecordBatch, path: tuple[str, ...]) -> list:
    """Python values of a column; text decoded strictly, left as bytes where it is not UTF-8."""
    array = batch.column(path[0])
    for part in path[1:]:
        array = pc.struct_field(array, part)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not any(test(array.type) for test in _TEXT):
        return array.to_pylist()
    # Arrow decodes a whole column or fails; as bytes, one bad row stays one bad row.
    values = array.cast(pa.large_binary()).to_pylist()
    decoded = [None if v is None else rows.decode(v) for v in values]
    return [v if d is None else d for v, d in zip(values, decoded, strict=True)]


class Reader(NamedTuple):
    """How a format is read: ``rows(raw, field, columns)``, which may raise Broken behind the last whole row;
    whether a text field must be named; whether fields can be carried."""

    rows: Callable[[RawFile, Any, tuple[str, ...]], Iterator[dict | Bad]]
    needs_field: bool
    carries_columns: bool


READERS: dict[str, Reader] = {
    "files": Reader(files, False, False),
    "lines": Reader(lines, False, False),
    "jsonl": Reader(jsonl, True, True),
    "json": Reader(json_list, True, True),
    "parquet": Reader(parquet, True, True),
    "wiki_leads": Reader(wiki_leads, False, True),
    "wikitext": Reader(wikitext.pages, False, False),
    "docstrings": Reader(docstrings.definitions, False, False),
}


def read(
    source: SourceConfig,
    fetched: Fetched,
    on_bad_row: Literal["strict", "skip"] = "strict",
    dropped: dict[str, list[int]] | None = None,
    examples: dict[str, list[str]] | None = None,
) -> Iterator[dict]:
    """Yield the documents of all fetched files, by file name, then by position.

    ``strict`` raises BadInput at the first bad row, with file, line and reason. ``skip`` passes over it and counts
    it: ``dropped[reason]`` = [rows, bytes], ``examples[reason]`` = the first three as ``file:line``. Sound rows that
    are no text to train on (``rows.ASIDE``) are counted under both.
    """
    dropped = {} if dropped is None else dropped
    examples = {} if examples is None else examples
    for raw in sorted(fetched.files, key=lambda raw: raw.name):
        for row in _rows(source, raw):
            if isinstance(row, dict):
                yield row
                continue
            if on_bad_row == "strict" and row.reason not in ASIDE:
                raise BadInput(f"{row.reason}: {REASONS[row.reason]}", file=f"{raw.path}:{row.line}")
            count = dropped.setdefault(row.reason, [0, 0])
            count[0], count[1] = count[0] + 1, count[1] + row.bytes
            if len(shown := examples.setdefault(row.reason, [])) < _EXAMPLES:
                shown.append(f"{row.file}:{row.line}")


def _rows(source: SourceConfig, raw: RawFile) -> Iterator[dict | Bad]:
    try:
        yield from READERS[source.read.format].rows(raw, source.read.field, source.columns)
    except Broken as e:
        yield Bad(e.reason, raw.name, e.line)
    except OSError as e:
        raise BadInput(f"cannot be read: {e.strerror or e}", file=raw.path) from None
