"""MinHash signatures straight from Arrow's UTF-8 buffers (Broder 1997; the definition is in ``minhash_reference``).

One pass, constant memory: bytes are decoded, normalised through a table of code points, cut into units, hashed,
combined into n-grams and lowered into the signature a thousand units at a time, so that a document of a gigabyte
costs no more memory than a sentence. No Python object is made for a document, and the GIL is released.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Iterator

import numba
import numpy as np
import pyarrow as pa

from gristmill.kernels import minhash_reference as reference
from gristmill.kernels.common.errors import BadInput

UNITS = ("word", "char")
_BUFFER = 1024  # units at a time: 8 KB, inside the L1 cache
_LANES = 8  # n-grams lowered per pass over the signature, which is then read and written once for all of them

# what a code point becomes, beside a letter's own code: the table's values
_DROP, _SPACE, _SEPARATOR, _DIGIT, _EXPANDS = 0, 32, 46, 48, 1 << 24
# the reference's constants, spelled again because numba's cache does not notice a change in another file
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_GRAM = np.uint64(0xD6E8FEB86659FD93)
_BAD = 0xFFFFFFFF  # a code point that UTF-8 cannot hold


def signatures(
    texts: pa.Array | pa.ChunkedArray | list[str],
    *,
    permutations: int = 128,
    ngram: int = 5,
    unit: str = "word",
    seed: int = 1234,
) -> tuple[np.ndarray, np.ndarray]:
    """(signature uint32 [n, permutations], valid bool [n]) of n texts.

    ``unit`` "word" makes shingles of ``ngram`` consecutive words; "char" of consecutive characters with spaces
    removed, for Chinese and other scripts written without them. The share of equal entries of two signatures is
    an unbiased estimate of the Jaccard similarity of the two sets of n-grams. Texts of fewer than ``ngram`` units
    (empty ones among them) have no signature: valid is False and the row is all ones, to be compared by
    :func:`normalised_hash` instead. Nulls and anything that is not text raise BadInput.
    """
    if unit not in UNITS:
        raise BadInput("unknown unit of n-grams", got=unit, valid=UNITS)
    if permutations < 1 or ngram < 1:
        raise BadInput("nothing to hash", got=(permutations, ngram), expected="permutations and ngram of 1 or more")
    signature = np.full((len(texts), permutations), reference.NO_SIGNATURE, np.uint32)
    valid = np.zeros(len(texts), np.bool_)
    a = reference.multipliers(permutations, seed)
    for data, offsets, part in _buffers(texts):
        _signatures(data, offsets, *_tables(), a, ngram, unit == "char", signature[part], valid[part])
    return signature, valid


def band_keys(signature: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """uint64 [n, bands]: a hash of each band's rows and number, so that bands of different numbers never meet.

    ``signature`` is uint32 [n, permutations] with permutations >= bands * rows, else BadInput. Rows without a
    signature get keys too; leave them out first.
    """
    if bands < 1 or rows < 1 or bands * rows > signature.shape[1]:
        raise BadInput(
            "the bands do not fit the signature", got=f"{bands} x {rows}", expected=f"1 to {signature.shape[1]} hashes"
        )
    keys = np.empty((len(signature), bands), np.uint64)
    _band_keys(np.ascontiguousarray(signature, dtype=np.uint32), rows, keys)
    return keys


def normalised_hash(texts: pa.Array | pa.ChunkedArray | list[str]) -> np.ndarray:
    """uint64 [n]: equal for texts that are equal once normalised; all texts without a word hash to 0.

    64 bits: among 10^9 documents, the chance that any two different ones meet is 3%. Errors as :func:`signatures`.
    """
    hashes = np.empty(len(texts), np.uint64)
    for data, offsets, part in _buffers(texts):
        _hashes(data, offsets, *_tables(), hashes[part])
    return hashes


def _buffers(texts: pa.Array | pa.ChunkedArray | list[str]) -> Iterator[tuple[np.ndarray, np.ndarray, slice]]:
    """(UTF-8 bytes, int64 offsets into them, the rows they are) for each chunk; nothing but offsets is copied."""
    if not isinstance(texts, (pa.Array, pa.ChunkedArray)):
        try:
            texts = pa.array(texts, pa.large_string())
        except (pa.ArrowException, UnicodeEncodeError) as error:
            raise BadInput("not a list of texts", got=str(error), expected="Unicode strings") from None
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise BadInput("not a column of texts", got=str(texts.type), expected="string or large_string")
    if texts.null_count:
        raise BadInput("a text is null", got=f"{texts.null_count} of {len(texts)}", expected="drop them first")
    row = 0
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        if len(chunk) == 0:
            continue  # its buffers may be absent
        width = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
        _, offsets, data = chunk.buffers()
        offsets = np.frombuffer(offsets, width)[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
        data = np.frombuffer(data if data is not None else b"", np.uint8)
        data.flags.writeable = False  # mutable Arrow buffers exist, and would be a second compiled version
        yield data, offsets, slice(row, row + len(chunk))
        row += len(chunk)


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Step 1 by code point: (form uint32 [0x110000], expansions uint32 [m, 3]).

    A form is _DROP, _SPACE, _SEPARATOR, _DIGIT, a letter's code, or _EXPANDS + a row of ``expansions`` for the
    few that decompose into several letters (Hangul, some Indic vowels), zeros filling the row.
    """
    forms = [_SPACE] * (sys.maxunicode + 1)
    expansions = []
    for code in (*range(0x40000), *range(0xE0000, 0xE1000)):  # the other planes are unassigned or private: spaces
        c = chr(code)
        if unicodedata.category(c)[0] not in "LMN":
            continue
        letters = [form for form in map(_form, unicodedata.normalize("NFD", c.lower())) if form != _DROP]
        if len(letters) > 1:
            forms[code] = _EXPANDS + len(expansions)
            expansions.append(letters + [_DROP] * (3 - len(letters)))
        else:
            forms[code] = letters[0] if letters else _DROP
    forms[ord("ς")] = ord("σ")
    for c in reference.SEPARATORS:
        forms[ord(c)] = _SEPARATOR
    return np.array(forms, np.uint32), np.array(expansions, np.uint32)


