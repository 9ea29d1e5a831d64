"""Locality-sensitive hashing: how many bands of how many rows a MinHash signature is cut into.

Two documents become candidates when all rows of at least one band agree. With Jaccard similarity s and
independent rows that happens with probability 1 - (1 - s^rows)^bands (Leskovec, Rajaraman, Ullman, *Mining of
Massive Datasets*, 3.4.2): an S-curve whose step is put at the threshold.
"""

from __future__ import annotations

import functools

import numpy as np

from gristmill.kernels.common.errors import BadInput


def collision_probability(jaccard: float | np.ndarray, bands: int, rows: int) -> float | np.ndarray:
    """Probability that two documents of this Jaccard similarity (0-1, any shape) share at least one band."""
    return 1.0 - (1.0 - jaccard**rows) ** bands


def error_areas(threshold: float, bands: int, rows: int) -> tuple[float, float]:
    """(false-positive, false-negative) areas: the curve's integral below, its complement's above, the threshold."""
    nodes, weights = _quadrature()  # on [0, 1]
    below = threshold * nodes
    above = threshold + (1.0 - threshold) * nodes
    positive = threshold * (weights @ collision_probability(below, bands, rows))
    negative = (1.0 - threshold) * (weights @ (1.0 - collision_probability(above, bands, rows)))
    return float(positive), float(negative)


@functools.lru_cache
def choose_bands(permutations: int, threshold: float) -> tuple[int, int]:
    """(bands, rows), bands * rows <= permutations, of least 0.5 * false-positive + 0.5 * false-negative area.

    The criterion of datasketch, and so of Kaiyuan-Spark: (128, 0.7) -> (14, 9), which uses 126 hashes. Of equal
    minima the one with the fewest bands is taken. Raises BadInput unless permutations >= 1 and 0 < threshold < 1.
    """
    if permutations < 1:
        raise BadInput("a signature needs hashes", got=permutations, expected="1 or more permutations")
    if not 0.0 < threshold < 1.0:
        raise BadInput("not a Jaccard threshold", got=threshold, expected="a number between 0 and 1")
    shapes = [(bands, rows) for bands in range(1, permutations + 1) for rows in range(1, permutations // bands + 1)]
    return min(shapes, key=lambda shape: sum(error_areas(threshold, *shape)))


@functools.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre on [0, 1]; 128 nodes resolve the steepest curve of 1,024 hashes to 1e-6."""
    nodes, weights = np.polynomial.legendre.leggauss(128)
    return (nodes + 1.0) / 2.0, weights / 2.0
