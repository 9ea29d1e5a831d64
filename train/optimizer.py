"""Optimizers. A new one is a Config with ``build``, and its place in ``OptimizerConfig`` (a union by ``kind``)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import nn

from gristmill.kernels.common.config import Config


class AdamW(Config):
    """Adam with decoupled weight decay (arXiv 1711.05101), moments in FP32."""

    kind: Literal["adamw"] = Field("adamw", description="which optimizer")
    lr: float = Field(3e-3, gt=0, description="peak learning rate; the schedule multiplies it")
    betas: tuple[float, float] = Field((0.9, 0.95), description="decay of first and second moment per step [0-1)")
    eps: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(
        0.1, ge=0, description="per step times lr, on matrices and the untied head; never on gains or the embedding"
    )
    clip: float = Field(1.0, gt=0, description="largest global L2 norm of the gradient")

    @field_validator("betas")
    @classmethod
    def _within(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"each must be in [0, 1), not {list(betas)}")
        return betas

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """An optimizer over all parameters; its ``lr`` is set before every step by the training loop."""
        decayed, plain = [], []
        for name, parameter in model.named_parameters():
            (decayed if decays(name, parameter) else plain).append(parameter)
        groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=True)


OptimizerConfig = AdamW
EMBEDDINGS = ("embed.weight", "embed_tokens.weight", "wte.weight")


def decays(name: str, parameter: torch.Tensor) -> bool:
    """Weight decay pulls matrices towards 0. A gain's rest is 1, and a rare id's embedding would only be decayed.
    Embeddings go by the names of our decoder and of Hugging Face's."""
    return parameter.ndim >= 2 and not name.endswith(EMBEDDINGS)


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state as named tensors, ``<parameter>/<what>``: everything a bit-equal continuation needs."""
    return {
        f"{name}/{key}": value.detach().cpu()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_moments(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """The inverse of :func:`moments`."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, what = key.rpartition("/")
        device = parameters[name].device
        optimizer.state[parameters[name]][what] = value.to(device)
