"""Randomness as a pure function: no global generator, no state, the same bits on every platform."""

from __future__ import annotations

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def derive(seed: int, *names: object) -> int:
    """A 63-bit seed for the thing called ``names`` under ``seed`` (sha256, so nearby seeds are unrelated)."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def mix64(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser on uint64 values (Steele et al. 2014): a bijection with full avalanche."""
    x = np.asarray(x, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def hash64(seed: int, keys: np.ndarray) -> np.ndarray:
    """uint64 hash of each uint64 key under ``seed``; element i depends on (seed, keys[i]) alone."""
    keys = np.asarray(keys, dtype=np.uint64)
    with np.errstate(over="ignore"):
        return mix64(mix64(keys + _GOLDEN) ^ mix64(np.uint64(seed) * _GOLDEN + np.uint64(1)))


def uniform(seed: int, keys: np.ndarray) -> np.ndarray:
    """float64 in [0, 1) for each uint64 key: the top 53 bits of :func:`hash64`."""
    return (hash64(seed, keys) >> np.uint64(11)).astype(np.float64) * 2.0**-53