def _form(c: str) -> int:
    category = unicodedata.category(c)
    if category in ("Mn", "Me"):
        return _DROP
    return _DIGIT if category[0] == "N" else ord(c)


@numba.njit(nogil=True, cache=True)
def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def _decode(data, i, stop):
    """(code point, next i) at a byte above 127. Malformed UTF-8 is never read past ``stop`` nor off the table."""
    lead = data[i]
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if i + size > stop:
        return np.uint32(_BAD), stop
    code = np.uint32(lead) & np.uint32(0xFF >> (size + 1))
    for k in range(1, size):
        code = np.uint32(code << np.uint32(6)) | np.uint32(data[i + k] & 0x3F)
    return code, i + size


@numba.njit(nogil=True, cache=True)
def _units(data, i, stop, table, expansions, chars, state, out, filled):
    """Append unit hashes of data[i:stop] to out[filled:] until either ends; returns (next i, filled).

    ``state`` uint64 [3] carries an unfinished word to the next call: hash so far, whether there is one, and
    where we are in a number (0 outside, 1 after a digit, 2 after a separator that may turn out to be a space).
    """
    h, word, number = state[0], state[1] != 0, np.int64(state[2])
    last = len(out) - 4  # a code point adds three units at most, and the end of the text one
    while i < stop and filled <= last:
        if not chars and number == 0:  # the common case, alone in a loop of its own: twice the rate
            start = i
            while i < stop:
                byte = data[i]
                form = table[byte]
                if byte >= 0x80 or form < 0x61:
                    break
                h = (h ^ np.uint64(form)) * _PRIME
                i += 1
            word |= i > start
            if i == stop:
                break
        code = np.uint32(data[i])
        if code < 0x80:
            i += 1
        else:
            code, i = _decode(data, i, stop)
        form = table[code] if code < len(table) else np.uint32(_SPACE)
        if form == _DROP:
            continue
        if form == _DIGIT:
            if number:  # the same number goes on
                number = 1
                continue
            number = 1
        elif form == _SEPARATOR and number == 1:
            number = 2
            continue
        else:
            gap = form in (_SPACE, _SEPARATOR)
            if gap or number == 2:  # that separator was a space after all
                if word and not chars:
                    out[filled] = _mix(h)
                    filled += 1
                h, word = _BASIS, False
            number = 0
            if gap:
                continue
        for k in range(3):
            letter = form
            if form >= _EXPANDS:
                letter = expansions[form - np.uint32(_EXPANDS), k]
                if letter == _DROP:
                    break
            h = (h ^ np.uint64(letter)) * _PRIME
            word = True
            if chars:
                out[filled] = _mix(h)
                filled += 1
                h = _BASIS
            if form < _EXPANDS:
                break
    if i >= stop and word and not chars:
        out[filled] = _mix(h)
        filled += 1
        word = False
    state[0], state[1], state[2] = h, np.uint64(word), np.uint64(number)
    return i, filled


