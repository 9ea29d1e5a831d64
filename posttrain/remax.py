"""ReMax: policy gradient with the reward of the greedy answer as its baseline (arXiv 2310.10505)."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Literal, get_args

import torch
from pydantic import Field

from gristmill.eval.arithmetic import answer_of
from gristmill.eval.generate import Rollout, SamplingParams
from gristmill.eval.models import LanguageModel
from gristmill.kernels.common.config import execution
from gristmill.kernels.common.seeds import derive
from gristmill.posttrain import losses
from gristmill.posttrain.config import StepConfig, TuningAdamW
from gristmill.posttrain.loop import Round
from gristmill.posttrain.losses import Normaliser, Sample
from gristmill.posttrain.prompts import Prompt, in_order
from gristmill.posttrain.rollout import rollouts
from gristmill.posttrain.verify import Grade, Status, Verifier


class ReMaxAdamW(TuningAdamW):
    """With the learning rate of the authors' code."""

    lr: float = Field(1e-6, gt=0, description="peak learning rate; the schedule multiplies it")


class ReMaxConfig(StepConfig):
    """Policy gradient with a greedy baseline. The authors' code has gamma 0.99, clip 5, kl 0.05 and token means; the
    defaults here are the plain unbiased estimator, with their learning rate."""

    method: Literal["remax"] = Field(description="remax: reinforce against the greedy answer's reward")
    steps: int = Field(100, ge=1, description="optimizer steps (count)")
    batch: int = Field(32, ge=1, description="prompts a step (count)")
    samples: int = Field(1, ge=1, description="sampled answers per prompt (count), which share one greedy baseline")
    max_tokens: int = Field(64, ge=1, description="longest answer (tokens), sampled and greedy alike")
    temperature: float = Field(1.0, gt=0, description="of the sampler and of the distribution that is trained")
    reward: Literal["exact", "graded"] = Field(
        "exact", description="exact: 1 for a right answer, else 0; graded: the grader's partial credit [0-1]"
    )
    normaliser: Normaliser = Field("responses", description="what a step's sum is divided by: responses or tokens")
    gamma: float = Field(1.0, gt=0, le=1, description="discount per token from the end (0-1]")
    clip: float | None = Field(None, gt=0, description="largest size of reward - baseline; null: none")
    kl: float = Field(0.0, ge=0, description="weight of log p - log p_ref per token; 0: no reference model is kept")
    optimizer: ReMaxAdamW = Field(ReMaxAdamW(), description="update rule")
    generate_batch: int = execution(128, ge=1, description="responses generated side by side (count)")
    verifiers: int = execution(2, ge=1, description="processes that grade answers (count)")


class ReMax:
    """Per prompt ``samples`` answers and one greedy answer of the same weights, in one generation call; the greedy one
    is graded, never learned from. Use it within a ``with`` block of its ``verifier``."""

    updates = 1

    def __init__(self, config: ReMaxConfig, prompts: list[Prompt], seed: int, lm: LanguageModel, verifier: Verifier):
        self.config, self.prompts, self.seed, self.verifier = config, prompts, seed, verifier
        self.rounds, self.normaliser, self.temperature = config.steps, config.normaliser, config.temperature
        self.reference = copy.deepcopy(lm.model).requires_grad_(False) if config.kl else None

    def round(self, lm: LanguageModel, number: int) -> Round:
        c = self.config
        chosen = in_order(self.seed, len(self.prompts), number * c.batch, (number + 1) * c.batch)
        prompts = [self.prompts[k] for k in chosen]
        greedy = SamplingParams(max_tokens=c.max_tokens)
        params = [
            [
                *(
                    greedy.model_copy(update={"temperature": c.temperature, "seed": derive(self.seed, number, k, j)})
                    for j in range(c.samples)
                ),
                greedy,
            ]
            for k in range(len(prompts))
        ]
        drawn = rollouts(lm, [p.ids for p in prompts], params, c.generate_batch)
        texts = [[lm.decode(r.token_ids) for r in some] for some in drawn]
        grades = self._grade(prompts, texts)
        rewards = [[g.score if c.reward == "graded" else float(g.correct) for g in some] for some in grades]
        samples = [
            self._sample(lm, prompt, rollout, reward, of_prompt[-1])
            for prompt, some, of_prompt in zip(prompts, drawn, rewards, strict=True)
            for rollout, reward in zip(some[:-1], of_prompt[:-1], strict=True)
        ]
        records = [
            {
                "id": prompt.problem.id,
                "question": prompt.problem.question,
                "kind": "greedy" if j == c.samples else "sampled",
                "text": texts[k][j],
                "reward": rewards[k][j],
                "status": grades[k][j].status,
            }
            for k, prompt in enumerate(prompts)
            for j in range(c.samples + 1)
        ]
        sampled = [r for some in drawn for r in some[:-1]]
        cut = sum(r.finish_reason == "length" for r in sampled)
        metrics = {
            "reward": _mean([r for some in rewards for r in some[:-1]]),
            "greedy_reward": _mean([some[-1] for some in rewards]),
            "informative": _mean([float(r != some[-1]) for some in rewards for r in some[:-1]]),
            "length": _mean([len(r.token_ids) for r in sampled]),
            "cut": cut / len(sampled),
        }
        statuses = Counter({f"graded_{status}": 0 for status in get_args(Status)})
        statuses.update(f"graded_{g.status}" for some in grades for g in some)
        counts = {"prompts": len(prompts), "responses": len(sampled), "cut": cut, **statuses}
        return Round([samples], metrics, records, counts)

    def _grade(self, prompts: list[Prompt], texts: list[list[str]]) -> list[list[Grade]]:
        pairs = [(p.problem, answer_of(text)) for p, some in zip(prompts, texts, strict=True) for text in some]
        grades = iter(self.verifier.grade(pairs))
        return [[next(grades) for _ in some] for some in texts]

    def _sample(self, lm: LanguageModel, prompt: Prompt, r: Rollout, reward: float, baseline: float) -> Sample:
        c = self.config
        before, reference = [], []
        if self.reference is not None:
            answer = [losses.supervised(prompt.ids, r.token_ids)]
            with torch.inference_mode():
                before, reference = (
                    losses.log_probs(m, answer, lm.pad_id, c.temperature)[0][0].tolist()
                    for m in (lm.model, self.reference)
                )
        weights = losses.remax_weights(
            reward,
            baseline,
            len(r.token_ids),
            gamma=c.gamma,
            clip=c.clip,
            kl=c.kl,
            logp=before,
            reference=reference,
        )
        return Sample(prompt.ids, r.token_ids, weights)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
