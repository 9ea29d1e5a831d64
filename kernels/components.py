"""Connected components by union-find over integer edges."""

from __future__ import annotations

import numba
import numpy as np


def components(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes touched by the edges (a[i], b[i]) and each one's component, named by its smallest node.

    Arguments are int64 arrays of one length. Returns (nodes ascending, labels), both int64: a pure function of
    the set of edges, whatever their order, direction or repetition.
    """
    nodes, flat = np.unique(np.concatenate([a, b]), return_inverse=True)
    parent = _union(len(nodes), flat[: len(a)].astype(np.int64), flat[len(a) :].astype(np.int64))
    return nodes, nodes[parent]


@numba.njit(cache=True)
def _union(n, a, b):
    parent = np.arange(n)
    for k in range(len(a)):
        x, y = a[k], b[k]
        while parent[x] != x:
            parent[x] = parent[parent[x]]  # path halving
            x = parent[x]
        while parent[y] != y:
            parent[y] = parent[parent[y]]
            y = parent[y]
        if x < y:  # the smaller root wins, so a label does not depend on the order of edges
            parent[y] = x
        else:
            parent[x] = y
    for x in range(n):
        parent[x] = parent[parent[x]]  # parents are smaller and already flat
    return parent


def components_reference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by spreading the minimum label until nothing changes."""
    nodes = np.unique(np.concatenate([a, b]))
    label = {int(v): int(v) for v in nodes}
    changed = True
    while changed:
        changed = False
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            low = min(label[x], label[y])
            changed |= label[x] != low or label[y] != low
            label[x] = label[y] = low
    return nodes, np.array([label[int(v)] for v in nodes], np.int64)