@numba.njit(nogil=True, cache=True)
def _lower(signature, a, grams, count):
    """signature[i] = min(signature[i], a[i] * x + y mod 2^32) over ``count`` n-gram hashes (y, x)."""
    while count % _LANES:  # a minimum does not mind a repeated n-gram
        grams[count] = grams[count - 1]
        count += 1
    x, y = np.empty(_LANES, np.uint32), np.empty(_LANES, np.uint32)
    for g in range(0, count, _LANES):
        for k in range(_LANES):
            x[k], y[k] = np.uint32(grams[g + k]), np.uint32(grams[g + k] >> np.uint64(32))
        x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
        y0, y1, y2, y3, y4, y5, y6, y7 = y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7]
        for i in range(len(a)):
            m = a[i]
            low = min(np.uint32(m * x0 + y0), np.uint32(m * x1 + y1))
            low = min(low, min(np.uint32(m * x2 + y2), np.uint32(m * x3 + y3)))
            low = min(low, min(np.uint32(m * x4 + y4), np.uint32(m * x5 + y5)))
            low = min(low, min(np.uint32(m * x6 + y6), np.uint32(m * x7 + y7)))
            signature[i] = min(signature[i], low)


@numba.njit(nogil=True, cache=True)
def _signatures(data, offsets, table, expansions, a, ngram, chars, signature, valid):
    out = np.empty(_BUFFER + ngram, np.uint64)
    grams = np.empty(_BUFFER + ngram + _LANES, np.uint64)
    state = np.empty(3, np.uint64)
    for d in range(len(offsets) - 1):
        i, stop = offsets[d], offsets[d + 1]
        state[0], state[1], state[2] = _BASIS, np.uint64(0), np.uint64(0)
        kept = 0  # units carried over from the previous buffer
        while i < stop:
            i, filled = _units(data, i, stop, table, expansions, chars, state, out, kept)
            count = filled - ngram + 1
            if count <= 0:
                kept = filled
                continue
            for g in range(count):
                h = np.uint64(0)
                for k in range(ngram):
                    h = h * _GRAM + out[g + k]
                grams[g] = _mix(h)
            _lower(signature[d], a, grams, count)
            valid[d] = True
            kept = ngram - 1
            for k in range(kept):
                out[k] = out[count + k]


@numba.njit(nogil=True, cache=True)
def _hashes(data, offsets, table, expansions, hashes):
    out = np.empty(_BUFFER, np.uint64)
    state = np.empty(3, np.uint64)
    for d in range(len(offsets) - 1):
        i, stop = offsets[d], offsets[d + 1]
        state[0], state[1], state[2] = _BASIS, np.uint64(0), np.uint64(0)
        h = np.uint64(0)
        while i < stop:
            i, filled = _units(data, i, stop, table, expansions, False, state, out, 0)
            for k in range(filled):
                h = _mix(h * _GRAM + out[k])
        hashes[d] = h


@numba.njit(nogil=True, cache=True)
def _band_keys(signature, rows, keys):
    for d in range(keys.shape[0]):
        for band in range(keys.shape[1]):
            h = np.uint64(band + 1)
            for k in range(band * rows, (band + 1) * rows):
                h = _mix(h * _GRAM + np.uint64(signature[d, k]))
            keys[d, band] = h
