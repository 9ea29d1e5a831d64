"""Checkpoints that are either whole or absent.

    step-0000123/   after 123 steps
        model.safetensors       FP32 weights by parameter name
        optimizer.safetensors   moments; kept in the newest checkpoint only
        state.json              {"step", ... the caller's state, "files": {name: sha256}, "digest"}

Written into a hidden folder, flushed, renamed; state.json vouches for the files and ``digest`` for state.json.
A name that is not exactly a checkpoint's is nobody's business here, and order is that of numbers.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from gristmill.kernels.common.files import digest, file_hash, fsync, read_json, write_json

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_NAME = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint whose hashes hold."""

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return self.state["step"]

    @property
    def has_optimizer(self) -> bool:
        return OPTIMIZER in self.state["files"]

    def weights(self) -> dict[str, Tensor]:
        return load_file(self.folder / MODEL)

    def optimizer(self) -> dict[str, Tensor]:
        return load_file(self.folder / OPTIMIZER)


def save(
    folder: Path,
    step: int,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor] | None = None,
    state: Mapping[str, Any] | None = None,
) -> Path:
    """Write the checkpoint of ``step`` below ``folder`` and return its folder.

    Whatever fails on the way (no space, a kill), the checkpoints that were there stay.
    """
    final = Path(folder) / f"step-{step:07d}"
    tmp = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    old = final.with_name(f".{final.name}.{os.getpid()}.old")
    shutil.rmtree(tmp, ignore_errors=True)
    tmp.mkdir(parents=True)
    try:
        hashes = {}
        for name, tensors in ((MODEL, weights), (OPTIMIZER, optimizer)):
            if tensors is not None:
                save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, tmp / name)
                fsync(tmp / name)
                hashes[name] = file_hash(tmp / name)
        write_json(tmp / STATE, _sealed({**(state or {}), "step": step, "files": hashes}))
        fsync(tmp)
        if final.exists():  # the same step again, after falling back behind it
            os.replace(final, old)
        os.replace(tmp, final)
        fsync(final.parent)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
        if old.exists() and not final.exists():
            os.replace(old, final)
        shutil.rmtree(old, ignore_errors=True)
    return final


def complete(folder: Path) -> Iterator[Checkpoint]:
    """The checkpoints below ``folder`` that hold, newest first; each that does not is named on standard error."""
    for path in sorted(folders(folder), key=_step, reverse=True):
        problem, state = _check(path)
        if problem:
            print(f"warning: {path}: {problem}; passing over this checkpoint", file=sys.stderr)
        else:
            yield Checkpoint(path, state)


def latest(folder: Path) -> Checkpoint | None:
    """The newest complete checkpoint below ``folder``, or None."""
    return next(complete(folder), None)


def folders(folder: Path) -> list[Path]:
    """Folders named as checkpoints are, oldest first, unchecked."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()), key=_step)


def drop_optimizer(folder: Path, before: int) -> None:
    """Remove the optimizer state of all checkpoints older than step ``before``: call once that one is saved."""
    for path in folders(folder):
        if _step(path) >= before or not (path / OPTIMIZER).exists():
            continue
        problem, state = _check(path)
        if problem:
            continue  # evidence, not ours to change
        if OPTIMIZER in state["files"]:  # first the record, so that a kill in between leaves a complete checkpoint
            files = {name: value for name, value in state["files"].items() if name != OPTIMIZER}
            write_json(path / STATE, _sealed({**state, "files": files}))
        (path / OPTIMIZER).unlink()


def sweep(folder: Path) -> None:
    """Remove what writers that were killed left below ``folder``; nobody may be writing there."""
    for path in [*Path(folder).rglob(".*.tmp"), *Path(folder).rglob(".*.old")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _step(path: Path) -> int:
    return int(_NAME.fullmatch(path.name).group(1))


def _sealed(state: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in state.items() if key != "digest"}
    return {**body, "digest": digest(body)}


def _check(path: Path) -> tuple[str | None, dict[str, Any]]:
    """(what is wrong with a checkpoint, its state)."""
    try:
        state = read_json(path / STATE)
    except FileNotFoundError:
        return f"no {STATE}", {}
    except ValueError:
        return f"{STATE} is not readable", {}
    if not isinstance(state, dict) or state != _sealed(state) or state.get("step") != _step(path):
        return f"{STATE} was changed", {}
    for name, expected in state["files"].items():
        if not (path / name).is_file():
            return f"{name} is missing", {}
        if file_hash(path / name) != expected:
            return f"{name} is damaged (its sha256 differs)", {}
    return None, state
