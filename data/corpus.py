"""Corpus: every source's raw files into document tables, subsampled by content hash."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from gristmill.data import engine, fetch, raw, readers, tables
from gristmill.data.engine import EngineConfig
from gristmill.data.sources import SourceConfig
from gristmill.kernels.common import seeds
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import write_json

BATCH = 4096  # documents a spool file's row group holds


class CorpusConfig(Config):
    """How the document tables are laid out."""

    part_mb: float = Field(64, gt=0, description="text aimed at per part of a document table (MB)")


class CorpusStage(Config):
    sources: dict[str, SourceConfig] = Field(description="the recipe's sources")
    corpus: CorpusConfig = Field(CorpusConfig(), description="the recipe's block")
    scale: float = Field(1.0, gt=0, le=1, description="share of every source kept, by content hash (0-1]")
    on_bad_row: Literal["strict", "skip"] = Field("skip", description="what an unreadable row does")
    seed: int = Field(description="seed of the subsampling")
    cache: str = execution(description="folder of downloaded archives")
    root: str = execution(description="folder relative paths of sources start from")
    engine: EngineConfig = execution(EngineConfig(), description="where it runs")


def run(config: CorpusStage, inputs: dict[str, Path], out: Path) -> dict:
    """No inputs. Writes document tables (id, text, domain, lang, licence, carried columns) and ``raw.json``.

    ``raw.json`` lists every raw file read, with its sha256, and each archive's.
    """
    jobs, read = [], {}
    for name, source in config.sources.items():
        with _named(name):
            fetched = fetch.fetch(source.origin, Path(config.cache), Path(config.root))
        read[name] = fetched.record()
        jobs += [{"source": name, "fetched": fetched.subset(group).dump()} for group in _groups(fetched.files)]
    write_json(out / "raw.json", read)
    scratch = out / "scratch"
    dumped = config.model_dump(mode="json", by_alias=True)
    jobs = [{**job, "config": dumped, "to": str(scratch / f"{k:06d}.parquet")} for k, job in enumerate(jobs)]
    results = engine.map_jobs(config.engine, jobs, _read, "corpus: groups of files")
    ledger = {name: tables.empty_ledger() for name in config.sources}
    bad: dict[str, dict[str, list[str]]] = {}
    for job, result in zip(jobs, results, strict=True):
        tables.add(ledger[job["source"]], result)
        for reason, examples in result["examples"].items():
            bad.setdefault(job["source"], {}).setdefault(reason, []).extend(examples)
    if bad:
        write_json(out / "provenance" / "bad_rows.json", bad)  # paths of this machine: not part of the content
    tables.check(ledger, "corpus")
    files = {name: [job["to"] for job in jobs if job["source"] == name] for name in config.sources}
    parts = {name: max(1, round(ledger[name]["kept"][1] / (config.corpus.part_mb * 1e6))) for name in files}
    tables.write_index(out, engine.run(_sort_into_parts, config.engine, dumped, files, parts, str(out)))
    shutil.rmtree(scratch)
    return ledger


def external(sources: dict[str, SourceConfig], root: Path, cache: Path) -> dict[str, str]:
    """source -> identity of its raw files, for sources that the recipe's text alone does not pin."""
    found: dict[str, str] = {}
    for name, source in sources.items():
        with _named(name):
            value = fetch.identity(source.origin, cache, root)
        if value is not None:
            found[name] = value
    return found


@contextlib.contextmanager
def _named(source: str) -> Iterator[None]:
    """Say which source of the recipe a mistake is in."""
    try:
        yield
    except BadInput as error:
        raise BadInput(str(error), key=f"sources.{source}") from None


def _groups(files: tuple[raw.RawFile, ...], size: int = 64 << 20) -> list[list[int]]:
    """Indices of raw files, grouped so that one job reads about ``size`` bytes."""
    groups: list[list[int]] = []
    room = 0
    for k, file in enumerate(files):
        if room < file.bytes or not groups:
            groups.append([])
            room = size
        groups[-1].append(k)
        room -= file.bytes
    return groups


def _read(job: dict) -> dict:
    """Read one group of raw files into an unsorted spool file; count what was dropped and why."""
    config = CorpusStage.model_validate(job["config"])
    source = config.sources[job["source"]]
    fetched = raw.Fetched.load(job["fetched"])
    schema = _schema(source)
    kept, dropped, examples = [0, 0], {}, {}
    rows: list[dict] = []
    Path(job["to"]).parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(job["to"], schema, compression="zstd") as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            rows.clear()

        for document in readers.read(source, fetched, config.on_bad_row, dropped, examples):
            text = document.pop("text")
            size = len(text.encode())
            doc_id = tables.document_id(text)
            if seeds.uniform(config.seed, tables.id_keys([doc_id]))[0] >= config.scale:
                count = dropped.setdefault("scale", [0, 0])
                count[0], count[1] = count[0] + 1, count[1] + size
                continue
            kept = [kept[0] + 1, kept[1] + size]
            facts = {"domain": source.domain, "lang": source.lang, "licence": source.licence}
            rows.append({"id": doc_id, "text": text, **facts, **document})
            if len(rows) == BATCH:
                flush()
        flush()
    gone = [sum(count[k] for count in dropped.values()) for k in (0, 1)]
    return {
        "in": [kept[0] + gone[0], kept[1] + gone[1]],
        "kept": kept,
        "dropped": dropped,
        "examples": examples,
    }


def _schema(source: SourceConfig) -> pa.Schema:
    texts = [(name, pa.string()) for name in ("id", "text", "domain", "lang", "licence")]
    return pa.schema(texts + [(name, pa.float64()) for name in source.columns])


def _sort_into_parts(spark: Any, dumped: dict, files: dict, parts: dict, out: str) -> dict[str, list[dict]]:
    """source -> its parts. A part is one group, sorted by id and written by us: its bytes owe the engine nothing."""
    sources = CorpusStage.model_validate(dumped).sources
    return {name: _sort_source(spark, name, files[name], parts[name], _schema(sources[name]), out) for name in files}


def _sort_source(spark: Any, name: str, files: list[str], parts: int, schema: pa.Schema, out: str) -> list[dict]:
    from pyspark.sql import functions as F

    prefix = F.conv(F.substring("id", 1, 8), 16, 10).cast("long")  # as tables.part_of
    frame = spark.read.parquet(*files).withColumn("bucket", F.floor(prefix * parts / F.lit(2.0**32)).cast("int"))
    order = [(column, "ascending") for column in schema.names if column != "text"]  # one id has one text

    def write(key, table):  # no annotations: pyspark would try to resolve them
        number = key[0].as_py()
        table = table.select(schema.names).cast(schema).sort_by(order)  # engines differ in string types
        tables.write_parquet(tables.part_path(Path(out), name, tables.part_name(number)), table)
        counts = {"part": number, "rows": table.num_rows, "bytes": tables.text_bytes(table)}
        return pa.table({k: pa.array([v], pa.int64()) for k, v in counts.items()})

    done = frame.groupBy("bucket").applyInArrow(write, "part long, rows long, bytes long").collect()
    return [
        {"name": tables.part_name(r["part"]), "rows": r["rows"], "bytes": r["bytes"]}
        for r in sorted(done, key=lambda r: r["part"])
    ]
