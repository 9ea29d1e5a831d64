"""The mix: selection and order are pure functions of (config, documents, seed), on disk as in memory."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.data import mix, tables
from gristmill.data.engine import EngineConfig
from gristmill.data.selection import Selector
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import write_json

SIZES = {"a": 200, "b": 90, "c": 37}
PHASES = (("p1", {"order": "shuffle"}), ("p2", {"order": "curriculum"}), ("p3", {"order": "curriculum"}))


@pytest.fixture(scope="module")
def token_tables(tmp_path_factory) -> Path:
    """Token tables of three sources: `a` and `b` scored, `c` not; `b` with few distinct scores."""
    folder = tmp_path_factory.mktemp("tokens")
    sources = {}
    for name, count in SIZES.items():
        ids = sorted(tables.document_id(f"{name}{k}") for k in range(count))
        half = count // 2
        parts = []
        for number, chunk in enumerate((ids[:half], ids[half:])):
            n = len(chunk)
            length = np.array([10 + int(i[:2], 16) % 50 for i in chunk], np.int32)
            columns = {
                "id": pa.array(chunk),
                "part": pa.array([number] * n, pa.int32()),
                "row": pa.array(range(n), pa.int32()),
                "offset": pa.array(np.cumsum(length) - length),
                "tokens": pa.array(length),
                "bytes": pa.array(length.astype(np.int64) * 4),
            }
            if name != "c":
                modulus = 4 if name == "b" else 1000
                columns["score"] = pa.array([float(int(i[2:6], 16) % modulus) for i in chunk])
            tables.write_parquet(folder / name / f"part-{number:05d}.parquet", pa.table(columns))
            parts.append({"name": f"part-{number:05d}", "documents": n, "tokens": int(length.sum())})
        sources[name] = {"documents": count, "tokens": sum(p["tokens"] for p in parts), "parts": parts}
    meta = {"dtype": "<u2", "vocab_size": 100, "bos_id": 0, "eos_id": 1, "pad_id": 2, "sources": sources}
    write_json(folder / "tokens.json", meta)
    return folder


def order(token_tables: Path, out: Path, cells: dict[str, list[str]], phases=PHASES, **settings) -> list[dict]:
    stage = mix.MixStage(
        phases=phases,
        mix=cells,
        scores={"a": "score", "b": "score", "c": None},
        seed=settings.pop("seed", 7),
        engine=EngineConfig(partitions=settings.pop("partitions", 1)),
        **settings,
    )
    mix.run(stage, {"tokens": token_tables}, out)
    rows = [row for table in mix.read_order(out) for row in table.to_pylist()]
    assert [row["position"] for row in rows] == list(range(len(rows)))
    return rows


CELLS = {"a": ["all", "top .5", "top .1"], "b": ["rand .5", "all", "x1.5"], "c": ["none", "all", "x2"]}


@pytest.fixture(scope="module")
def one(token_tables, tmp_path_factory) -> list[dict]:
    return order(token_tables, tmp_path_factory.mktemp("one"), CELLS)


@pytest.mark.parametrize(("shard_rows", "partitions"), [(1000, 7), (150, 1), (36, 3)])
def test_same_order_for_any_shards_and_partitions(token_tables, tmp_path, one, shard_rows, partitions):
    assert order(token_tables, tmp_path, CELLS, shard_rows=shard_rows, partitions=partitions) == one
    sizes = collections.Counter(row["phase"] for row in one)
    assert len(list(tmp_path.glob("order-*.parquet"))) == sum(-(-n // shard_rows) for n in sizes.values())


def test_selection_counts(one):
    count = collections.Counter((r["phase"], r["source"]) for r in one)
    assert count["p1", "a"] == 200 and count["p2", "a"] == 100 and count["p3", "a"] == 20
    assert count["p2", "b"] == 90 and count["p2", "c"] == 37 and count["p3", "c"] == 74
    assert 30 <= count["p1", "b"] <= 60  # binomial(90, .5): beyond three sigma on either side
    assert 90 + 30 <= count["p3", "b"] <= 90 + 60  # x1.5: each once, and about half of them again
    assert ("p1", "c") not in count


def test_top_takes_the_best_and_nests(token_tables, one):
    score = {}
    for path in sorted((token_tables / "a").glob("*.parquet")):
        score |= {r["id"]: r["score"] for r in pq.read_table(path).to_pylist()}
    half = {r["id"] for r in one if r["phase"] == "p2" and r["source"] == "a"}
    tenth = {r["id"] for r in one if r["phase"] == "p3" and r["source"] == "a"}
    assert min(score[i] for i in half) >= max(score[i] for i in set(score) - half)
    assert min(score[i] for i in tenth) >= max(score[i] for i in set(score) - tenth)


def test_curriculum_prefixes_hold_the_mixture(token_tables, one):
    """Rank interleaving: per source ascending, and every prefix within one row of each source's global share."""
    rows = [r for r in one if r["phase"] == "p2"]
    total = collections.Counter(r["source"] for r in rows)
    seen = collections.Counter()
    for k, row in enumerate(rows, 1):
        seen[row["source"]] += 1
        for source, n in total.items():
            assert abs(seen[source] - k * n / len(rows)) <= 1 + 1e-9, (k, source)
    for source in "ab":
        score = {}
        for path in sorted((token_tables / source).glob("*.parquet")):
            score |= {r["id"]: r["score"] for r in pq.read_table(path).to_pylist()}
        ranks = [score[r["id"]] for r in rows if r["source"] == source]
        assert ranks == sorted(ranks)


