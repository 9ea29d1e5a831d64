"""Mix: the order of training, as an index over documents. No text, no tokens.

    order.json               {"phases": [{name, rows, tokens, sources: {...}}], "shards": [...]}
    order-00000.parquet      position, phase, source, part, row, id, tokens, pass; in training order

Within a phase each selected document copy gets a key, and the phase is sorted by (key, draw, source, row):

* ``shuffle``: the key is a hash of (seed, phase, source, id, copy).
* ``curriculum``: rank-interleaving (Kaiyuan-2B, arXiv 2512.07612; Kaiyuan-Spark ``InterleavedReorder``): rows of
  source i get the rank r in 1..N_i by ascending score, and the key r * N / N_i. A source keeps its own order,
  every prefix holds the sources in their global proportion within one row each, and scores of different
  sources are never compared. A source without a score is ranked at random.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from gristmill.data import engine
from gristmill.data.engine import EngineConfig
from gristmill.data.selection import Selector
from gristmill.data.tables import write_parquet
from gristmill.data.tokens import TokenTables
from gristmill.kernels.common import seeds
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json, write_json


class PhaseConfig(Config):
    """One phase of the run."""

    order: Literal["shuffle", "curriculum"] = Field("shuffle", description="how the phase's documents are ordered")


class MixStage(Config):
    # a tuple, not a map: a hash of a map does not see the order of its keys, and here order is the point
    phases: tuple[tuple[str, PhaseConfig], ...] = Field(description="(name, phase), in order of training")
    mix: dict[str, tuple[Selector, ...]] = Field(description="source -> one selector per phase")
    scores: dict[str, str | None] = Field(description="source -> its score column, or none")
    seed: int = Field(description="seed of every draw")
    shard_rows: int = Field(1_000_000, ge=1, description="rows aimed at per order shard (count)")
    engine: EngineConfig = execution(EngineConfig(), description="where it runs")


def run(config: MixStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"tokens"}. Returns {phase: {source: {documents, tokens}}}."""
    out.mkdir(parents=True, exist_ok=True)
    return engine.run(_job, config.engine, config.model_dump(mode="json"), str(inputs["tokens"]), str(out))


def _job(spark: Any, dumped: dict, folder: str, out: str) -> dict:
    config, token_tables, out = MixStage.model_validate(dumped), TokenTables(Path(folder)), Path(out)
    selected = _select_all(spark, config, token_tables)
    scratch = out / "scratch"
    # Sail's persist is a no-op: what is used twice is written once
    _keyed(spark, config, selected).write.mode("overwrite").parquet(str(scratch))
    ledger = _write(spark, config, scratch, out)
    shutil.rmtree(scratch)
    return ledger


def _draw(seed: int, *columns: Any) -> Any:
    """Uniform double in [0, 1) per row: 53 bits of xxhash64, on which both engines agree."""
    from pyspark.sql import functions as F

    bits = F.shiftrightunsigned(F.xxhash64(F.lit(seed), *columns), 11)
    return bits.cast("double") * F.lit(2.0**-53)


def _select_all(spark: Any, config: MixStage, token_tables: TokenTables) -> Any:
    """Union over (phase, source) of the selected copies: phase, source, part, row, id, tokens, score, copy, draw."""
    frames = []
    for source, cells in config.mix.items():
        files = [str(p) for p in token_tables.part_files(source)]
        score = config.scores[source]
        if score is not None and score not in pq.read_schema(files[0]).names:
            raise BadInput("the source has no such score column", key=f"sources.{source}.score", got=score)
        total = token_tables.meta["sources"][source]["documents"]
        for number, ((phase, _), cell) in enumerate(zip(config.phases, cells, strict=True)):
            if cell.kind != "none":
                frame = spark.read.parquet(*files)
                seed = seeds.derive(config.seed, phase, source)
                frames.append(_select(frame, cell, score, total, seed, number, source))
    if not frames:
        raise BadInput("the mix selects nothing", key="mix")
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    return union


def _select(frame: Any, cell: Selector, score: str | None, total: int, seed: int, phase: int, source: str) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    frame = frame.select(
        F.lit(phase).alias("phase"),
        F.lit(source).alias("source"),
        "part",
        "row",
        "id",
        "tokens",
        (F.col(score) if score else F.lit(None).cast("double")).alias("score"),
    )
    if cell.kind == "top":
        if score is None:
            raise BadInput("`top` needs a score column", key=f"mix.{source}", got=str(cell))
        best = Window.orderBy(F.col("score").desc_nulls_last(), _draw(seed, F.lit("tie"), "id"), "part", "row")
        frame = frame.withColumn("rank", F.row_number().over(best)).where(F.col("rank") <= cell.keep(total))
        frame = frame.drop("rank")
    elif cell.kind == "rand":
        frame = frame.where(_draw(seed, F.lit("rand"), "id") < F.lit(cell.amount))
    copies = F.lit(1)
    if cell.kind == "x":
        whole = int(cell.amount)
        extra = (_draw(seed, F.lit("copies"), "id") < F.lit(cell.amount - whole)).cast("int")
        copies = F.lit(whole) + extra
        frame = frame.withColumn("copies", copies).where(F.col("copies") > 0)
        copies = F.col("copies")
    frame = frame.withColumn("copy", F.explode(F.sequence(F.lit(0), copies - 1))).drop("copies")
    return frame.withColumn("draw", _draw(seed, F.lit("order"), "id", "copy"))


