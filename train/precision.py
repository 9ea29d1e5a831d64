"""Which number format the matrix products run in. Weights, gradients, moments and the residual stream are FP32."""

from __future__ import annotations

import contextlib
from typing import Literal

import torch

Precision = Literal["auto", "fp32", "bf16"]


def resolve(precision: Precision, device: torch.device | str) -> Literal["fp32", "bf16"]:
    """``auto`` is bf16 where the hardware multiplies it, fp32 elsewhere; the other two are themselves."""
    if precision != "auto":
        return precision
    return "bf16" if has_bf16(torch.device(device)) else "fp32"


def has_bf16(device: torch.device) -> bool:
    """Whether ``device`` has bf16 arithmetic. A CPU without it emulates it hundreds of times slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    if hasattr(torch.cpu, "get_capabilities"):
        have = torch.cpu.get_capabilities()
        return bool(have.get("avx512_bf16") or have.get("amx_bf16"))
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def pick_device(device: str) -> torch.device:
    """``auto`` is the first GPU, or the CPU where there is none."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def autocast(precision: Literal["fp32", "bf16"], device: torch.device) -> contextlib.AbstractContextManager:
    """The context to run a forward pass in."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
