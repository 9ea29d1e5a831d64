"""Collect: drop every artefact that no run reaches."""

from __future__ import annotations

import shutil
from pathlib import Path

from filelock import FileLock, Timeout

from gristmill.kernels.common.files import read_json
from gristmill.recipes.runner.runs import RUN_FILE
from gristmill.recipes.runner.store import Store


def collect(root: Path, dry_run: bool) -> list[tuple[str, int]]:
    """(name, bytes) of what was dropped: unreached artefacts, and leftovers nobody is building."""
    reached: set[str] = set()
    for path in Path(root).glob(f"*/{RUN_FILE}"):
        reached |= set(read_json(path)["stages"].values())
    dropped = []
    for folder in sorted(p for p in Store(root).folder.glob("*") if p.is_dir()):
        name = folder.name.removesuffix(".partial")
        if folder.name in reached:
            continue
        lock = FileLock(folder.with_name(f"{name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue  # being built
        try:
            size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            if not dry_run:
                shutil.rmtree(folder)
            dropped.append((folder.name, size))
        finally:
            lock.release()
    return dropped
