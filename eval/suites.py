"""Suites: which tasks a model is put through; and the evaluation stage itself.

out/scores.json         {"suite", "model", "tasks": {task: score}, ... what tasks add}
out/records/TASK.jsonl  one line per item: what was asked, what came, how it was judged
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from gristmill.eval import arithmetic, bpb, cloze, humaneval, models
from gristmill.eval.arithmetic import ArithmeticConfig
from gristmill.eval.bpb import BpbConfig
from gristmill.eval.cloze import ClozeConfig
from gristmill.eval.humaneval import HumanEvalConfig
from gristmill.eval.material import Material
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.files import atomic, write_json

# task -> (its settings in EvalConfig, how it is measured)
TASKS: dict[str, Callable] = {
    "bpb": bpb.measure,
    "cloze": cloze.measure,
    "arithmetic": arithmetic.measure,
    "humaneval": humaneval.measure,
}
SUITES: dict[str, tuple[str, ...]] = {
    "bpb": ("bpb",),
    "arithmetic": ("bpb", "arithmetic"),  # what post-training should move, and what it should leave
    "nano": ("bpb", "cloze", "arithmetic", "humaneval"),
}


class EvalConfig(Config):
    """One evaluation of one model of the recipe."""

    name: str = Field(pattern=r"^[\w.-]+$", description="name of the evaluation, unique in the recipe")
    of: str = Field(description="the model it scores: pretrain (the last raw checkpoint), merge, or a posttrain step")
    suite: Literal["bpb", "arithmetic", "nano"] = Field(
        "bpb", description="tasks: " + "; ".join(f"{name} = {' + '.join(tasks)}" for name, tasks in SUITES.items())
    )
    bpb: BpbConfig = Field(BpbConfig(), description="bits per byte on validation text")
    cloze: ClozeConfig = Field(ClozeConfig(), description="four-way gap filling on validation text")
    arithmetic: ArithmeticConfig = Field(ArithmeticConfig(), description="reasoning-gym problems by generation")
    humaneval: HumanEvalConfig = Field(HumanEvalConfig(), description="function completion in the sandbox")


class EvalStage(Config):
    eval: EvalConfig = Field(description="one entry of the recipe's list")
    domains: dict[str, str] = Field(description="source -> domain")
    languages: dict[str, str] = Field(description="source -> language")
    seed: int = Field(0, ge=0, description="of the items drawn; the same for every evaluation of a recipe")
    cache: str = execution("downloads", description="folder of downloaded packages")


def run(config: EvalStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"model", "split", "tokenizer"}. Writes scores.json and records/."""
    lm = models.load(inputs["model"], inputs.get("tokenizer"))
    material = Material(inputs["split"], config.domains, config.languages, Path(config.cache), config.seed)
    return evaluate(lm, config.eval, material, out)["counts"]


def evaluate(lm: models.LanguageModel, config: EvalConfig, material: Material, out: Path) -> dict[str, Any]:
    """Put ``lm`` through ``config.suite``; write scores and records to ``out``. Returns the scores, with "counts"."""
    scores: dict[str, Any] = {"suite": config.suite, "model": lm.fingerprint(), "tasks": {}}
    (out / "records").mkdir(parents=True, exist_ok=True)
    counts = {}
    for name in SUITES[config.suite]:
        result = TASKS[name](lm, getattr(config, name), material)
        scores["tasks"][name] = result.row()
        scores |= result.extra
        counts[name] = result.n
        with atomic(out / "records" / f"{name}.jsonl") as tmp, open(tmp, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in result.records)
    write_json(out / "scores.json", scores)
    return {**scores, "counts": counts}
