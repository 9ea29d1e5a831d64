"""Bytes and lines of a raw file, decompressed by its name: ``.gz``, ``.bz2`` or ``.zst``.

Everything that can be decoded comes out before :class:`Broken` is raised, whatever the format and however the
file was cut: the libraries' own file objects treat a truncated zstd stream as its end, and drop the last
block of the others.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import zstandard

if TYPE_CHECKING:
    from gristmill.data.raw import RawFile

_BLOCK = 1 << 18
_BOM = b"\xef\xbb\xbf"
_DECODERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),  # 31: gzip framing, checksum verified
    ".bz2": bz2.BZ2Decompressor,
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(),  # written with --long=31
}


class Broken(Exception):
    """Decompression cannot go on: ``reason`` (``truncated`` or ``corrupt``) and the ``line`` it happened in."""

    def __init__(self, reason: str, line: int = 1):
        super().__init__(reason)
        self.reason, self.line = reason, line


def blocks(raw: RawFile) -> Iterator[bytes]:
    """The decompressed bytes in blocks; several compressed members in a row are one stream."""
    new = next((make for suffix, make in _DECODERS.items() if raw.name.endswith(suffix)), None)
    decoder = new and new()
    with open(raw.path, "rb") as f:
        while block := f.read(_BLOCK):
            if decoder is None:
                yield block
                continue
            while block:
                if decoder.eof:  # the next member; zeros between members are padding
                    block = block.lstrip(b"\0")
                    if not block:
                        break
                    decoder = new()
                try:
                    decoded = decoder.decompress(block)
                except (zlib.error, OSError, zstandard.ZstdError):
                    raise Broken("corrupt") from None
                yield decoded
                block = decoder.unused_data if decoder.eof else b""
    if decoder is not None and not decoder.eof:
        raise Broken("truncated")


def lines(raw: RawFile) -> Iterator[tuple[int, bytes, bool]]:
    """(number from 1, bytes without LF or CRLF, whether a line end was there); a byte order mark is dropped."""
    number, parts = 1, []
    try:
        for block in blocks(raw):
            head, *rest = block.split(b"\n")
            parts.append(head)
            for part in rest:
                yield number, _bare(b"".join(parts), number), True
                number, parts = number + 1, [part]
    except Broken as e:
        raise Broken(e.reason, number) from None
    if tail := b"".join(parts):
        yield number, _bare(tail, number), False


def _bare(line: bytes, number: int) -> bytes:
    line = line.removesuffix(b"\r")
    return line.removeprefix(_BOM) if number == 1 else line


def whole(raw: RawFile) -> bytes:
    """All bytes of the file, without a byte order mark."""
    return b"".join(blocks(raw)).removeprefix(_BOM)
