"""What every post-training step has: a name, the model it starts from, its prompts, an optimizer, a machine."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from gristmill.kernels.common.config import Config, execution
from gristmill.train.optimizer import AdamW
from gristmill.train.schedule import WSM, ScheduleConfig


class TuningAdamW(AdamW):
    """AdamW with fine-tuning's usual settings where pretraining's are others."""

    lr: float = Field(2e-5, gt=0, description="peak learning rate; the schedule multiplies it")
    betas: tuple[float, float] = Field((0.9, 0.999), description="decay of first and second moment per step [0-1)")
    weight_decay: float = Field(0.0, ge=0, description="per step times lr, on matrices and the untied head")


class StepConfig(Config):
    """A named step of the recipe's ``posttrain`` list. Weights, gradients and moments are FP32: at the learning rates
    in use here (1e-7) most updates of a bf16 weight would round to nothing."""

    # `from` is a Python keyword, so the attribute is `origin`; recipes and dumps say `from`.
    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    name: str = Field(pattern=r"^[\w-]+$", description="name of the step, unique in the recipe")
    origin: str = Field(alias="from", description="the model it starts from: pretrain, merge, or an earlier step")
    data: str = Field("arithmetic", description="which of the recipe's `prompts`")
    optimizer: TuningAdamW = Field(TuningAdamW(), description="update rule")
    schedule: ScheduleConfig = Field(WSM(), description="learning rate over the optimizer steps")
    seed: int | None = Field(None, ge=0, description="of order and draws; null: derived from the recipe's seed")
    device: str = execution("auto", description="auto (a GPU if there is one), cpu, cuda, cuda:1 ...")
    threads: int | None = execution(None, ge=1, description="CPU threads (count); null: PyTorch's choice")
    micro_batch: int = execution(32, ge=1, description="responses a forward and backward pass takes (count)")
    resume_every: float = execution(60, gt=0, description="time between checkpoints to resume from (s)")
