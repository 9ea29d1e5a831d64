"""A spool: raw files that this machine makes once from something that is no file, such as a stream or a generator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from gristmill.data.raw import RawFile
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import file_hash, read_json, write_json

RECORD = "spool.json"  # [[name, sha256, bytes]], written last


def spool(folder: Path, write: Callable[[Path], list[str]]) -> tuple[RawFile, ...]:
    """The files that ``write(folder) -> names`` made, sorted by name: made now unless they are there and whole.

    ``folder`` is named after all that decides them, so several processes may share it and a damaged file is made
    again. Raises BadInput where the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"cache folder cannot be made: {e.strerror}", file=folder) from None
    with FileLock(folder / ".lock"):
        record = folder / RECORD
        if record.exists():
            files = tuple(RawFile(name, folder / name, sha256, size) for name, sha256, size in read_json(record))
            if all(raw.path.is_file() and file_hash(raw.path) == raw.sha256 for raw in files):
                return files
            record.unlink()
        paths = [folder / name for name in sorted(write(folder))]
        files = tuple(RawFile(path.name, path, file_hash(path), path.stat().st_size) for path in paths)
        write_json(record, [[raw.name, raw.sha256, raw.bytes] for raw in files])
        return files