def _keyed(spark: Any, config: MixStage, selected: Any) -> Any:
    """Add ``key`` (the phase's sort key), ``total`` (rows of the phase) and ``pass`` (0 the first time a document
    is seen in the whole run)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_phase, in_source = Window.partitionBy("phase"), Window.partitionBy("phase", "source")
    rank = F.row_number().over(in_source.orderBy(F.col("score").asc_nulls_first(), "draw", "part", "row", "copy"))
    ordered = [k for k, (_, phase) in enumerate(config.phases) if phase.order == "curriculum"]
    frame = selected.withColumn("total", F.count("*").over(in_phase))
    frame = frame.withColumn("own", F.count("*").over(in_source)).withColumn("rank", rank)
    interleaved = F.col("rank") * F.col("total") / F.col("own").cast("double")
    frame = frame.withColumn(
        "key", F.when(F.col("phase").isin(ordered), interleaved).otherwise(F.col("draw") * F.col("total"))
    )
    seen = Window.partitionBy("source", "part", "row").orderBy("phase", "key", "draw", "copy")
    return frame.withColumn("pass", (F.row_number().over(seen) - 1).cast("int"))


SORT = ["key", "draw", "source", "part", "row", "copy"]


def _write(spark: Any, config: MixStage, scratch: Path, out: Path) -> dict:
    """Cut each phase into buckets of its key, sort each bucket by itself, and write it as one numbered shard.

    Neither engine promises that a sorted frame comes back from parquet in order, so the order is ours: a bucket
    is an interval of the key, and the shard's number is the bucket's.
    """
    from pyspark.sql import functions as F

    frame = spark.read.parquet(str(scratch))
    phases = [name for name, _ in config.phases]
    totals = {r["phase"]: r["n"] for r in frame.groupBy("phase").agg(F.count("*").alias("n")).collect()}
    empty = [phases[k] for k in range(len(phases)) if not totals.get(k)]
    if empty:
        raise BadInput("the phase selects no document", key=f"phases.{empty[0]}")
    cuts = {k: -(-n // config.shard_rows) for k, n in totals.items()}
    count = F.element_at(F.create_map(*[F.lit(x) for kv in cuts.items() for x in kv]), F.col("phase"))
    # the key lies in (0, total]; the last interval is closed
    bucket = F.least(F.floor(F.col("key") / F.col("total") * count), count - 1).cast("int")
    frame = frame.withColumn("bucket", bucket)
    sizes = {
        (r["phase"], r["bucket"]): r["n"]
        for r in frame.groupBy("phase", "bucket").agg(F.count("*").alias("n")).collect()
    }
    shards, position = {}, 0
    for key in sorted(sizes):
        shards[key] = (len(shards), position)
        position += sizes[key]
    names = dict(enumerate(phases))
    target = str(out)

    def write(key, table):  # no annotations: pyspark would try to resolve them
        number, start = shards[(key[0].as_py(), key[1].as_py())]
        table = table.sort_by([(c, "ascending") for c in SORT])
        rows = pa.table(
            {
                "position": pa.array(np.arange(start, start + table.num_rows)),
                "phase": pa.array([names[key[0].as_py()]] * table.num_rows, pa.string()),
                "source": table["source"].cast(pa.string()),
                "part": table["part"].cast(pa.int32()),
                "row": table["row"].cast(pa.int32()),
                "id": table["id"].cast(pa.string()),
                "tokens": table["tokens"].cast(pa.int32()),
                "pass": table["pass"].cast(pa.int16()),
            }
        )
        write_parquet(Path(target) / f"order-{number:05d}.parquet", rows)
        return pa.table({"shard": pa.array([number], pa.int64()), "rows": pa.array([table.num_rows], pa.int64())})

    columns = ["phase", "bucket", "source", "part", "row", "id", "tokens", "pass", "key", "draw", "copy"]
    done = frame.select(*columns).groupBy("phase", "bucket").applyInArrow(write, "shard long, rows long").collect()
    rows = {r["shard"]: r["rows"] for r in done}
    assert rows == {number: sizes[key] for key, (number, _) in shards.items()}, "an order shard is missing"
    ledger = _ledger(frame, phases)
    write_json(
        out / "order.json",
        {
            "rows": position,
            "phases": [
                {
                    "name": p,
                    "rows": totals[k],
                    "tokens": sum(s["tokens"] for s in ledger[p].values()),
                    "sources": ledger[p],
                }
                for k, p in enumerate(phases)
            ],
            "shards": [{"name": f"order-{k:05d}", "rows": rows[k]} for k in range(len(rows))],
        },
    )
    return ledger


def _ledger(frame: Any, phases: list[str]) -> dict:
    from pyspark.sql import functions as F

    sums = frame.groupBy("phase", "source").agg(F.count("*").alias("documents"), F.sum("tokens").alias("tokens"))
    ledger: dict[str, dict] = {phase: {} for phase in phases}
    for r in sorted(sums.collect(), key=lambda r: (r["phase"], r["source"])):
        ledger[phases[r["phase"]]][r["source"]] = {"documents": r["documents"], "tokens": r["tokens"]}
    return ledger


def read_order(folder: Path):
    """The order's shards as tables, in training order."""
    for shard in read_json(Path(folder) / "order.json")["shards"]:
        yield pq.read_table(Path(folder) / f"{shard['name']}.parquet")
