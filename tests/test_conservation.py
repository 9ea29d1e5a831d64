"""Conservation: at every stage in = kept + dropped by reason; in tokens, in = packed + truncated, and rows add up."""

from __future__ import annotations

import json

import mini
import pyarrow.parquet as pq

DOCUMENT_STAGES = ("corpus", "clean", "dedup", "score", "split")


def test_documents_and_bytes_add_up(mini_run):
    manifests = mini.artefacts(mini_run.out)
    kept = None
    for stage in DOCUMENT_STAGES:
        ledger = manifests[stage]["ledger"]
        for source, entry in ledger.items():
            for unit in (0, 1):
                assert entry["in"][unit] == entry["kept"][unit] + sum(d[unit] for d in entry["dropped"].values())
            assert kept is None or entry["in"] == kept[source], f"{stage} did not get what the stage before kept"
        kept = {source: entry["kept"] for source, entry in ledger.items()}
    for source, entry in manifests["tokens"]["ledger"].items():
        assert [entry["documents"], entry["bytes"]] == kept[source]


def test_the_ledger_says_what_is_on_disk(mini_run):
    manifests = mini.artefacts(mini_run.out)
    for stage in DOCUMENT_STAGES:
        folder = mini_run.artefact(stage) / ("train" if stage == "split" else "")
        for source, entry in manifests[stage]["ledger"].items():
            tables = [pq.read_table(p) for p in sorted((folder / source).glob("*.parquet"))]
            assert sum(t.num_rows for t in tables) == entry["kept"][0]
            assert sum(len(x.encode()) for t in tables for x in t["text"].to_pylist()) == entry["kept"][1]
            ids = [i for t in tables for i in t["id"].to_pylist()]
            assert ids == sorted(ids)


def test_the_text_was_written_to_be_dropped(mini_run):
    """What mini.py put in to be dropped is dropped, for the right reasons."""
    manifests = mini.artefacts(mini_run.out)
    english = manifests["clean"]["ledger"]["english"]["dropped"]
    assert english == {"length: too short": [3, 30]}
    assert manifests["dedup"]["ledger"]["english"]["dropped"]["duplicate"][0] == 12
    assert manifests["dedup"]["ledger"]["chinese"]["dropped"]["duplicate"][0] == 5


def test_tokens_add_up(mini_run):
    manifests = mini.artefacts(mini_run.out)
    pack = json.loads((mini_run.artefact("pack") / "pack.json").read_text())
    selected = sum(s["tokens"] for phase in manifests["mix"]["ledger"].values() for s in phase.values())
    ledger = manifests["pack"]["ledger"]["tokens"]
    assert ledger["in"] == selected == ledger["packed"] + ledger["truncated"]
    assert pack["rows"] * pack["seq_len"] == ledger["packed"] + ledger["padding"]
    assert sum(p["tokens"] for p in pack["phases"]) == ledger["packed"]
    trained = manifests["pretrain"]["ledger"]
    assert trained["rows"] == pack["rows"]


def test_every_document_ends_once_and_special_text_stays_text(mini_run):
    """B20: as many EOS as documents; the literal text of a special token is ordinary text."""
    from gristmill.data.tokenizer import EOS, Encoder
    from gristmill.data.tokens import TokenTables

    tables = TokenTables(mini_run.artefact("tokens"))
    for source, entry in tables.meta["sources"].items():
        for number, part in enumerate(entry["parts"]):
            for row in range(part["documents"]):
                ids = tables.document(source, number, row).tolist()
                assert ids[0] == tables.meta["bos_id"] and ids[-1] == tables.meta["eos_id"]
                assert tables.meta["eos_id"] not in ids[:-1]
    encoder = Encoder(mini_run.artefact("tokenizer"))
    (ids,) = encoder.encode([f"a{EOS}b"])
    assert encoder.eos_id not in ids and encoder.tokenizer.decode(ids, skip_special_tokens=False) == f"a{EOS}b"
