"""Bad rows are named or counted alike in every format, and no text is lost or changed on the way."""

import bz2
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from gristmill.data.fetch import fetch
from gristmill.data.readers import read
from gristmill.data.sources import SourceConfig
from gristmill.kernels.common.errors import BadInput

LONG = "x" * 3_000_000
PACK = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
COMPRESSED = [suffix for suffix in PACK if suffix]


def run(path: Path, how, policy="skip", **more):
    """(documents, {reason: rows}, {reason: examples})"""
    facts = {"domain": "d", "lang": "en", "licence": "MIT"}
    source = SourceConfig.model_validate({"from": {"kind": "files", "path": str(path)}, "read": how, **facts, **more})
    dropped, examples = {}, {}
    documents = list(read(source, fetch(source.origin, path.parent), policy, dropped, examples))
    return documents, {reason: count[0] for reason, count in dropped.items()}, examples


def texts(path: Path, how, policy="strict"):
    return [document["text"] for document in run(path, how, policy)[0]]


def write(path: Path, data: bytes) -> Path:
    suffix = path.suffix if path.suffix in PACK else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACK[suffix](data))
    return path


def rows(*values) -> bytes:
    return b"".join(v if isinstance(v, bytes) else json.dumps(v).encode() + b"\n" for v in values)


# The rows of fault B05, the last one cut in the middle of its string.
B05 = rows({"text": "good"}, {"text": 5}, [], {"text": None}, b"\xff\xfe\n", {"text": LONG}, b'{"text": "half a st')
B05_BAD = {"wrong_type": 1, "not_object": 1, "missing_field": 1, "not_utf8": 1, "truncated": 1}
B05_AT = [("wrong_type", 2), ("not_object", 3), ("missing_field", 4), ("not_utf8", 5), ("truncated", 7)]


@pytest.mark.parametrize("suffix", PACK)
def test_malformed_rows_are_counted_with_their_place(tmp_path, suffix):
    path = write(tmp_path / f"b05.jsonl{suffix}", B05)
    documents, bad, examples = run(path, {"jsonl": "text"})
    assert [d["text"] for d in documents] == ["good", LONG]
    assert bad == B05_BAD
    assert examples == {reason: [f"{path.name}:{line}"] for reason, line in B05_AT}


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("reason, line", B05_AT)
def test_strict_stops_at_the_first_bad_row_and_names_it(tmp_path, suffix, reason, line):
    kept = [r + b"\n" for r in B05.split(b"\n")[: line - 1]]
    for earlier in range(1, line - 1):  # leave one bad row: the one asked about
        kept[earlier] = rows({"text": "fine"})
    path = write(tmp_path / f"x.jsonl{suffix}", b"".join(kept) + b"\n".join(B05.split(b"\n")[line - 1 :]))
    with pytest.raises(BadInput, match=rf"x.jsonl{suffix}:{line}: {reason}: "):
        run(path, {"jsonl": "text"}, "strict")


def test_skip_keeps_the_books(tmp_path):
    path = write(tmp_path / "x.jsonl", rows(*[b"nope\n"] * 5, {"text": "a"}, {"text": " "}))
    source = SourceConfig.model_validate(
        {
            "from": {"kind": "files", "path": str(path)},
            "read": {"jsonl": "text"},
            "domain": "d",
            "lang": "en",
            "licence": "x",
        }
    )
    dropped, examples = {}, {}
    assert len(list(read(source, fetch(source.origin, tmp_path), "skip", dropped, examples))) == 1
    assert dropped == {"not_json": [5, 20], "empty": [1, 13]}  # rows, bytes
    assert examples == {"not_json": ["x.jsonl:1", "x.jsonl:2", "x.jsonl:3"], "empty": ["x.jsonl:7"]}


