"""What is held out: by content alone, and never a whole domain forgotten."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.data import split, tables
from gristmill.kernels.common.errors import BadInput


def documents(folder, sources: dict[str, tuple[str, int]]):
    """source -> (domain, how many documents); the texts of a number are the same in every source."""
    index = {}
    for source, (domain, count) in sources.items():
        texts = [f"text {k}" for k in range(count)]
        rows = sorted((tables.document_id(text), text) for text in texts)
        table = pa.table({"id": [r[0] for r in rows], "text": [r[1] for r in rows], "domain": [domain] * count})
        tables.write_parquet(tables.part_path(folder, source, "part-00000"), table)
        index[source] = [{"name": "part-00000", "rows": count, "bytes": tables.text_bytes(table)}]
    tables.write_index(folder, index)
    return folder


def run(folder, out):
    stage = split.SplitStage(split=split.SplitConfig(validation=0.1), seed=3)
    return split.run(stage, {"documents": folder}, out)


def held(out, source) -> set[str]:
    parts = tables.read_index(out / "validation")[source]
    return {
        row["text"]
        for part in parts
        for row in pq.read_table(tables.part_path(out / "validation", source, part["name"])).to_pylist()
    }


def test_a_text_is_on_one_side_in_every_source(tmp_path):
    run(documents(tmp_path / "in", {"a": ("english", 300), "b": ("english", 200)}), tmp_path / "out")
    a, b = held(tmp_path / "out", "a"), held(tmp_path / "out", "b")
    assert 15 < len(a) < 45 and b == {text for text in a if int(text.split()[1]) < 200}


def test_a_small_source_may_have_none_held_out_but_no_domain(tmp_path):
    ledger = run(documents(tmp_path / "in", {"a": ("english", 300), "b": ("english", 1)}), tmp_path / "out")
    assert ledger["b"]["kept"][0] == 1 and not held(tmp_path / "out", "b")
    with pytest.raises(BadInput, match="no document of domain math fell into the validation split"):
        run(documents(tmp_path / "in2", {"a": ("english", 300), "b": ("math", 1)}), tmp_path / "out2")
