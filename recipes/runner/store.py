"""The store: artefacts addressed by what went into them, shared by all recipes.

    <root>/store/<stage>-<fingerprint>/   a finished artefact: its files and manifest.json
    <root>/store/<...>.partial            one being built, under <...>.lock
    <root>/<run>/run.json                 a run: its resolved recipe, and the artefact of every stage

fingerprint = hash(stage, version, result config, contents of inputs), known before building;
content = hash(the same, the files, the ledger, the seeds), known after. Wall time, host and package versions
are provenance: recorded, never hashed. Files under an artefact's ``provenance/`` folder are not hashed either.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gristmill.kernels.common.config import Config, result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import digest, file_hash, fsync, read_json, walk, write_json

MANIFEST = "manifest.json"
UNHASHED = "provenance/"
MIN_FREE = 256 << 20  # bytes free below which no stage is started


@dataclass(frozen=True)
class Node:
    """One stage of one recipe: what to run on what."""

    key: str  # unique in the recipe: "mix", "eval.base"
    stage: str  # the kind: "mix", "eval"
    version: int  # bumped whenever the code changes what the stage writes
    config: Config
    run: Callable[..., dict]
    inputs: Mapping[str, str] = field(default_factory=dict)  # input name -> node key
    external: Mapping[str, Any] = field(default_factory=dict)  # identity of what comes from outside
    resumable: bool = False  # the stage continues from what it left in its partial folder


@dataclass(frozen=True)
class Artefact:
    """A finished stage on disk."""

    folder: Path
    manifest: dict

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def content(self) -> str:
        return self.manifest["content"]


def fingerprint(node: Node, contents: Mapping[str, str]) -> str:
    """sha256 (hex) of all that decides what ``node`` will produce; ``contents``: input name -> content hash."""
    return digest(_identity(node, contents))


def _identity(node: Node, contents: Mapping[str, str]) -> dict:
    return {
        "stage": node.stage,
        "version": node.version,
        "config": result_fields(node.config),
        "inputs": dict(contents),
        "external": dict(node.external),
    }


def content_of(manifest: Mapping[str, Any]) -> str:
    """The content hash a manifest should carry, recomputed from its own fields."""
    hashed = ("stage", "version", "config", "inputs", "external", "outputs", "ledger", "seeds")
    return digest({name: manifest[name] for name in hashed})


class Store:
    """Artefacts under ``root/store``. Two processes may use one store at once."""

    def __init__(self, root: Path):
        self.root = Path(root)
        self.folder = self.root / "store"

    def path(self, node: Node, print_: str) -> Path:
        return self.folder / f"{node.stage}-{print_[:16]}"

    def find(self, node: Node, contents: Mapping[str, str]) -> Artefact | None:
        """The finished artefact of ``node``, checked by size and age of its files; None when there is none."""
        folder = self.path(node, fingerprint(node, contents))
        return self.open(folder) if (folder / MANIFEST).is_file() else None

    def open(self, folder: Path | str) -> Artefact:
        """An artefact by folder or name. Raises BadInput when a file is missing or was changed since."""
        folder = self.folder / Path(folder).name
        try:
            manifest = read_json(folder / MANIFEST)
        except (FileNotFoundError, ValueError):
            raise BadInput("not a finished artefact (no readable manifest.json)", file=folder) from None
        written = (folder / MANIFEST).stat().st_mtime
        for entry in manifest["outputs"]:
            path = folder / entry["path"]
            try:
                stat = path.stat()
            except FileNotFoundError:
                raise BadInput(
                    "a file of a finished artefact is missing; delete the folder to rebuild", file=path
                ) from None
            # files are older than the manifest, which is written last; a moved folder keeps that order
            if stat.st_size != entry["size"] or stat.st_mtime > written + 1:
                if stat.st_size == entry["size"] and file_hash(path) == entry["sha256"]:
                    continue
                raise BadInput("a file of a finished artefact was changed; delete the folder to rebuild", file=path)
        return Artefact(folder, manifest)

    def build(self, node: Node, inputs: Mapping[str, Artefact]) -> Artefact:
        """Run ``node`` unless its artefact is there; wait for another process that is building it."""
        contents = {name: artefact.content for name, artefact in inputs.items()}
        print_ = fingerprint(node, contents)
        final = self.path(node, print_)
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(final.with_name(final.name + ".lock"), node.key):
            if (final / MANIFEST).is_file():
                return self.open(final)
            free = shutil.disk_usage(self.folder).free
            if free < MIN_FREE:
                raise BadInput(
                    "too little space is left on the disk",
                    file=self.folder,
                    got=f"{free >> 20} MiB",
                    expected=f"{MIN_FREE >> 20} MiB",
                )
            partial = final.with_name(final.name + ".partial")
            if partial.exists() and not node.resumable:
                shutil.rmtree(partial)
            partial.mkdir(exist_ok=True)
            began = time.time()
            ledger = node.run(node.config, {name: a.folder for name, a in inputs.items()}, partial)
            outputs = [
                {"path": p, "size": (partial / p).stat().st_size, "sha256": file_hash(partial / p)}
                for p in walk(partial)
                if not p.startswith(UNHASHED) and p != MANIFEST
            ]
            manifest = {
                **_identity(node, contents),
                "fingerprint": print_,
                "artefacts": {name: a.name for name, a in inputs.items()},
                "outputs": outputs,
                "ledger": ledger,
                "seeds": {k: v for k, v in result_fields(node.config).items() if k == "seed"},
            }
            manifest["content"] = content_of(manifest)
            manifest["provenance"] = provenance(time.time() - began)
            for p in walk(partial):
                fsync(partial / p)
            write_json(partial / MANIFEST, manifest)
            os.replace(partial, final)
            fsync(self.folder)
            return Artefact(final, manifest)

    def names(self) -> list[str]:
        """Names of all finished artefacts."""
        return sorted(
            p.parent.name for p in self.folder.glob(f"*/{MANIFEST}") if not p.parent.name.endswith(".partial")
        )


def _locked(path: Path, key: str) -> FileLock:
    """A lock that ends with its process, so a kill leaves nothing to clean; waiting says so once."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0.5)
        lock.release()
    except Timeout:
        print(f"{key}: another process is building this; waiting", file=sys.stderr)
    return lock


def provenance(seconds: float) -> dict:
    """Where and with what an artefact was made. Never hashed."""
    packages = (
        "torch",
        "transformers",
        "tokenizers",
        "pyarrow",
        "numpy",
        "numba",
        "pysail",
        "pyspark-client",
        "datatrove",
    )
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit, dirty = code_version()
    return {
        "seconds": round(seconds, 3),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": versions,
        "commit": commit,
        "dirty": dirty,
    }


def code_version() -> tuple[str | None, bool | None]:
    """(commit, whether files differ from it) of the checkout this code runs from; (None, None) outside of one."""
    here = Path(__file__).resolve().parents[2]
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        status = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return commit.stdout.strip(), bool(status.stdout.strip())