def test_repetition_ladder(token_tables, tmp_path):
    """top {1, .5, .3, .1} over four phases: 4 passes for the best tenth, then 3, 2 and 1; 1.9 on average."""
    phases = tuple((f"p{k}", {"order": "shuffle"}) for k in range(4))
    rows = order(token_tables, tmp_path, {"a": ["all", "top .5", "top .3", "top .1"]}, phases=phases)
    passes = collections.Counter(collections.Counter(r["id"] for r in rows).values())
    assert passes == {4: 20, 3: 40, 2: 40, 1: 100}
    for doc in {r["id"] for r in rows}:
        assert [r["pass"] for r in rows if r["id"] == doc] == list(range(sum(r["id"] == doc for r in rows)))


def test_the_seed_decides_and_shuffles_differ_by_phase(token_tables, tmp_path, one):
    (tmp_path / "x").mkdir()
    other = order(token_tables, tmp_path / "x", CELLS, seed=8)
    assert [r["id"] for r in other] != [r["id"] for r in one]
    phases = (("p1", {"order": "shuffle"}), ("p2", {"order": "shuffle"}))
    rows = order(token_tables, tmp_path, {"a": ["all", "all"]}, phases=phases)
    first, second = ([r["id"] for r in rows if r["phase"] == p] for p in ("p1", "p2"))
    assert sorted(first) == sorted(second) and first != second


@pytest.mark.parametrize(
    "text", ["top 1.5", "top 0", "rand -1", "x0", "xfast", "some", "top", "x", "all .5", "top nan"]
)
def test_bad_selectors(text):
    with pytest.raises(ValueError, match="selector|range|number"):
        Selector.model_validate(text)


@pytest.mark.parametrize("text", ["all", "none", "top .30", "top 1e-1", "rand 1", "x2", "x 2.5", "x0.25"])
def test_selectors_round_trip(text):
    selector = Selector.model_validate(text)
    assert Selector.model_validate(selector.model_dump()) == selector


def test_top_without_a_score(token_tables, tmp_path):
    with pytest.raises(BadInput, match="needs a score"):
        order(token_tables, tmp_path, {"c": ["top .5"]}, phases=PHASES[:1])
