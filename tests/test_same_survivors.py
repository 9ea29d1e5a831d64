"""Dedup: the survivors depend on the documents alone, each cluster leaves exactly one, nothing else is lost."""

from __future__ import annotations

import random
from pathlib import Path

import mini
import pyarrow.parquet as pq
import pytest

from gristmill.data import corpus, dedup, tables
from gristmill.data.engine import EngineConfig


def survivors(
    tmp: Path, name: str, texts: list[str], partitions: int = 1, part_mb: float = 64, lang: str = "en", **block
):
    """ids -> duplicate_count of what is left of ``texts``."""
    folder = tmp / name
    raw = folder / "raw"
    raw.mkdir(parents=True)
    for k, text in enumerate(texts):
        (raw / f"{k:04d}.txt").write_text(text, "utf-8")
    source = {
        "from": {"kind": "files", "path": "raw"},
        "read": "files",
        "domain": "d",
        "lang": lang,
        "licence": "CC0-1.0",
    }
    engine = EngineConfig(partitions=partitions)
    stage = corpus.CorpusStage(
        sources={"s": source}, corpus={"part_mb": part_mb}, seed=1, cache=str(tmp), root=str(folder), engine=engine
    )
    (folder / "corpus").mkdir()
    (folder / "dedup").mkdir()
    corpus.run(stage, {}, folder / "corpus")
    config = dedup.DedupStage(dedup={"minhash": {}} | block, languages={"s": lang}, seed=2, engine=engine)
    ledger = dedup.run(config, {"documents": folder / "corpus"}, folder / "dedup")
    left = {}
    for part in tables.read_index(folder / "dedup")["s"]:
        for row in pq.read_table(tables.part_path(folder / "dedup", "s", part["name"])).to_pylist():
            left[row["text"]] = row["duplicate_count"]
    assert ledger["s"]["kept"][0] == len(left)
    return left


def cluster_texts() -> list[str]:
    """Four unrelated documents and a cluster of eight near-duplicates."""
    rng = random.Random(0)
    base = mini.prose(rng, 120)
    near = [base.replace(mini.WORDS[k], mini.WORDS[k + 1], 1) for k in range(8)]
    return [mini.prose(rng, 120) for _ in range(4)] + near


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return survivors(tmp_path_factory.mktemp("dedup"), "one", cluster_texts())


def test_one_survivor_a_cluster(expected):
    texts = cluster_texts()
    assert len(expected) == 5 and sum(expected.values()) == len(texts)
    assert set(texts[:4]) <= set(expected)
    kept = next(text for text, count in expected.items() if count == 8)
    longest = max(len(t.encode()) for t in texts[4:])
    assert len(kept.encode()) == longest
    assert tables.document_id(kept) == min(tables.document_id(t) for t in texts[4:] if len(t.encode()) == longest)


@pytest.mark.parametrize("partitions", [3, 7])
def test_partitions_and_file_order(tmp_path, expected, partitions):
    texts = cluster_texts()
    random.Random(partitions).shuffle(texts)
    # a small part_mb spreads twelve documents over several parts of the document table
    assert survivors(tmp_path, "p", texts, partitions=partitions, part_mb=0.002) == expected


def test_short_documents_are_compared_exactly(tmp_path):
    texts = ["cat", "dog", "cat", "a b c", "a b c", "a b c", "A  b, c!", "3 + 4 = 7", "5 + 6 = 11"]
    left = survivors(tmp_path, "short", texts)
    assert left == {"cat": 2, "dog": 1, "a b c": 3, "A  b, c!": 1, "3 + 4 = 7": 1, "5 + 6 = 11": 1}
    assert survivors(tmp_path, "inexact", texts, exact=False) == left  # too short for a signature
    left = survivors(tmp_path, "normalised", texts, exact_normalised=True)
    assert sorted(left.values()) == [1, 2, 2, 4]  # which also shows why it is not the default


def test_no_duplicates_and_single_document(tmp_path):
    rng = random.Random(1)
    assert len(survivors(tmp_path, "two", [mini.prose(rng, 50), mini.prose(rng, 50)])) == 2
    assert len(survivors(tmp_path, "single", [mini.prose(rng, 50)])) == 1


def test_chinese_by_characters(tmp_path):
    rng = random.Random(2)
    text = "".join(rng.choice(mini.HAN) for _ in range(200))
    other = "".join(rng.choice(mini.HAN) for _ in range(200))
    left = survivors(tmp_path, "zh", [text, text[:199] + "完", other], lang="zh")
    assert sorted(left.values()) == [1, 2]