def test_one_rule_for_every_format(tmp_path):
    """The same records through each format give the same documents and the same reasons."""
    values = ["plain", "  kept as is \r\n\t", "", " \n", None, "nul \0 inside", "é\u2028ü\U0001f600", LONG]
    records = [{"text": v, "n": i} for i, v in enumerate(values)]
    body = rows(*records)
    results = [run(write(tmp_path / f"x.jsonl{s}", body), {"jsonl": "text"}, columns=["n"])[:2] for s in PACK]
    results.append(
        run(write(tmp_path / "x.json.gz", json.dumps(records).encode()), {"json": "text"}, columns=["n"])[:2]
    )
    for i, kind in enumerate([pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]):
        data = [v.encode() if v is not None and kind == pa.binary() else v for v in values]
        table = pa.table({"text": pa.array(data, kind), "n": list(range(len(values)))})
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=3)
        results.append(run(tmp_path / f"{i}.parquet", {"parquet": "text"}, columns=["n"])[:2])
    documents, bad = results[0]
    assert documents == [{"text": v, "n": i} for i, v in enumerate(values) if i not in (2, 3, 4)]
    assert bad == {"empty": 2, "missing_field": 1}
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("cut", [1, 10, 400])
def test_truncated_compression_is_reported_never_taken_for_the_end(tmp_path, suffix, cut):
    body = rows(*({"text": f"row {i} {hash_(i)}"} for i in range(5000)))
    path = tmp_path / f"x.jsonl{suffix}"
    path.write_bytes(PACK[suffix](body)[:-cut])
    documents, bad, examples = run(path, {"jsonl": "text"})
    assert bad == {"truncated": 1}
    assert [d["text"] for d in documents] == [f"row {i} {hash_(i)}" for i in range(len(documents))]
    # one place for all: the row behind the last whole one
    assert examples["truncated"] == [f"x.jsonl{suffix}:{len(documents) + 1}"]
    with pytest.raises(BadInput, match="truncated"):
        run(path, {"jsonl": "text"}, "strict")
    for how in ("lines", "files"):
        assert run(path, how)[1] == {"truncated": 1}
    if suffix == ".gz":  # cut by 10 bytes only the checksum and a little are lost
        assert len(documents) > 4900


def hash_(i: int) -> int:
    return i * 2654435761 % 2**32


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_members_in_a_row_are_one_stream_and_garbage_is_not(tmp_path, suffix):
    path = tmp_path / f"x.txt{suffix}"
    path.write_bytes(PACK[suffix](b"one\ntw") + PACK[suffix](b"o\nthree\n"))
    assert texts(path, "lines") == ["one", "two", "three"]
    path.write_bytes(PACK[suffix](b"one\n") + b"garbage")
    assert run(path, "lines")[:2] == ([{"text": "one"}], {"corrupt": 1})
    path.write_bytes(b"")
    assert run(path, "lines")[:2] == ([], {"truncated": 1})


def test_lines_end_at_line_feeds_only_and_blank_ones_are_no_rows(tmp_path):
    body = "a\u2028b\x0cc\r\n\n  \n\x85\u3000\n d \nlast".encode()
    assert texts(write(tmp_path / "x.txt", body), "lines") == ["a\u2028b\x0cc", " d ", "last"]


@pytest.mark.parametrize("suffix", PACK)
def test_byte_order_mark_is_dropped_at_the_head_alone(tmp_path, suffix):
    mark = b"\xef\xbb\xbf"
    path = write(tmp_path / f"x{suffix}", mark + b'{"text": "a"}\n' + mark + b'{"text": "b"}\n')
    assert run(path, {"jsonl": "text"})[:2] == ([{"text": "a"}], {"not_json": 1})
    assert texts(path, "lines") == ['{"text": "a"}', '\ufeff{"text": "b"}']
    assert texts(path, "files") == ['{"text": "a"}\n\ufeff{"text": "b"}\n']
    assert texts(write(tmp_path / f"y{suffix}", mark + b'[{"text": "a"}]'), {"json": "text"}) == ["a"]


def test_lone_surrogate_is_not_utf8_and_a_pair_is(tmp_path):
    body = rb'{"text": "\ud83d\ude00"}' + b"\n" + rb'{"text": "a\ud83d"}' + b"\n"
    assert run(write(tmp_path / "x.jsonl", body), {"jsonl": "text"})[:2] == ([{"text": "\U0001f600"}], {"not_utf8": 1})
    body = rb'{"good": {"extract": "a"}, "bad\ud83d": {"extract": "b"}}'
    assert run(write(tmp_path / "w.json", body), "wiki_leads")[:2] == ([{"text": "good\na"}], {"not_utf8": 1})


def test_json_that_would_break_the_parser_is_a_bad_row(tmp_path):
    deep, wide = b'{"text": ' + b"[" * 100_000 + b"\n", b'{"text": ' + b"1" * 10_000 + b"}\n"
    assert run(write(tmp_path / "x.jsonl", deep + wide + rows({"text": "a"})), {"jsonl": "text"})[:2] == (
        [{"text": "a"}],
        {"not_json": 2},
    )


