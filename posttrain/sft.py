"""Supervised fine-tuning: the prompts' own answers, by plain next-token loss on the answer alone."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gristmill.eval.models import LanguageModel
from gristmill.posttrain import losses
from gristmill.posttrain.config import StepConfig
from gristmill.posttrain.loop import Round
from gristmill.posttrain.prompts import Prompt, in_order


class SFTConfig(StepConfig):
    """Supervised fine-tuning."""

    method: Literal["sft"] = Field(description="sft: imitate the answers of `data`")
    steps: int = Field(100, ge=1, description="optimizer steps (count)")
    batch: int = Field(32, ge=1, description="prompts a step (count)")


class SFT:
    """The mean -log p over all answer tokens of a step's prompts, EOS included; the prompts' tokens are not learned."""

    updates, normaliser, temperature = 1, "tokens", 1.0

    def __init__(self, config: SFTConfig, prompts: list[Prompt], seed: int):
        self.config, self.prompts, self.seed, self.rounds = config, prompts, seed, config.steps

    def round(self, lm: LanguageModel, number: int) -> Round:
        chosen = in_order(self.seed, len(self.prompts), number * self.config.batch, (number + 1) * self.config.batch)
        batch = [losses.supervised(self.prompts[k].ids, self.prompts[k].answer) for k in chosen]
        return Round([batch], counts={"prompts": len(chosen)})
