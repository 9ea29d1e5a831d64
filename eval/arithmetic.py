"""Arithmetic: reasoning-gym problems answered by greedy generation, exact or wrong.

The questions are of the held-out part (``data.problems``): no corpus and no prompt made here ever held them. An answer
is the first line that is not blank; lm-eval's multiple choice would reward short options instead.
"""

from __future__ import annotations

from pydantic import Field

from gristmill.data import problems
from gristmill.eval.material import Material
from gristmill.eval.models import LanguageModel
from gristmill.eval.tasks import Result, share
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.seeds import derive

EASY = (
    problems.Generator(task="chain_sum", options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}),
)


class ArithmeticConfig(Config):
    """Problems by generation."""

    generators: tuple[problems.Generator, ...] = Field(EASY, description="what is asked; they take turns", min_length=1)
    items: int = Field(200, ge=1, description="problems asked (count)")
    shots: int = Field(2, ge=0, description="solved problems before each question (count), of the training part")
    max_tokens: int = Field(16, ge=1, description="longest answer (tokens)")


def measure(lm: LanguageModel, config: ArithmeticConfig, material: Material) -> Result:
    """Share of problems answered exactly."""
    from gristmill.eval import harness

    asked = problems.generate(config.generators, config.items, derive(material.seed, "arithmetic"), "test")
    shown = problems.generate(config.generators, config.shots, derive(material.seed, "shots"), "train")
    task = {
        "task": "arithmetic",
        "custom_dataset": harness.dataset([{"prompt": layout(shown, p)} for p in asked]),
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "",
        "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": config.max_tokens, "do_sample": False},
        "process_results": lambda doc, results: {"answered": float(bool(results[0].strip()))},
        "metric_list": [{"metric": "answered", "aggregation": "mean", "higher_is_better": True}],
    }
    _, samples = harness.evaluate(lm, task)
    records = []
    for problem, sample in zip(asked, sorted(samples, key=lambda s: s["doc_id"]), strict=True):
        answer = answer_of(sample["resps"][0][0])
        records.append(
            {
                "id": problem.id,
                "task": problem.task,
                "question": problem.question,
                "gold": problem.answer,
                "answer": answer,
                "correct": exact(problem, answer),
            }
        )
    extra = {"arithmetic_prompt": {"shots": config.shots, "reasoning_gym": problems.library_version()}}
    return Result("exact", **share([r["correct"] for r in records]), records=records, extra=extra)


def layout(shown: list[problems.Problem], asked: problems.Problem) -> str:
    """Solved problems, then the question whose answer comes next; what post-training's prompts look like too."""
    return "".join(f"{p.question}\n{p.answer}\n\n" for p in shown) + f"{asked.question}\n"


def answer_of(text: str) -> str:
    """The first line that is not blank, stripped; '' if there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def exact(problem: problems.Problem, answer: str) -> bool:
    """Full marks from reasoning-gym's own grader; its partial credit for a near miss counts for nothing."""
    return bool(answer) and problems.score(problem, answer) == 1.0
