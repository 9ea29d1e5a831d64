"""Diff: which fields of two recipes differ, and which stages that makes different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gristmill.kernels.common.config import result_fields
from gristmill.recipes.runner.loader import Loaded, flatten
from gristmill.recipes.runner.runs import nodes_of


def diff(a: Loaded, b: Loaded, root: Path) -> dict[str, Any]:
    """{"fields": {key path: [value in a, value in b]}, "stages": keys that differ, in order of the graph}.

    A stage differs when its own configuration does, or any stage it is made from.
    """
    left, right = flatten(a.config), flatten(b.config)
    fields = {k: [left.get(k), right.get(k)] for k in {**left, **right} if left.get(k) != right.get(k)}
    ours, theirs = nodes_of(a, root), nodes_of(b, root)
    changed: list[str] = []
    for key in {**ours, **theirs}:
        x, y = ours.get(key), theirs.get(key)
        same = (
            x is not None
            and y is not None
            and result_fields(x.config) == result_fields(y.config)
            and (x.version, x.inputs, x.external) == (y.version, y.inputs, y.external)
        )
        if not same or any(source in changed for source in x.inputs.values()):
            changed.append(key)
    return {"fields": fields, "stages": changed}
