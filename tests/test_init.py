"""`gristmill init`: whatever lies in the folder, the recipe it writes loads, plans, and runs to a release."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from pathlib import Path

import mini
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.data import fetch, readers
from gristmill.kernels.common.errors import BadInput
from gristmill.recipes.init import language, sizes, write
from gristmill.recipes.init.scan import scan
from gristmill.recipes.runner import loader
from gristmill.recipes.runner.schema import Recipe

ENGLISH = "The keeper of the harbour wrote that they were not ready, but the letters from the village have arrived. "
TEXTS = [ENGLISH + mini.prose(random.Random(k), 60) for k in range(40)]
HAN = ["".join(random.Random(k).choices(mini.HAN, k=60)) + "。" for k in range(40)]


def jsonl(records: list[dict]) -> bytes:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode()


def put(folder: Path, name: str, data: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def nested_and_packed(d: Path) -> dict:
    records = [{"id": "x" * 500, "meta": {"url": "u"}, "body": {"text": t}} for t in TEXTS]
    records[0]["id"] = "y"
    for r in records[1:]:
        del r["id"]  # the longest field of all, but of one record only
    put(d, "web/a.jsonl", jsonl(records))
    put(d, "web/deep/b.jsonl.gz", gzip.compress(jsonl(records)))
    return {"web": ("jsonl", "body.text", "en", "english", 80)}


def lines_and_files(d: Path) -> dict:
    put(d, "reviews.txt", "\n".join(HAN).encode())
    for k, text in enumerate(TEXTS):
        put(d, f"notes/{k}.md", text.encode())
    put(d, "notes/.hidden.md", b"no")
    return {"reviews": ("lines", None, "zh", "chinese", 40), "notes": ("files", None, "en", "english", 40)}


def lists_and_tables(d: Path) -> dict:
    put(d, "list.json", json.dumps([{"title": "t", "content": t} for t in TEXTS]).encode())
    put(d, "really_lines.json", jsonl([{"title": "t", "content": t} for t in HAN]))
    pq.write_table(pa.table({"text": TEXTS, "n": range(40), "url": ["u"] * 40}), d / "table.parquet")
    return {"table": ("parquet", "text", "en", "english", 40), "list": ("json", "content", "en", "english", 40)} | {
        "really_lines": ("jsonl", "content", "zh", "chinese", 40)
    }


def code_and_bz2(d: Path) -> dict:
    for k in range(31):
        put(d, f"src/pkg{k % 3}/m{k}.py", mini.code(random.Random(k), 3).encode())
    put(d, "old.txt.bz2", bz2.compress("\n".join(TEXTS).encode()))
    return {"src": ("files", None, "py", "code", 31), "old": ("lines", None, "en", "english", 40)}


@pytest.mark.parametrize("layout", [nested_and_packed, lines_and_files, lists_and_tables, code_and_bz2])
def test_layouts(mini_run, tmp_path, layout):
    """The guesses, the recipe that loads and plans, and sources that hold just the documents put there."""
    data = tmp_path / "a [b] 'c' é"
    data.mkdir()
    expected = layout(data)
    recipe = tmp_path / "mine.yaml"
    said = mini_run_init(mini_run, data, recipe)
    config = loader.load(recipe, model=Recipe, search=[]).config
    assert set(config.sources) == set(expected)
    for name, (form, field, lang, domain, documents) in expected.items():
        source = config.sources[name]
        assert (source.read.format, source.read.field, source.lang, source.domain) == (form, field, lang, domain)
        assert source.licence == "unstated" and name in said
        fetched = fetch.fetch(source.origin, tmp_path, recipe.parent)
        assert len(list(readers.read(source, fetched))) == documents
    plan = json.loads(mini_run.gristmill("plan", str(recipe), "--json", out=tmp_path / "runs").stdout)
    assert set(plan["mix"]) == set(expected) and {s["status"] for s in plan["stages"].values()} == {"new"}


def mini_run_init(mini_run, data: Path, recipe: Path) -> str:
    from gristmill.recipes.runner import cli

    assert cli.main(["init", "--data", str(data), "--out-recipe", str(recipe)]) == 0
    return recipe.read_text("utf-8")


def test_what_is_left_out_is_said(tmp_path):
    put(tmp_path, "a.pdf", b"x")
    put(tmp_path, "few.py", b"x = 1")
    put(tmp_path, "good.jsonl", jsonl([{"t": t} for t in TEXTS]))
    found, notes = scan(tmp_path)
    assert [f.name for f in found] == ["good"]
    assert any(".pdf" in n for n in notes) and any(".py" in n and "30" in n for n in notes)


def test_languages_by_script():
    assert language.guess(TEXTS) == "en" and language.guess(HAN) == "zh"
    assert language.guess(["これは日本語の文章です。漢字も使います。"]) == "ja"
    assert language.guess(["Это русский текст о погоде"]) == "ru"
    assert language.guess(["Der Hund läuft durch den Garten und die Katze schläft auf dem alten Sofa"]) == "und"
    assert language.guess(["12 34"]) == "und"


def test_sizes_follow_the_amount_of_text(tmp_path):
    """More text: never a smaller model or vocabulary; a share of it where there is too much for a first run."""
    put(tmp_path, "a.jsonl", jsonl([{"t": t} for t in TEXTS]))
    (small,), _ = scan(tmp_path)
    rows = []
    for factor in (1, 10, 100, 10_000, 1_000_000):
        words = [f"word{k}" for k in range(8000)]
        source = type(small)(**{**vars(small), "bytes": small.bytes * factor, "documents": small.documents * factor,
                                "sample": [*TEXTS, *words]})  # fmt: skip
        rows.append(sizes.sizes([source]))
    assert all(a.vocab_size <= b.vocab_size and a.hidden <= b.hidden for a, b in zip(rows, rows[1:], strict=False))
    assert rows[0].scale == 1 and rows[-1].scale < 0.01
    for row, factor in zip(rows, (1, 10, 100, 10_000, 1_000_000), strict=True):
        steps = small.bytes * factor * row.scale / sizes.BYTES_PER_TOKEN * sizes.PASSES / row.batch_tokens
        assert row.batch_tokens % row.seq_len == 0 and row.checkpoints <= steps and row.last <= row.checkpoints


@pytest.mark.parametrize("what", ["absent", "file", "empty", "unreadable", "exists", "name"])
def test_refusals_are_one_line(tmp_path, what):
    data, out, name = tmp_path / "data", tmp_path / "r.yaml", None
    if what == "file":
        data.write_text("x")
    elif what != "absent":
        data.mkdir()
    if what == "unreadable":
        put(data, "a.pdf", b"x")
        put(data, "b.json", b"{half")
    if what == "exists":
        put(data, "a.jsonl", jsonl([{"t": t} for t in TEXTS]))
        out.write_text("mine")
    if what == "name":
        name = "a/b"
    with pytest.raises(BadInput) as caught:
        write.init(data, name, out)
    assert "\n" not in str(caught.value)
    assert (out.read_text() == "mine") if what == "exists" else not out.exists()


def test_what_it_writes_runs_to_a_release(mini_run, tmp_path):
    put(tmp_path, "data/a.jsonl", jsonl([{"t": t} for t in TEXTS]))
    put(tmp_path, "data/b.txt", "\n".join(HAN).encode())
    recipe = tmp_path / "mine.yaml"
    mini_run_init(mini_run, tmp_path / "data", recipe)
    # one task at a time changes no result, and spares starting a pool of processes for eighty documents
    done = mini_run.gristmill("run", str(recipe), "engine.partitions=1", "--name", "data", out=tmp_path / "runs")
    assert "english" in done.stdout and "chinese" in done.stdout
    assert (tmp_path / "runs" / "data" / "release" / "config.json").is_file()
