"""A folder of files into sources: which reader and field each needs, what it is, and about how much there is."""

from __future__ import annotations

import glob
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.data import decompress
from gristmill.data.raw import RawFile
from gristmill.data.readers import READERS
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.progress import bar
from gristmill.recipes.init import language

PACKED = (".gz", ".bz2", ".zst")
PACKING = 3.5  # bytes of text in a compressed byte, about, where a file is too large to be unpacked for the answer
UNPACKED = 1 << 24  # bytes of a compressed file that are unpacked for it
RECORDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}
PROSE = (".txt", ".md", ".rst", ".text", ".tex", ".org", ".adoc")
CODE = {
    ".py": "py", ".js": "js", ".ts": "ts", ".java": "java", ".c": "c", ".h": "c", ".cpp": "cpp", ".cc": "cpp",
    ".hpp": "cpp", ".rs": "rust", ".go": "go", ".rb": "ruby", ".sh": "sh", ".sql": "sql", ".jl": "julia", ".r": "r",
}  # fmt: skip
FEWEST = 30  # documents below which a source cannot have some held out for validation
MOST = 12  # sources; with more, folders no longer make sources of their own
LOOKED_AT = 8  # files of a source that are opened, evenly spaced
SAMPLE = 250  # documents looked at in each of them
SAMPLE_BYTES = 1 << 18  # and text


@dataclass(frozen=True)
class Found:
    """One source, as guessed. ``documents`` and ``bytes`` (of text) are estimates."""

    name: str
    path: str  # absolute: a file or a glob
    files: int
    format: str
    text_field: str | None
    lang: str
    domain: str
    documents: int
    bytes: int
    sample: list[str] = field(repr=False)


@dataclass
class _Group:
    folder: str  # first folder below the data, "" for files beside it
    suffix: str  # without what a compressor added
    recursive: bool
    files: list[Path] = field(default_factory=list)


def scan(data: Path) -> tuple[list[Found], list[str]]:
    """(sources, notes on what was left out). Raises BadInput for a folder that is none, is empty, or holds nothing that
    can be read."""
    if not data.is_dir():
        raise BadInput("no such folder" if not data.exists() else "not a folder", file=data, key="--data")
    paths = [p.relative_to(data) for p in sorted(data.rglob("*")) if p.is_file()]
    paths = [p for p in paths if not any(part.startswith(".") for part in p.parts)]
    if not paths:
        raise BadInput("the folder holds no file", file=data, key="--data")
    groups, unknown = _groups(paths, by_folder=True)
    if len(groups) > MOST:
        groups, unknown = _groups(paths, by_folder=False)
    notes = [f"{count} x {suffix or 'no suffix'}: no reader for it" for suffix, count in sorted(unknown.items())]
    found: list[Found] = []
    groups = [part for group in groups for part in _apart(data, group)]
    with bar("sources looked at", len(groups)) as advance:
        for group in groups:
            try:
                source = _look(data, group, {f.name for f in found})
            except BadInput as error:
                notes.append(str(error))
            else:
                found.append(source)
            advance(1)
    if not found:
        raise BadInput("nothing in the folder can be read: " + "; ".join(notes), file=data, key="--data")
    return found, notes


def _groups(paths: list[Path], by_folder: bool) -> tuple[list[_Group], Counter[str]]:
    """Files of one suffix and first folder, and how many have a suffix we do not read."""
    groups: dict[tuple[str, str], _Group] = {}
    unknown: Counter[str] = Counter()
    for path in paths:
        suffix = PurePath(_bare(path.name)).suffix
        if suffix.lower() not in {*RECORDS, *PROSE, *CODE}:
            unknown[suffix] += 1
            continue
        folder = path.parts[0] if by_folder and len(path.parts) > 1 else ""
        recursive = bool(folder) or not by_folder
        groups.setdefault((folder, suffix), _Group(folder, suffix, recursive)).files.append(path)
    return list(groups.values()), unknown


