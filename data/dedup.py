"""Dedup: exact and MinHash-LSH near-duplicates; one survivor a cluster, chosen by content.

Signatures (128 permutations of n-gram hashes) are cut into bands; documents sharing a band, or their
whole text, are joined by a star to the smallest of them; clusters are the connected components.
Documents too short for an n-gram have no signature and are compared exactly. Kaiyuan-Spark's procedure
(specs: MinHash, 128 permutations, threshold 0.7 -> 14 bands of 9 rows) with one change: the survivor is the
best, then longest, then smallest-id document, so it does not depend on file order or partitions.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from gristmill.data import engine, tables
from gristmill.data.engine import EngineConfig
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.components import components

EXACT, NORMALISED = -1, -2  # band numbers of the hash of a whole text, as it is and normalised
BANDS = pa.schema([("group", pa.string()), ("band", pa.int32()), ("key", pa.int64()), ("doc", pa.int64())])
SCRIPTS_WITHOUT_SPACES = {"zh", "ja", "th", "lo", "km", "my"}


class MinHashConfig(Config):
    """Near-duplicates by estimated Jaccard similarity of n-gram sets."""

    permutations: int = Field(128, ge=2, le=1024, description="hashes a signature (count)")
    threshold: float = Field(0.7, gt=0, lt=1, description="Jaccard similarity the bands are tuned for (0-1)")
    ngram: int = Field(5, ge=1, le=32, description="units a shingle (count)")
    unit: Literal["auto", "word", "char"] = Field(
        "auto", description="what a shingle is made of; auto: char for languages written without spaces, else word"
    )
    skip: tuple[str, ...] = Field(
        (),
        description="sources compared exactly only; for text whose documents differ by their numbers alone, such as "
        "worked sums: every number is one to MinHash's normalisation",
    )


class DedupConfig(Config):
    """Which documents count as the same."""

    exact: bool = Field(True, description="join documents of equal text")
    exact_normalised: bool = Field(
        False,
        description="join documents equal after MinHash's normalisation; it turns every number into 0, so sums meet",
    )
    minhash: MinHashConfig | None = Field(None, description="join near-duplicates; null turns it off")
    scope: Literal["source", "global"] = Field("source", description="compare within each source, or across all")
    prefer: str | None = Field(None, description="numeric column whose largest value survives; default: the longest")
    max_cluster_share: float = Field(
        0.5, gt=0, le=1, description="stop when one cluster holds more than this share of a source of 1,000 or more"
    )


class DedupStage(Config):
    dedup: DedupConfig = Field(description="the recipe's block")
    languages: dict[str, str] = Field(description="source -> language (ISO 639-1)")
    seed: int = Field(description="seed of the permutations")
    engine: EngineConfig = execution(EngineConfig(), description="where it runs")

    @model_validator(mode="after")
    def _known(self) -> DedupStage:
        for name in self.dedup.minhash.skip if self.dedup.minhash else ():
            if name not in self.languages:
                raise BadInput("no such source", key="dedup.minhash.skip", got=name, valid=self.languages)
        return self


def run(config: DedupStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"documents": cleaned}. Writes document tables with ``duplicate_count`` and ``clusters.parquet``.

    Returns the ledger by source. ``clusters.parquet``: cluster (smallest member's id), source, id, size, kept.
    """
    folder = inputs["documents"]
    index = tables.read_index(folder)
    parts = [(source, part["name"], part["rows"]) for source, ps in index.items() for part in ps]
    first = np.cumsum([0] + [rows for *_, rows in parts])  # a document's number: its part's first + its row
    scratch = out / "scratch"
    jobs = [
        {
            "from": str(tables.part_path(folder, source, part)),
            "to": str(scratch / f"bands-{k:05d}.parquet"),
            "group": source if config.dedup.scope == "source" else "",
            "lang": config.languages[source],
            "near": config.dedup.minhash is not None and source not in config.dedup.minhash.skip,
            "first": int(first[k]),
            "config": config.dedup.model_dump(mode="json"),
            "seed": config.seed,
        }
        for k, (source, part, _) in enumerate(parts)
    ]
    engine.map_jobs(config.engine, jobs, _bands, "dedup: parts")
    engine.run(_edges, config.engine, str(scratch / "bands-*.parquet"), str(scratch / "edges.parquet"))
    edges = pq.read_table(scratch / "edges.parquet")
    nodes, labels = components(edges["doc"].to_numpy(), edges["root"].to_numpy())
    members = _members(config, folder, parts, first, nodes, labels)
    _report(config, members, index, out)
    gone = set(members.filter(pa.compute.invert(members["kept"]))["number"].to_pylist())
    size = dict(zip(*(members.filter(members["kept"])[c].to_pylist() for c in ("number", "size")), strict=True))
    ledger: dict[str, dict] = {source: tables.empty_ledger() for source in index}
    written: dict[str, list[dict]] = {source: [] for source in index}
    for k, (source, part, rows) in enumerate(parts):
        table = pq.read_table(tables.part_path(folder, source, part))
        numbers = range(int(first[k]), int(first[k]) + rows)
        mask = [number not in gone for number in numbers]
        kept = table.filter(pa.array(mask, pa.bool_()))
        counts = pa.array([size.get(n, 1) for n, keep in zip(numbers, mask, strict=True) if keep], pa.int32())
        tables.write_parquet(tables.part_path(out, source, part), kept.append_column("duplicate_count", counts))
        before, after = tables.text_bytes(table), tables.text_bytes(kept)
        written[source].append({"name": part, "rows": kept.num_rows, "bytes": after})
        dropped = {"duplicate": [rows - kept.num_rows, before - after]} if kept.num_rows < rows else {}
        tables.add(ledger[source], {"in": [rows, before], "kept": [kept.num_rows, after], "dropped": dropped})
    tables.write_index(out, written)
    shutil.rmtree(scratch)
    return tables.check(ledger, "dedup")


