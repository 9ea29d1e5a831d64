"""SePT: self-training without a reward (arXiv 2510.18814). The model answers a little more coldly than it is, and
learns its own answers; no answer is judged, filtered or compared with the right one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from gristmill.eval.generate import SamplingParams
from gristmill.eval.models import LanguageModel
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.seeds import derive
from gristmill.posttrain import losses
from gristmill.posttrain.config import StepConfig, TuningAdamW
from gristmill.posttrain.loop import Round
from gristmill.posttrain.prompts import Prompt, in_order
from gristmill.posttrain.rollout import rollouts


class SamplingTemperature(Config):
    """tau_s over the run. The paper anneals over two of three epochs, from 0.6 for models specialised in
    mathematics, from 0.9 for others; a constant one has start = end."""

    start: float = Field(0.6, gt=0, description="in the first round")
    end: float = Field(1.0, gt=0, description="once annealed")
    anneal: float = Field(2 / 3, ge=0, le=1, description="share of the rounds over which it moves, linearly [0-1]")

    def at(self, number: int, rounds: int) -> float:
        """Temperature of round ``number`` (from 0)."""
        length = self.anneal * rounds
        return self.end if number >= length else self.start + (self.end - self.start) * number / length


class SePTAdamW(TuningAdamW):
    """The paper's."""

    lr: float = Field(1e-7, gt=0, description="peak learning rate; the schedule multiplies it")
    weight_decay: float = Field(0.01, ge=0, description="per step times lr, on matrices and the untied head")


class SePTConfig(StepConfig):
    """Self-training without a reward. Defaults are the paper's (its sizes: 128 prompts, answers of 3,072 tokens)."""

    method: Literal["sept"] = Field(description="sept: learn one's own answers, sampled at a lower temperature")
    rounds: int = Field(100, ge=1, description="times the sampler is refreshed (count)")
    batch: int = Field(128, ge=1, description="prompts a round (count)")
    samples: int = Field(1, ge=1, description="answers per prompt (count)")
    updates: int = Field(2, ge=1, description="optimizer steps a round (count), each on its own share of the prompts")
    max_tokens: int = Field(64, ge=1, description="longest answer (tokens)")
    sampling: SamplingTemperature = Field(SamplingTemperature(), description="tau_s, the sampler's temperature")
    temperature: float = Field(1.0, gt=0, description="tau_t, of the distribution that is trained")
    optimizer: SePTAdamW = Field(SePTAdamW(), description="update rule")
    generate_batch: int = execution(128, ge=1, description="responses generated side by side (count)")

    @model_validator(mode="after")
    def _shares(self) -> SePTConfig:
        if self.batch % self.updates:
            raise ValueError(f"batch: {self.batch} prompts cannot be split over {self.updates} updates")
        return self


class SePT:
    """Each optimizer step: the mean over its response tokens of -log softmax(z / tau_t), responses as they came.

    The paper's equation sums over a response's tokens; the authors' code averages over tokens, per micro-batch. Ours
    is the mean over the tokens of the whole step, which no cut into micro-batches changes.
    """

    normaliser = "tokens"

    def __init__(self, config: SePTConfig, prompts: list[Prompt], seed: int):
        self.config, self.prompts, self.seed = config, prompts, seed
        self.rounds, self.updates, self.temperature = config.rounds, config.updates, config.temperature

    def round(self, lm: LanguageModel, number: int) -> Round:
        c = self.config
        chosen = in_order(self.seed, len(self.prompts), number * c.batch, (number + 1) * c.batch)
        tau = c.sampling.at(number, c.rounds)
        params = [
            [
                SamplingParams(temperature=tau, max_tokens=c.max_tokens, seed=derive(self.seed, number, k, j))
                for j in range(c.samples)
            ]
            for k in range(len(chosen))
        ]
        drawn = rollouts(lm, [self.prompts[k].ids for k in chosen], params, c.generate_batch)
        share = c.batch // c.updates
        batches = [
            [
                losses.supervised(self.prompts[chosen[k]].ids, r.token_ids)
                for k in range(u * share, (u + 1) * share)
                for r in drawn[k]
            ]
            for u in range(c.updates)
        ]
        flat = [r for some in drawn for r in some]
        cut = sum(r.finish_reason == "length" for r in flat)
        metrics = {
            "tau": tau,
            "length": sum(len(r.token_ids) for r in flat) / len(flat),
            "cut": cut / len(flat),
        }
        records = [
            {
                "id": self.prompts[k].problem.id,
                "question": self.prompts[k].problem.question,
                "text": lm.decode(r.token_ids),
            }
            for k, some in zip(chosen, drawn, strict=True)
            for r in some
        ]
        return Round(batches, metrics, records, {"prompts": len(chosen), "responses": len(flat), "cut": cut})
