"""Rows of a Hugging Face dataset: the ``hf`` origin, read as a stream by the library ``datasets``.

A dataset on the hub is a git repository that changes, so its revision is a commit, as a package has a version: a
branch or no revision at all is refused, with the commit that it stands for today. A dataset in a local folder is known
by the hash of its files. Rows go to parquet files in the cache (:data:`ROWS` a file), every column of them; from there
on the source is like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.data.raw import Fetched, hash_all
from gristmill.data.sources import COMMIT, HubOrigin
from gristmill.data.spool import spool
from gristmill.kernels.common.config import result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import atomic, digest
from gristmill.kernels.common.progress import bar

if TYPE_CHECKING:
    from datasets import IterableDataset

ROWS = 50_000  # rows a parquet file of the spool holds
_BATCH = 1000


def fetch(origin: HubOrigin, cache: Path, root: Path) -> Fetched:
    """Parquet files with the rows of one split, in the dataset's own order.

    Raises BadInput for a dataset, configuration or split that is not there, a hub out of reach, and a revision that
    is no commit.
    """
    made_of = result_fields(origin)
    if origin.path is None:
        _check_pinned(origin)
        where: str = origin.name or ""
    else:
        made_of["content"] = identity(origin, root)
        where = str(_folder(origin, root))
    key = digest({name: value for name, value in made_of.items() if name != "path"})[:16]
    return Fetched(spool(cache / "hf" / key, lambda folder: _write(origin, where, folder)), made_of)


def identity(origin: HubOrigin, root: Path) -> str | None:
    """sha256 over the files of a local dataset; None for one on the hub, which its revision pins."""
    if origin.path is None:
        _check_pinned(origin)
        return None
    folder = _folder(origin, root)
    below = {p.relative_to(folder): p for p in folder.rglob("*") if p.is_file()}
    files = hash_all({n.as_posix(): p for n, p in below.items() if not any(part.startswith(".") for part in n.parts)})
    return digest([[raw.name, raw.sha256] for raw in files])


def _folder(origin: HubOrigin, root: Path) -> Path:
    folder = root / Path(origin.path or "").expanduser()
    if not folder.is_dir():
        raise BadInput("no such folder; a dataset on the hub is named by `name`", file=folder)
    return folder


def _check_pinned(origin: HubOrigin) -> None:
    if origin.revision is not None and COMMIT.fullmatch(origin.revision):
        return
    try:
        now = f"now {_ask(origin)}"
    except BadInput as error:  # the answer is a courtesy
        now = f"which cannot be looked up ({error})"
    raise BadInput(
        "a dataset on the hub changes: its revision must be a commit",
        file=origin.name,
        key="from.revision",
        got=origin.revision,
        expected=f"the 40 hexadecimal digits of a commit, {now}",
    )


def _ask(origin: HubOrigin) -> str:
    """The commit that the dataset's revision stands for. One request: what follows would retry for half a minute."""
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(origin.name, revision=origin.revision, timeout=15).sha
    except Exception as error:  # its client raises what it likes
        raise BadInput(f"the hub does not give this dataset: {_cause(error)}", file=origin.name) from None


def _write(origin: HubOrigin, where: str, folder: Path) -> list[str]:
    names: list[str] = []
    if origin.path is None:
        _ask(origin)
    try:
        rows = _open(origin, where)
        known = rows.info.splits.get(origin.split) if rows.info.splits else None
        total = min(x for x in (origin.limit, known and known.num_examples, 10**15) if x)
        with bar(f"rows of {Path(where).name}", total=0 if total == 10**15 else total) as advance:
            for tables in _groups(rows):
                names.append(f"part-{len(names):05d}.parquet")
                with atomic(folder / names[-1]) as tmp:
                    table = pa.concat_tables(tables).replace_schema_metadata(None)  # the library's own notes
                    pq.write_table(table, tmp, compression="zstd")
                advance(table.num_rows)
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # the hub's client, fsspec's back ends and each file format raise what they like
        raise BadInput(f"the dataset cannot be read: {_cause(error)}", file=where, got=_asked(origin)) from None
    if not names:
        raise BadInput("the dataset has no rows", file=where, got=_asked(origin))
    return names


def _open(origin: HubOrigin, where: str) -> IterableDataset:
    import datasets

    given = {"name": origin.config, "revision": origin.revision}
    rows = datasets.load_dataset(
        where, split=origin.split, streaming=True, **{k: v for k, v in given.items() if v is not None}
    )
    return rows if origin.limit is None else rows.take(origin.limit)


def _groups(rows: Any) -> Iterator[list[pa.Table]]:
    """Arrow tables, grouped to ROWS rows."""
    group: list[pa.Table] = []
    for table in rows.with_format("arrow").iter(batch_size=_BATCH):
        group.append(table)
        if sum(t.num_rows for t in group) >= ROWS:
            yield group
            group = []
    if group:
        yield group


def _asked(origin: HubOrigin) -> dict[str, Any]:
    return {k: v for k, v in result_fields(origin).items() if v is not None and k in ("config", "split", "revision")}


def _cause(error: Exception) -> str:
    """What went wrong, in one line and not the page of advice behind it."""
    return " ".join(str(error).split())[:200] or type(error).__name__
