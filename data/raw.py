"""Raw files as they were published, with their hashes: what every origin gives and every reader takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import file_hash
from gristmill.kernels.common.progress import bar


@dataclass(frozen=True)
class RawFile:
    """One file as it was published. ``name``: archive member, or POSIX path relative to the origin."""

    name: str
    path: Path
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Fetched:
    """Raw files sorted by name, and where they came from (JSON; file names and hashes, never an address)."""

    files: tuple[RawFile, ...]
    provenance: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """What a manifest keeps: the same on every machine that fetched the same bytes."""
        files = [{"name": raw.name, "sha256": raw.sha256, "bytes": raw.bytes} for raw in self.files]
        return {"from": self.provenance, "files": files}

    def subset(self, indices: list[int]) -> Fetched:
        """The files at ``indices``, for one of several workers."""
        return Fetched(tuple(self.files[k] for k in indices), self.provenance)

    def dump(self) -> dict[str, Any]:
        """JSON that :meth:`load` turns back, paths included: what to hand to a worker on this machine."""
        return {
            "files": [[raw.name, str(raw.path), raw.sha256, raw.bytes] for raw in self.files],
            "from": self.provenance,
        }

    @classmethod
    def load(cls, data: dict[str, Any]) -> Fetched:
        files = tuple(RawFile(name, Path(path), sha256, size) for name, path, sha256, size in data["files"])
        return cls(files, data["from"])


def hash_all(paths: dict[str, Path]) -> tuple[RawFile, ...]:
    """RawFiles for {name: path}, sorted by name; a file that cannot be read is BadInput."""
    sizes = {name: paths[name].stat().st_size for name in sorted(paths)}
    files = []
    with bar("hash (MB)", total=sum(sizes.values()) / 1e6) as advance:
        for name, size in sizes.items():
            try:
                files.append(RawFile(name, paths[name], file_hash(paths[name]), size))
            except OSError as e:
                raise BadInput(f"cannot be read: {e.strerror}", file=paths[name]) from None
            advance(size / 1e6, name)
    return tuple(files)
