"""What :mod:`gristmill.kernels.minhash` computes, in plain Python: the definition, one document at a time.

1. **Normalise** (Kaiyuan-Spark's steps): whatever is not a letter, mark or number becomes a space; lowercase;
   NFD, and combining marks (Mn, Me, not the vowel signs Mc) dropped; every number, decimals and all scripts'
   digits included, becomes ``0``; runs of spaces become one. Capital sigma has one lowercase form here, so that
   each character maps by itself. The tables are those of the running Python's ``unicodedata``: a character
   younger than Unicode 14 (Python 3.11) may be a space to one Python and a letter to another.
2. **Units**: words, or the characters of the words for scripts written without spaces. A word's hash is FNV-1a
   over code points, finished by splitmix64; a character is a word of its own.
3. **n-grams** of n consecutive units: a polynomial in their hashes, finished by splitmix64, 64 bits: (y, x).
4. **Permutations** i of the set of n-grams: a_i * x + y mod 2^32 with a_i odd and drawn from the seed; the
   signature is each one's minimum (Broder 1997). x and y are independent, so any two permutations order a set
   independently but for the low bits that all odd a_i share. Two different sets of n n-grams agree on one
   minimum by accident of 32 bits with probability below n / 2^32.

All arithmetic is on unsigned integers of stated width: the same bits on every platform.
"""

from __future__ import annotations

import re
import unicodedata
from unicodedata import category

import numpy as np

from gristmill.kernels.common.seeds import derive, hash64

FNV_BASIS = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
GRAM = 0xD6E8FEB86659FD93  # the polynomial's point: odd, so no unit's bits are lost
NO_SIGNATURE = 0xFFFFFFFF
SEPARATORS = ".,\u066b\u066c"  # inside a number; the last two are Arabic
_MASK = (1 << 64) - 1


def normalise(text: str) -> str:
    """Step 1: lowercase words of letters and ``0``, one space between them."""
    kept = "".join(c if category(c)[0] in "LMN" or c in SEPARATORS else " " for c in text)
    folded = unicodedata.normalize("NFD", kept.lower().replace("ς", "σ"))
    text = "".join("0" if category(c)[0] == "N" else c for c in folded if category(c) not in ("Mn", "Me"))
    text = re.sub(f"0(?:[{SEPARATORS}]?0)*", "0", text)
    return " ".join(re.sub(f"[{SEPARATORS}]", " ", text).split())


def units(text: str, unit: str) -> list[int]:
    """Step 2: 64-bit hashes of the words or characters of ``text``, normalised here."""
    words = normalise(text).split()
    return [_unit_hash(u) for u in (words if unit == "word" else "".join(words))]


def gram_hashes(text: str, ngram: int, unit: str) -> list[int]:
    """Step 3: 64-bit hashes of the n-grams of ``text``, in order; empty when it has fewer than ``ngram`` units."""
    sequence = units(text, unit)
    grams = []
    for start in range(len(sequence) - ngram + 1):
        h = 0
        for value in sequence[start : start + ngram]:
            h = (h * GRAM + value) & _MASK
        grams.append(_mix(h))
    return grams


def multipliers(permutations: int, seed: int) -> np.ndarray:
    """a_i of step 4: odd uint32 [permutations]; fewer permutations are a prefix of more."""
    drawn = hash64(derive(seed, "minhash"), np.arange(permutations, dtype=np.uint64))
    return (drawn >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


def signatures(
    texts: list[str], *, permutations: int = 128, ngram: int = 5, unit: str = "word", seed: int = 1234
) -> tuple[np.ndarray, np.ndarray]:
    """Step 4: (uint32 [n, permutations], bool [n]); see :func:`gristmill.kernels.minhash.signatures`."""
    a = multipliers(permutations, seed).astype(np.uint64)
    signature = np.full((len(texts), permutations), NO_SIGNATURE, np.uint32)
    valid = np.zeros(len(texts), bool)
    for d, text in enumerate(texts):
        for gram in gram_hashes(text, ngram, unit):
            # both products are below 2^64: exact before the reduction
            value = (a * np.uint64(gram & 0xFFFFFFFF) + np.uint64(gram >> 32)) & np.uint64(0xFFFFFFFF)
            signature[d] = np.minimum(signature[d], value.astype(np.uint32))
            valid[d] = True
    return signature, valid


def band_keys(signature: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """uint64 [n, bands]; see :func:`gristmill.kernels.minhash.band_keys`."""
    keys = np.empty((len(signature), bands), np.uint64)
    for d, row in enumerate(signature.tolist()):
        for band in range(bands):
            h = band + 1
            for value in row[band * rows : (band + 1) * rows]:
                h = _mix((h * GRAM + value) & _MASK)
            keys[d, band] = h
    return keys


def normalised_hash(texts: list[str]) -> np.ndarray:
    """uint64 [n]; see :func:`gristmill.kernels.minhash.normalised_hash`."""
    hashes = []
    for text in texts:
        h = 0
        for value in units(text, "word"):
            h = _mix((h * GRAM + value) & _MASK)
        hashes.append(h)
    return np.array(hashes, np.uint64)


def _unit_hash(unit: str) -> int:
    h = FNV_BASIS
    for c in unit:
        h = ((h ^ ord(c)) * FNV_PRIME) & _MASK
    return _mix(h)


def _mix(x: int) -> int:
    """splitmix64's finaliser, as in :func:`gristmill.kernels.common.seeds.mix64`."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
