"""One release of a package on the configured Python package indexes: which archives it has, and their bytes.

Speaks the simple API (PEP 503/691). Index addresses, certificate and proxy are pip's own settings, asked from
pip, so whatever lets ``pip download`` work here lets this work. An address never leaves this module except
in an error, without its credentials.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import subprocess
import sys
from bisect import bisect
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests
from packaging.version import InvalidVersion, Version
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DistributionPackage,
    NoSuchProjectError,
    PyPISimple,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)
from urllib3.util.retry import Retry

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.progress import bar

_TIMEOUT = (15, 60)  # seconds to connect, seconds without a byte
_NEAREST = 3  # versions named on either side of one that is missing


class PackageIndex:
    """Asks nothing of the network until :meth:`archives` or :meth:`download` is called."""

    def __init__(self, name: str, version: str):
        self.name, self.version = name, version

    def archives(self) -> list[dict[str, Any]]:
        """At most one wheel and one source distribution, in this order: {filename, sha256, bytes, from_index}.

        The choice does not look at the platform: a pure wheel before others, then by name, so every machine
        reads the same archive. ``from_index`` tells whether the hash is the index's word; without it ``sha256``
        is None until the first download.
        """
        wheels = sorted(
            (p for p in self._links.values() if p.package_type == "wheel"),
            key=lambda p: (not p.filename.endswith("-none-any.whl"), p.filename),
        )
        sdists = sorted((p for p in self._links.values() if p.package_type == "sdist"), key=lambda p: p.filename)
        if not wheels and not sdists:
            raise BadInput("the release has neither a wheel nor a source distribution", got=self._pin)
        return [
            {
                "filename": p.filename,
                "sha256": p.digests.get("sha256"),
                "bytes": p.size,
                "from_index": "sha256" in p.digests,
            }
            for p in wheels[:1] + sdists[:1]
        ]

    def download(self, filename: str, target: Path) -> None:
        """Stream one archive of the release into ``target`` (not verified here)."""
        package = self._links.get(filename)
        if package is None:
            raise BadInput("the index no longer has this archive", got=filename, valid=list(self._links))
        try:
            with self._session.get(package.url, stream=True, timeout=_TIMEOUT) as response:
                response.raise_for_status()
                size = int(response.headers.get("Content-Length", 0)) or package.size or 0
                with open(target, "wb") as file, bar(f"download {filename} (MB)", total=size / 1e6) as advance:
                    for block in response.iter_content(1 << 18):
                        file.write(block)
                        advance(len(block) / 1e6)
        except OSError as e:  # requests' own errors are OSErrors too
            raise BadInput(f"download of {filename} failed: {_address(package.url)} ({_cause(e)})") from None

    def close(self) -> None:
        if "_session" in self.__dict__:
            self._session.close()

    @property
    def _pin(self) -> str:
        return f"{self.name}=={self.version}"

    @cached_property
    def _settings(self) -> dict[str, str]:
        return pip_settings()

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        retry = Retry(total=2, backoff_factor=0.2, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False)
        for scheme in ("https://", "http://"):
            session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=retry))
        session.mount("file://", _LocalFiles())
        session.verify = self._settings.get("cert", True)
        if proxy := self._settings.get("proxy"):
            session.proxies = {"http": proxy, "https": proxy}
        return session

    @cached_property
    def _links(self) -> dict[str, DistributionPackage]:
        """File name -> link, for the archives of this version, on the first index that has it."""
        wanted, versions, failures = _version(self.version), set(), []
        if wanted is None:
            raise BadInput("not a version (PEP 440)", got=self._pin)
        indexes = [
            self._settings.get("index-url", PYPI_SIMPLE_ENDPOINT),
            *self._settings.get("extra-index-url", "").split(),
        ]
        for url in indexes:
            try:
                page = PyPISimple(url, session=self._session).get_project_page(self.name, timeout=_TIMEOUT)
            except NoSuchProjectError:
                continue
            except (requests.RequestException, UnsupportedContentTypeError, UnsupportedRepoVersionError) as e:
                failures.append(f"{_address(url)} ({_cause(e)})")
                continue
            links = {p.filename: p for p in page.packages if _version(p.version) == wanted}
            if links:
                return links
            versions |= {v for p in page.packages if (v := _version(p.version))}
        if failures:
            raise BadInput(f"package index out of reach, needed for {self._pin}; tried {', '.join(failures)}")
        if not versions:
            raise BadInput("no such package on the index", got=self.name)
        ordered = sorted(versions)
        at = bisect(ordered, wanted)
        near = ", ".join(map(str, ordered[max(0, at - _NEAREST) : at + _NEAREST]))
        raise BadInput("no such version", got=self._pin, expected=f"one of {len(ordered)}, the nearest are {near}")


def pip_settings() -> dict[str, str]:
    """pip's effective settings (``index-url``, ``extra-index-url``, ``cert``, ``proxy`` ...), as pip itself merges its
    files and environment; of the environment alone where there is no pip."""
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    sections: dict[str, dict[str, str]] = {}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        with contextlib.suppress(ValueError, SyntaxError):
            sections.setdefault(section, {})[name] = str(ast.literal_eval(value))
    environment = {k[4:].lower().replace("_", "-"): v for k, v in os.environ.items() if k.startswith("PIP_")}
    merged: dict[str, str] = {}
    for section in ("global", "install", "download", ":env:"):  # pip's precedence, weakest first
        merged |= sections.get(section, {})
    return merged | environment


class _LocalFiles(requests.adapters.BaseAdapter):
    """An index that is a folder on this machine (``file://``), as pip allows."""

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        path = Path(url2pathname(urlsplit(request.url).path))
        response = requests.Response()
        response.request, response.url = request, request.url
        try:
            response.raw = open(path / "index.html" if path.is_dir() else path, "rb")  # noqa: SIM115 (closed by the response)
            response.status_code = 200
        except OSError:
            response.raw, response.status_code = io.BytesIO(), 404
        response.headers["Content-Type"] = "text/html"
        return response

    def close(self) -> None:
        """Nothing is kept open."""


def _version(text: str | None) -> Version | None:
    try:
        return Version(text or "")
    except InvalidVersion:
        return None


def _address(url: str) -> str:
    """Scheme, host and path: no credentials, no query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _cause(error: Exception) -> str:
    """The innermost reason in a few words: requests wraps urllib3 wraps the socket, each repeating the address."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    reason = getattr(error.args[0], "reason", error) if error.args else error
    return str(reason).rsplit(": ", 1)[-1].strip("'\")> ") or type(error).__name__
