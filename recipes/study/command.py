"""`gristmill study`: expand, carry out, compare, write.

<root>/studies/<name>/results.json   scores, comparisons, verdict, cost (all but `provenance` is reproducible)
<root>/studies/<name>/study.md       the tables and the verdict
<root>/studies/<name>/study.svg      every seed, means and intervals
<root>/studies/<name>/logs/          what each run printed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gristmill.kernels.common.config import result_fields
from gristmill.kernels.common.files import atomic, digest, write_json
from gristmill.recipes.runner import loader
from gristmill.recipes.study import results, run, show
from gristmill.recipes.study.config import Study
from gristmill.recipes.study.expand import expand
from gristmill.recipes.study.plot import svg

PICTURE = "study.svg"


def study(name: str, overrides: Sequence[str], root: Path, shipped: Path) -> tuple[dict[str, Any], Path]:
    """(results, folder). ``name``: a study file, or one that ships in ``shipped``/studies; the same call continues."""
    search = [shipped / "studies"]
    loaded = loader.load(name, overrides, model=Study, search=search)
    config = loaded.config
    if overrides and (changed := result_fields(config)) != result_fields(
        loader.load(name, model=Study, search=search).config
    ):
        # a study of its own, with runs of its own: the plain one's results stay what they were
        config = config.model_copy(update={"name": f"{config.name}--{digest(changed)[:8]}"})
    arms = expand(replace(loaded, config=config), root, [shipped])
    folder = Path(root) / "studies" / config.name
    run.execute(config, arms, root, folder / "logs")
    found = results.collect(config, arms, root)
    write_json(folder / "results.json", found)
    for file, text in (("study.md", show.markdown(found, PICTURE)), (PICTURE, svg(found))):
        with atomic(folder / file) as tmp:
            tmp.write_text(text, encoding="utf-8")
    return found, folder