def test_dotted_fields_descend_unless_the_name_itself_is_there(tmp_path):
    records = [{"a": {"b": "deep"}}, {"a.b": "flat", "a": {"b": "deep"}}, {"a": "no object"}, {}]
    assert run(write(tmp_path / "x.jsonl", rows(*records)), {"jsonl": "a.b"})[:2] == (
        [{"text": "deep"}, {"text": "flat"}],
        {"missing_field": 2},
    )
    pq.write_table(pa.table({"a": [{"b": "deep", "s": 1.5}, None], "other": [1, 2]}), tmp_path / "x.parquet")
    assert run(tmp_path / "x.parquet", {"parquet": "a.b"}, columns=["a.s"])[:2] == (
        [{"text": "deep", "a.s": 1.5}],
        {"missing_field": 1},
    )
    pq.write_table(pa.table({"a.b": ["flat"], "a": [{"b": "deep"}]}), tmp_path / "y.parquet")
    assert texts(tmp_path / "y.parquet", {"parquet": "a.b"}) == ["flat"]


def test_carried_columns_are_held_to_the_rule_too(tmp_path):
    records = [{"text": "a", "s": 0.5}, {"text": "b"}, {"text": "c", "s": [1]}, {"text": "d", "s": None}]
    assert run(write(tmp_path / "x.jsonl", rows(*records)), {"jsonl": "text"}, columns=["s"])[:2] == (
        [{"text": "a", "s": 0.5}],
        {"missing_field": 2, "wrong_type": 1},
    )


def test_wiki_leads_are_title_and_extract(tmp_path):
    entries = {
        "A": {"extract": "about a", "topic": "t"},
        "B": {"description": "no extract"},
        "C": 3,
        "D": {"extract": " "},
    }
    path = write(tmp_path / "w.json", json.dumps(entries).encode())
    documents, bad, examples = run(path, "wiki_leads")
    assert documents == [{"text": "A\nabout a"}] and examples["not_object"] == ["w.json:3"]
    assert bad == {"missing_field": 1, "not_object": 1, "empty": 1}
    assert run(path, "wiki_leads", columns=["topic"])[0] == [{"text": "A\nabout a", "topic": "t"}]


def test_parquet_with_one_undecodable_row_loses_that_row_only(tmp_path):
    offsets, data = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffb")
    column = pa.StringArray.from_buffers(3, offsets, data)
    pq.write_table(pa.table({"text": column}), tmp_path / "x.parquet")
    documents, bad, examples = run(tmp_path / "x.parquet", {"parquet": "text"})
    assert [d["text"] for d in documents] == ["a", "b"] and examples == {"not_utf8": ["x.parquet:2"]}


@pytest.mark.parametrize("policy", ["strict", "skip"])
def test_a_container_without_separable_rows_is_an_error_under_both_policies(tmp_path, policy):
    pq.write_table(pa.table({"text": [1, 2], "body": ["a", "b"]}), tmp_path / "x.parquet")
    cases = [
        ({"parquet": "text"}, "x.parquet: text: text column of the wrong type; got 'int64'; expected string"),
        ({"parquet": "bodi"}, "no such column; got 'bodi'; did you mean 'body'"),
    ]
    for how, message in cases:
        with pytest.raises(BadInput, match=message):
            run(tmp_path / "x.parquet", how, policy)
    half = tmp_path / "half.parquet"
    half.write_bytes((tmp_path / "x.parquet").read_bytes()[:-5])
    with pytest.raises(BadInput, match="half.parquet: not a readable parquet file"):
        run(half, {"parquet": "body"}, policy)
    for name, data, message in [
        ("half.json", b'[{"text": "a"}, {"te', "half.json: not a JSON document"),
        ("bytes.json", b'["\xff"]', "bytes.json: not_utf8.*byte 2"),
        ("dict.json", b"{}", "wrong shape; got 'dict'; expected a list of objects"),
    ]:
        with pytest.raises(BadInput, match=message):
            run(write(tmp_path / name, data), {"json": "text"}, policy)
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(b'[{"text": "a"}]')[:-4])
    with pytest.raises(BadInput, match="cut.json.gz: truncated"):
        run(cut, {"json": "text"}, policy)


def test_files_are_read_by_name_not_by_directory_order(tmp_path):
    for name in ("b.txt", "c/a.txt", "a.txt", "empty.txt"):
        write(tmp_path / "in" / name, b"" if name == "empty.txt" else name.encode() + b"\n")
    assert texts(tmp_path / "in", "files") == ["a.txt\n", "b.txt\n", "c/a.txt\n"]


def test_a_file_that_vanished_is_named(tmp_path):
    path = write(tmp_path / "x.txt", b"a\n")
    source = SourceConfig.model_validate(
        {"from": {"kind": "files", "path": str(path)}, "read": "lines", "domain": "d", "lang": "en", "licence": "x"}
    )
    fetched = fetch(source.origin, tmp_path)
    path.unlink()
    with pytest.raises(BadInput, match="x.txt: cannot be read"):
        list(read(source, fetched))
