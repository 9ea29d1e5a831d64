"""Worked problems as raw text: the ``reasoning_gym`` origin.

A document is several solved problems in a row, a blank line between them, each its question and below it its answer:
the layout in which evaluation and post-training show solved problems before they ask one. One problem alone would be
a dozen tokens, and a model that reads it learns nothing of reading on from one to the next. Questions kept for testing
(``data.problems``) never appear.
"""

from __future__ import annotations

import json
from pathlib import Path

from gristmill.data import problems
from gristmill.data.raw import Fetched
from gristmill.data.sources import ProblemsOrigin
from gristmill.data.spool import spool
from gristmill.kernels.common.config import result_fields
from gristmill.kernels.common.files import atomic, digest
from gristmill.kernels.common.progress import bar


def fetch(origin: ProblemsOrigin, cache: Path) -> Fetched:
    """One file of JSON lines, field ``text``; a function of the origin and the library's version.

    Raises BadInput for options a generator refuses, and for more problems than it has.
    """
    made_of = {**result_fields(origin), "library": problems.library_version()}
    files = spool(cache / "problems" / digest(made_of)[:16], lambda folder: _write(origin, folder))
    return Fetched(files, made_of)


def _write(origin: ProblemsOrigin, folder: Path) -> list[str]:
    solved = problems.generate(origin.generators, origin.problems, origin.seed, "train")
    with (
        atomic(folder / "problems.jsonl") as tmp,
        open(tmp, "w", encoding="utf-8") as file,
        bar("problems", total=len(solved)) as advance,
    ):
        for start in range(0, len(solved), origin.per_document):
            some = solved[start : start + origin.per_document]
            text = "\n\n".join(f"{p.question}\n{p.answer}" for p in some)
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            advance(len(some))
    return ["problems.jsonl"]
