"""The post-training stage: one named step of the recipe's list. A new method is one file with a Config and a Method,
its place in ``Step`` and ``_method``, and a test."""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field

from gristmill.eval import models
from gristmill.eval.models import LanguageModel
from gristmill.kernels.common.config import Config, result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import digest, write_json
from gristmill.posttrain import prompts
from gristmill.posttrain.loop import Method, train
from gristmill.posttrain.prompts import Prompt, PromptsConfig
from gristmill.posttrain.remax import ReMax, ReMaxConfig
from gristmill.posttrain.sept import SePT, SePTConfig
from gristmill.posttrain.sft import SFT, SFTConfig
from gristmill.posttrain.verify import Verifier
from gristmill.train.load import weights_file
from gristmill.train.precision import pick_device

Step = Annotated[SFTConfig | SePTConfig | ReMaxConfig, Field(discriminator="method")]


class PosttrainStage(Config):
    step: Step = Field(description="one entry of the recipe's list")
    prompts: PromptsConfig = Field(description="the set it names")
    prompts_seed: int = Field(ge=0, description="of the problems; the same for every step of a recipe")
    seed: int = Field(ge=0, description="of order and draws")


def external() -> dict[str, Any]:
    """What decides the problems beside the recipe: another version of the generators may ask others."""
    return {"reasoning-gym": version("reasoning-gym")}


def run(config: PosttrainStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"model", "tokenizer"}. Writes a Hugging Face folder, metrics, rollouts and ``prompts.json``.

    ``out`` may hold a part of the same run: it is continued. Raises BadInput for prompts that leave no room for an
    answer in the model's context.
    """
    step = config.step
    threads = torch.get_num_threads()
    if step.threads:
        torch.set_num_threads(step.threads)
    try:
        lm = models.load(inputs["model"], inputs.get("tokenizer"), str(pick_device(step.device)))
        asked = prompts.build(config.prompts, lm, config.prompts_seed)
        _check_room(lm, asked, step)
        identity = {
            "settings": digest(result_fields(config)),
            "prompts": digest([[p.ids, p.answer] for p in asked]),
            "weights": digest(models.weights_hash(weights_file(inputs["model"]).parent)),
        }
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "prompts.json", {"count": len(asked), "sha256": identity["prompts"], **external()})
        with contextlib.ExitStack() as stack:
            return train(lm, _method(step, asked, config.seed, lm, stack), step, identity, out)
    finally:
        torch.set_num_threads(threads)


def _method(step: Any, asked: list[Prompt], seed: int, lm: LanguageModel, stack: contextlib.ExitStack) -> Method:
    if isinstance(step, SFTConfig):
        return SFT(step, asked, seed)
    if isinstance(step, SePTConfig):
        return SePT(step, asked, seed)
    return ReMax(step, asked, seed, lm, stack.enter_context(Verifier(step.verifiers)))


def _check_room(lm: LanguageModel, asked: list[Prompt], step: Any) -> None:
    answer = step.max_tokens if hasattr(step, "max_tokens") else max(len(p.answer) for p in asked)
    longest = max(len(p.ids) for p in asked) + answer
    if longest > lm.max_length:
        raise BadInput(
            "prompts and answers are longer than the model's context; use fewer shots or shorter answers",
            key=f"posttrain.{step.name}",
            got=f"{longest} tokens",
            expected=f"at most {lm.max_length}",
        )