def _bands(job: dict) -> dict:
    """One part's rows (group, band, key, doc): one per band of a signature, one for the exact hash."""
    from gristmill.kernels import lsh, minhash

    config = DedupConfig.model_validate(job["config"])
    table = pq.read_table(job["from"], columns=["id", "text"])
    docs = np.arange(table.num_rows, dtype=np.int64) + job["first"]
    unit = config.minhash.unit if config.minhash else "word"
    if unit == "auto":
        unit = "char" if job["lang"] in SCRIPTS_WITHOUT_SPACES else "word"
    found: list[pa.Table] = []

    def put(band: int, key: np.ndarray, doc: np.ndarray, group: str = job["group"]) -> None:
        columns = [[group] * len(doc), np.full(len(doc), band, np.int32), key.view(np.int64), doc]
        found.append(pa.table(dict(zip(BANDS.names, columns, strict=True)), BANDS))

    valid = np.zeros(len(docs), bool)
    if job["near"]:
        mh = config.minhash
        signature, valid = minhash.signatures(
            table["text"], permutations=mh.permutations, ngram=mh.ngram, unit=unit, seed=job["seed"]
        )
        shape = lsh.choose_bands(mh.permutations, mh.threshold)
        key = minhash.band_keys(signature[valid], *shape)
        for band in range(shape[0]):
            # units share no n-grams, so their signatures must not meet, even globally
            put(band, np.ascontiguousarray(key[:, band]), docs[valid], f"{job['group']}/{unit}")
    if config.exact_normalised:
        put(NORMALISED, minhash.normalised_hash(table["text"]), docs)
    if config.exact:
        put(EXACT, tables.id_keys(table["id"]), docs)
    elif config.minhash:  # a document too short for a signature is compared exactly
        put(EXACT, tables.id_keys(table["id"])[~valid], docs[~valid])
    tables.write_parquet(Path(job["to"]), pa.concat_tables([BANDS.empty_table(), *found]))
    return {}


def _edges(spark: Any, bands: str, target: str) -> None:
    """Star edges (doc, smallest doc of its bucket): n - 1 a bucket, never n^2 / 2."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    bucket = Window.partitionBy("group", "band", "key")
    edges = spark.read.parquet(bands).withColumn("root", F.min("doc").over(bucket)).where(F.col("doc") != F.col("root"))
    pq.write_table(edges.select("doc", "root").distinct().toArrow(), target)


def _members(config: DedupStage, folder: Path, parts: list, first: np.ndarray, nodes, labels) -> pa.Table:
    """Every document of a cluster of two or more, with the survivor marked; sorted by (cluster, number)."""
    columns = ["id", "text"] + ([config.dedup.prefer] if config.dedup.prefer else [])
    sources, ids, lengths, worth = [], [], [], []
    for k, (source, part, _) in enumerate(parts):
        mine = nodes[(nodes >= first[k]) & (nodes < first[k + 1])] - first[k]
        if not len(mine):
            continue
        path = tables.part_path(folder, source, part)
        if config.dedup.prefer and config.dedup.prefer not in pq.read_schema(path).names:
            raise BadInput("no such column", file=path, key="dedup.prefer", got=config.dedup.prefer)
        table = pq.read_table(path, columns=columns).take(pa.array(mine))
        sources += [source] * len(mine)
        ids += table["id"].to_pylist()
        lengths += [len(t.encode()) for t in table["text"].to_pylist()]
        worth += table[config.dedup.prefer].to_pylist() if config.dedup.prefer else [0.0] * len(mine)
    best: dict[int, tuple] = {}
    smallest: dict[int, str] = {}
    sizes: dict[int, int] = {}
    for node, label, doc_id, length, value in zip(nodes.tolist(), labels.tolist(), ids, lengths, worth, strict=True):
        value = float("-inf") if value is None or value != value else float(value)
        rank = (-value, -length, doc_id, node)
        best[label] = min(best.get(label, rank), rank)
        smallest[label] = min(smallest.get(label, doc_id), doc_id)
        sizes[label] = sizes.get(label, 0) + 1
    table = pa.table(
        {
            "cluster": pa.array([smallest[x] for x in labels.tolist()], pa.string()),
            "source": pa.array(sources, pa.string()),
            "id": pa.array(ids, pa.string()),
            "size": pa.array([sizes[x] for x in labels.tolist()], pa.int32()),
            "kept": pa.array(
                [best[x][3] == n for n, x in zip(nodes.tolist(), labels.tolist(), strict=True)], pa.bool_()
            ),
            "number": pa.array(nodes.tolist(), pa.int64()),
        }
    )
    return table.sort_by([("cluster", "ascending"), ("number", "ascending")])


def _report(config: DedupStage, members: pa.Table, index: dict, out: Path) -> None:
    """Write the clusters; stop when one has swallowed a source (a sign of boilerplate, not of duplicates)."""
    tables.write_parquet(out / "clusters.parquet", members.drop_columns(["number"]))
    if not members.num_rows:
        return
    largest = members.group_by(["cluster", "source"]).aggregate([("id", "count")]).to_pylist()
    for row in largest:
        total = sum(part["rows"] for part in index[row["source"]])
        if total >= 1000 and row["id_count"] > config.dedup.max_cluster_share * total:
            raise BadInput(
                f"one cluster holds {row['id_count']} of the {total} documents of {row['source']} "
                f"(smallest id {row['cluster']}): shared boilerplate, or too low a threshold",
                key="dedup.max_cluster_share",
                got=round(row["id_count"] / total, 3),
                expected=f"at most {config.dedup.max_cluster_share}",
            )
