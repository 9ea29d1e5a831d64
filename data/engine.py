"""The one door to the engine: PySpark over Spark Connect, to an embedded Sail server or to Apache Spark.

A data stage calls ``run(job, config, *args)`` for what needs rows to meet (grouping, ranking, ordering): a child
process opens the session, calls ``job(spark, *args)`` and hands back its JSON-like result. For what treats each
document alone it calls ``map_jobs``. Either way crashes, memory, Ctrl-C and torch's forks stay apart, and
nothing outlives the stage.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from gristmill.kernels.common.children import join
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.progress import bar


class EngineConfig(Config):
    """Where the data stages run. Nothing here can change what they produce."""

    kind: Literal["sail", "spark"] = Field("sail", description="sail (embedded, no Java) or spark (Apache Spark)")
    master: str | None = execution(
        None, description="for spark: local[2], spark://host:7077 or sc://host:15002; default local[*]"
    )
    partitions: int = execution(2, ge=1, description="tasks side by side (count)")


class EngineDied(RuntimeError):
    """The engine's process ended without an answer (killed, or out of memory)."""


@contextlib.contextmanager
def session(config: EngineConfig) -> Iterator[Any]:
    """A Spark session on the configured engine; used inside the child, by tests and by notebooks."""
    os.environ.setdefault("RUST_LOG", "error")
    # a window over a whole source is one task: known, and at the sizes of today's recipes cheap
    warnings.filterwarnings("ignore", message=".*No Partition Defined for Window.*")
    from pyspark.sql import SparkSession

    server = None
    if config.kind == "sail":
        from pysail.spark import SparkConnectServer

        server = SparkConnectServer("127.0.0.1", 0)
        server.start(background=True)
        host, port = server.listening_address
        builder = SparkSession.builder.remote(f"sc://{host}:{port}")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take whatever `python3` is
        master = config.master or "local[*]"
        try:
            builder = SparkSession.builder
            builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
        except Exception as error:
            raise BadInput("Apache Spark needs the extra gristmill[spark] and Java 17", key="engine.kind") from error
    spark = builder.getOrCreate()
    try:
        spark.conf.set("spark.sql.shuffle.partitions", str(config.partitions))
        yield spark
    finally:
        spark.stop()
        if server is not None:
            server.stop()


def map_jobs(
    config: EngineConfig, jobs: Sequence[dict], function: Callable[[dict], dict], title: str = "parts"
) -> list[dict]:
    """``function`` over independent jobs, side by side; results in the order of ``jobs``. ``title``: of the bar.

    A job is plain JSON and names its own input and output files, so what it writes cannot depend on how the
    jobs were spread; the function is importable by name and writes atomically, since an engine may try a job
    twice. On Spark the jobs are the tasks of a stage. Sail runs Python in threads of one process, where the
    interpreter lock leaves one core and spaCy breaks (its pipelines are shared and not thread-safe): there a
    pool of processes does the same.
    """
    if not jobs:
        return []
    if config.partitions == 1:
        with bar(title, len(jobs)) as advance:
            return list(_counted(map(function, jobs), advance))
    if config.kind == "spark":
        return run(_map_in_engine, config, list(jobs), function, config.partitions)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(config.partitions, len(jobs), os.cpu_count() or 1), context, join, (os.getpid(),))
    try:
        with bar(title, len(jobs)) as advance:
            answers = list(_counted(pool.map(function, jobs), advance))
    except BrokenProcessPool:
        raise EngineDied("a worker process ended without an answer (killed, or out of memory)") from None
    except BaseException:
        for process in list(pool._processes.values()):  # a job may be long; nobody waits for its answer now
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return answers


def _counted(answers: Iterable[dict], advance: Callable[[int], None]) -> Iterator[dict]:
    for answer in answers:
        advance(1)
        yield answer


def _map_in_engine(spark: Any, jobs: list[dict], function: Callable[[dict], dict], partitions: int) -> list[dict]:
    def task(batches):
        for batch in batches:
            out = [json.dumps(function(json.loads(job))) for job in batch.column("job").to_pylist()]
            yield pa.RecordBatch.from_pydict({"number": batch.column("number"), "result": pa.array(out, pa.string())})

    rows = [(k, json.dumps(job)) for k, job in enumerate(jobs)]
    frame = spark.createDataFrame(rows, "number long, job string").repartition(min(len(jobs), partitions))
    done = {
        row.number: json.loads(row.result) for row in frame.mapInArrow(task, "number long, result string").collect()
    }
    return [done[k] for k in range(len(jobs))]


class _Child:
    """A process with a session of its own, serving one call at a time; it ends with its parent."""

    def __init__(self, config: EngineConfig):
        context = multiprocessing.get_context("spawn")
        self.config = config
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, config, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, job: Callable[..., Any], args: tuple) -> Any:
        try:
            self.pipe.send((job, args))
            kind, value = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            raise EngineDied(f"the engine process ended without an answer (exit code {code})") from None
        if kind == "bad input":
            raise BadInput(value)
        if kind == "error":
            raise RuntimeError(value)
        return value

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


_shared: list[_Child | None] = []  # a stack of one: the child that `shared` keeps, once it is needed


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Within this, calls of :func:`run` with one configuration use one child: a session takes two seconds to open."""
    _shared.append(None)
    try:
        yield
    finally:
        child = _shared.pop()
        if child is not None:
            child.close()


def run(job: Callable[..., Any], config: EngineConfig, *args: Any) -> Any:
    """Call ``job(spark, *args)`` in a child process with a session and return its result.

    Raises BadInput as the job raised it, EngineDied when the child was killed, RuntimeError with the
    child's message otherwise.
    """
    child = _shared[-1] if _shared else None
    if child is None or child.config != config or not child.process.is_alive():
        if child is not None:
            child.close()
        child = _Child(config)
        if _shared:
            _shared[-1] = child
    try:
        return child.call(job, args)
    except BaseException as error:
        if _shared and not isinstance(error, (BadInput, RuntimeError)):  # interrupted: its state is unknown
            _shared[-1] = None
            child.close()
        raise
    finally:
        if not _shared:
            child.close()


def _serve(pipe: Any, config: EngineConfig, parent: int) -> None:
    join(parent)
    with session(config) as spark:
        while True:
            try:
                job, args = pipe.recv()
            except EOFError:
                break
            try:
                answer = ("ok", job(spark, *args))
            except BadInput as error:
                answer = ("bad input", str(error))
            except Exception as error:
                answer = _explain(error)
            pipe.send(answer)
    os._exit(0)  # the server's threads do not end by themselves


def _explain(error: Exception) -> tuple[str, str]:
    """A BadInput raised inside a worker arrives as text in the engine's own exception: find it again."""
    found = re.findall(r"BadInput: (.*)", str(error))
    if found:
        return "bad input", found[-1].strip()
    if "No space left on device" in str(error):
        return "bad input", "no space left on the disk; free some and run again"
    return "error", f"{type(error).__name__}: {error}"
