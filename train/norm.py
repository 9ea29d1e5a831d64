"""RMSNorm (arXiv 1910.07467) with its backward written out.

PyTorch composes it of six element-wise steps on a CPU, and differentiates each: at 4,096 x 256 in FP32 on one
core 14 ms forward and backward against 9 ms for the closed forms below. A block has six norms.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, in FP32; returns x's type."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return _RMSNorm.apply(x.float(), self.weight, self.eps).type_as(x)


class _RMSNorm(torch.autograd.Function):
    """y = x r w with r = (mean(x^2) + eps)^(-1/2); N rows of D features, any leading axes."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        r = mean_square.add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, r)
        return (x * r).mul_(weight)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, r = ctx.saved_tensors
        normed = x * r
        scaled = grad * normed
        dweight = scaled.flatten(0, -2).sum(0)
        # dx = r (g - n mean(g n)) with g = grad w, n = x r; the mean is (grad n) . w / D
        mean = (scaled @ weight).div_(x.shape[-1]).unsqueeze(-1)
        dx = (grad * weight).sub_(normed.mul_(mean)).mul_(r)
        return dx, dweight, None