def _apart(data: Path, group: _Group) -> list[_Group]:
    """The group, or where its few files of records differ in kind or text field, a group for each file."""
    if group.suffix.lower() not in RECORDS or not 1 < len(group.files) <= LOOKED_AT:
        return [group]
    kinds = set()
    for path in group.files:
        try:
            kinds.add(_kind(group, [_raw(data, path)]))
        except BadInput:
            kinds.add(path)
    return [replace(group, files=[path]) for path in group.files] if len(kinds) > 1 else [group]


def _kind(group: _Group, raws: list[RawFile]) -> tuple[str, str | None]:
    """(reader, text field) of files of records."""
    form = RECORDS[group.suffix.lower()]
    if form == "json":
        form = _json_kind(raws[0])
    return form, _text_field(form, raws)


def _look(data: Path, group: _Group, taken: set[str]) -> Found:
    """Open a few of a group's files and guess."""
    kind = group.suffix.lower()
    step = max(1, len(group.files) // LOOKED_AT)
    raws = [_raw(data, p) for p in group.files[::step][:LOOKED_AT]]
    where = f"{group.folder or '.'}/*{group.suffix}"
    form, text_field = _kind(group, raws) if kind in RECORDS else ("files", None)
    if kind in PROSE and len(group.files) < FEWEST:
        form = "lines"  # a few long files: their lines are the documents
    sample, share = _sample(form, text_field, raws)
    if not sample:
        raise BadInput(f"{where}: not one document could be read")
    text = sum(len(t.encode()) for t in sample)
    documents, size = _amount(form, data, group, text / len(sample), share)
    if documents < FEWEST:
        raise BadInput(f"{where}: about {documents} documents; fewer than {FEWEST} cannot have some held out")
    lang = CODE.get(kind) or language.guess(t[:400] for t in sample[:: max(1, len(sample) // 300)])
    return Found(
        name=_name(group, taken),
        path=_pattern(data, group),
        files=len(group.files),
        format=form,
        text_field=text_field,
        lang=lang,
        domain="code" if kind in CODE else language.domain(lang),
        documents=documents,
        bytes=size,
        sample=sample,
    )


def _json_kind(raw: RawFile) -> str:
    """``json`` for one list of objects, ``jsonl`` for objects line by line under the same suffix."""
    head = b"".join(itertools.islice(_blocks(raw), 1)).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] == b"[":
        return "json"
    try:
        if head[:1] == b"{" and isinstance(json.loads(head.splitlines()[0]), dict):
            return "jsonl"
    except ValueError:
        pass
    raise BadInput(f"{raw.name}: JSON that is neither a list of objects nor one object a line")


def _text_field(form: str, raws: list[RawFile]) -> str:
    """The field (dots descend) that holds most of the text; it must be in half of the records or more."""
    size: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    records = 0
    for raw in raws:
        for record in itertools.islice(_records(form, raw), SAMPLE):
            records += 1
            for name, text in _texts(record, ""):
                size[name] += len(text)
                seen[name] += bool(text.strip())
    usual = [name for name in size if 2 * seen[name] >= records]
    if not usual:
        raise BadInput(f"{raws[0].name}: no field of its records is text")
    return max(usual, key=lambda name: size[name])


def _records(form: str, raw: RawFile) -> Iterator[Any]:
    if form == "jsonl":
        for _, line, _ in _lines(raw):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue
    elif form == "json":
        try:
            yield from json.loads(decompress.whole(raw))
        except (ValueError, RecursionError, decompress.Broken):
            raise BadInput(f"{raw.name}: not a JSON document, or only half of one") from None
    else:
        try:
            with pq.ParquetFile(raw.path) as file:
                yield from next(file.iter_batches(SAMPLE), pa.record_batch({})).to_pylist()
        except (pa.ArrowException, OSError):
            raise BadInput(f"{raw.name}: not a readable parquet file") from None


def _texts(record: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """(dotted name, text) of a record's text fields."""
    for key, value in record.items() if isinstance(record, dict) else ():
        if isinstance(value, str):
            yield prefix + key, value
        elif isinstance(value, dict):
            yield from _texts(value, f"{prefix}{key}.")


def _sample(form: str, text_field: str | None, raws: list[RawFile]) -> tuple[list[str], float]:
    """(documents, text bytes in a byte of the decompressed files), as the reader itself gives them."""
    sample: list[str] = []
    text = read = 0
    for raw in raws:
        budget = SAMPLE_BYTES
        try:
            for row in itertools.islice(READERS[form].rows(raw, text_field, ()), SAMPLE):
                if isinstance(row, dict):
                    sample.append(row["text"])
                    budget -= len(row["text"].encode())
                if budget < 0:
                    break
        except decompress.Broken:
            pass  # the run says what is wrong with the rest
    if form == "jsonl":  # what else the lines hold: keys, other fields
        for raw in raws:
            for _, line, _ in itertools.islice(_lines(raw), SAMPLE):
                read += len(line) + 1
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                text += sum(len(t.encode(errors="replace")) for name, t in _texts(record, "") if name == text_field)
    return sample, text / read if read else 1.0


def _amount(form: str, data: Path, group: _Group, mean: float, share: float) -> tuple[int, int]:
    """(documents, bytes of text) of all files of a group, about."""
    if form == "parquet":
        try:
            documents = sum(pq.read_metadata(data / p).num_rows for p in group.files)
        except (pa.ArrowException, OSError) as error:
            raise BadInput(f"{group.folder or '.'}/*{group.suffix}: not readable parquet: {error}") from None
        return documents, round(documents * mean)
    packed = next((p for p in group.files if p.suffix in PACKED), None)
    packing = _packing(_raw(data, packed)) if packed else 1.0
    size = sum((data / p).stat().st_size * (packing if p.suffix in PACKED else 1) for p in group.files) * share
    return (len(group.files) if form == "files" else round(size / max(1.0, mean))), round(size)


def _packing(raw: RawFile) -> float:
    """Bytes that a byte of a compressed file unpacks to."""
    read = 0
    for block in _blocks(raw):
        read += len(block)
        if read > UNPACKED:
            return PACKING
    return read / max(1, raw.bytes)


def _pattern(data: Path, group: _Group) -> str:
    """A path or glob that stands for just the group's files."""
    if len(group.files) == 1:
        return str(data / group.files[0])
    packing = {p.suffix if p.suffix in PACKED else "" for p in group.files}
    end = group.suffix + (packing.pop() if len(packing) == 1 else "*")
    parts = [glob.escape(str(data)), *filter(None, [glob.escape(group.folder)]), *(["**"] if group.recursive else [])]
    return str(Path(*parts, f"*{end}"))


def _name(group: _Group, taken: set[str]) -> str:
    stem = group.folder or (PurePath(_bare(group.files[0].name)).stem if len(group.files) == 1 else "")
    suffix = group.suffix.lower().lstrip(".")
    slug = re.sub(r"\W+", "_", stem.lower()).strip("_") or suffix
    names = itertools.chain([slug, f"{slug}_{suffix}"], (f"{slug}_{suffix}_{k}" for k in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _bare(name: str) -> str:
    """A file's name without what a compressor added."""
    return next((name.removesuffix(s) for s in PACKED if name.endswith(s)), name)


def _raw(data: Path, path: Path) -> RawFile:
    return RawFile(path.as_posix(), data / path, "", (data / path).stat().st_size)


def _blocks(raw: RawFile) -> Iterator[bytes]:
    try:
        yield from decompress.blocks(raw)
    except decompress.Broken:
        return


def _lines(raw: RawFile) -> Iterator[tuple[int, bytes, bool]]:
    try:
        yield from decompress.lines(raw)
    except decompress.Broken:
        return
