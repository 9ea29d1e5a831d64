"""Files behind an address (``s3://``, ``https://``, ``memory://`` ...): listed and copied into the cache by fsspec.

    cache/urls/objects/<sha256>     the files, each named by its content and checked against its name at every use
    cache/urls/<hash of address>.json   what the last listing held: {name: {"bytes", "stamp", "sha256"}}

A file is copied again when the storage reports another size or stamp (entity tag, checksum or time, whichever it has)
and, where it reports no stamp, every time. What identifies the source is the content, not the address: the same files
elsewhere are the same source. Credentials and endpoints are fsspec's own settings; an address is shown and recorded
without user and query.
"""

from __future__ import annotations

import glob as globbing
import hashlib
import os
import sys
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec
from filelock import FileLock
from fsspec.registry import known_implementations

from gristmill.data.raw import Fetched, RawFile, hash_all
from gristmill.kernels.common.errors import BadInput, nearest
from gristmill.kernels.common.files import file_hash, fsync, read_json, write_json
from gristmill.kernels.common.progress import bar

# What storages call the version of a file, the strictest first.
_STAMPS = (
    "ETag",
    "etag",
    "md5Hash",
    "Content-MD5",
    "checksum",
    "mtime",
    "LastModified",
    "Last-Modified",
    "updated",
    "created",
)
_WEB = ("http", "https")


def is_address(path: str) -> bool:
    """Whether a path names a protocol."""
    return "://" in path


def fetch(url: str, cache: Path) -> Fetched:
    """The file at ``url``, all files of the folder there, or those its pattern matches (names as for local files).

    Raises BadInput for a protocol whose package is missing, nothing there, and a storage out of reach, unless the
    files of an earlier listing are in the cache: then those are used, and a line on standard error says so.
    """
    shown = address(url)
    folder = cache / "urls"
    record = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"
    try:
        (folder / "objects").mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"cache folder cannot be made: {e.strerror}", file=folder) from None
    storage, path = _storage(url)
    with FileLock(record.with_suffix(".lock")):
        before = read_json(record) if record.exists() else {}
        try:
            storage.invalidate_cache()
            listing = _listing(storage, path)
            if not listing:
                raise FileNotFoundError
            now = _copy(storage, listing, before, folder / "objects", shown)
            write_json(record, now)
        except (BadInput, MemoryError):
            raise
        except Exception as error:  # each back end has errors of its own
            if _absent(error):
                raise BadInput("no such file, or no file matches", file=shown) from None
            error = error.__cause__ or error
            cause = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].replace(url, shown)[:200]}"
            if not before:
                raise BadInput(f"out of reach ({cause})", file=shown) from None
            print(f"{shown}: out of reach ({cause}); using the files copied before", file=sys.stderr)
            now = before
        return Fetched(_checked(now, folder / "objects"), {"kind": "files", "path": shown})


def address(url: str) -> str:
    """``url`` without user and query."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0] if scheme in _WEB else path}"


def _absent(error: BaseException | None) -> bool:
    """Whether the storage answered, and said no. fsspec's HTTP calls a host that is down a file that is not there."""
    while isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)) and error.__cause__ is not None:
        error = error.__cause__
    said_no = getattr(error, "status", None) in (404, 410)  # as the HTTP client says it
    return said_no or isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError))


def _storage(url: str) -> tuple[Any, str]:
    """(file system, path on it)"""
    protocol = url.partition("://")[0].partition("::")[0]
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = known_implementations.get(protocol, {}).get("class", protocol).partition(".")[0]
        hint = f"`pip install {package}`" if package != "fsspec" else str(error)
        raise BadInput(f"{protocol}:// needs a package that is not installed; {hint}", file=address(url)) from None
    except ValueError as error:
        known = fsspec.available_protocols()
        if protocol in known:
            raise BadInput(f"not an address: {error}", file=address(url)) from None
        close = nearest(protocol, known)
        hint = f"; did you mean {close!r}?" if close else ""
        raise BadInput(f"no such protocol {protocol!r}{hint}", file=address(url)) from None


def _listing(storage: Any, path: str) -> dict[str, dict]:
    """name -> what the storage says of the file. Names start at the first folder that is a pattern."""
    web = urlsplit(path).scheme in _WEB
    if any(c in path for c in "*[") if web else globbing.has_magic(path):
        parts = path.split("/")
        base = "/".join(takewhile(lambda part: not globbing.has_magic(part), parts))
        found = storage.glob(path, detail=True)
    else:
        info = storage.info(path)
        if info["type"] != "directory":
            return {PurePosixPath(unquote(urlsplit(path).path) if web else path).name: info}
        base, found = path.rstrip("/"), storage.find(path, detail=True)
    names = {file.removeprefix(base).lstrip("/"): info for file, info in found.items() if info["type"] == "file"}
    hidden = {name for name in names if any(part.startswith(".") for part in name.split("/"))}
    return {name: info for name, info in sorted(names.items()) if name not in hidden}


def _copy(storage: Any, listing: dict[str, dict], before: dict, objects: Path, shown: str) -> dict[str, dict]:
    """Copy what is new; returns the record of the listing."""
    facts = {}
    for name, info in listing.items():
        if _stamp(info) is None:  # a listing may say less than the file itself
            info = storage.info(info["name"])
        facts[name] = {"from": info["name"], "bytes": info.get("size"), "stamp": _stamp(info)}
    new = {name for name, fact in facts.items() if not _same(fact, before.get(name), objects)}
    with bar(f"copy from {shown} (MB)", total=sum(facts[n]["bytes"] or 0 for n in new) / 1e6) as advance:
        callback = _Progress(advance)
        for name, fact in facts.items():
            source = fact.pop("from")
            if name not in new:
                fact |= {"bytes": before[name]["bytes"], "sha256": before[name]["sha256"]}
                continue
            tmp = objects / f".{os.getpid()}.tmp"
            try:
                storage.get_file(source, str(tmp), callback=callback)
                fsync(tmp)
                fact |= {"sha256": file_hash(tmp), "bytes": tmp.stat().st_size}
                tmp.replace(objects / fact["sha256"])
            finally:
                tmp.unlink(missing_ok=True)
    return facts


def _same(fact: dict, old: dict | None, objects: Path) -> bool:
    if old is None or fact["stamp"] is None or fact["stamp"] != old["stamp"]:
        return False
    return fact["bytes"] in (None, old["bytes"]) and (objects / old["sha256"]).is_file()


def _stamp(info: dict) -> str | None:
    return next((f"{name}={info[name]}" for name in _STAMPS if info.get(name) is not None), None)


def _checked(record: dict[str, dict], objects: Path) -> tuple[RawFile, ...]:
    """The cached files, each held to the content it is named after."""
    paths = {name: objects / entry["sha256"] for name, entry in record.items()}
    if missing := [path for path in paths.values() if not path.is_file()]:
        raise BadInput("a cached copy is missing; run again when its storage can be reached", file=missing[0])
    files = hash_all(paths)
    for raw in files:
        if raw.sha256 != raw.path.name:
            raw.path.unlink()
            raise BadInput("cached copy is damaged; removed, run again to copy it", file=raw.path, got=raw.sha256)
    return files


class _Progress(fsspec.callbacks.Callback):
    """fsspec's account of a copy, passed on to a progress bar in MB."""

    def __init__(self, advance: Any):
        super().__init__()
        self._advance = advance

    def relative_update(self, inc: int = 1) -> None:
        self._advance(inc / 1e6)
