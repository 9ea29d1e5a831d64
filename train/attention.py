"""Causal attention inside documents, with grouped keys and values.

Shapes: B rows, T positions, H query heads, K key/value heads, G = H / K, E head size, Q a block of queries.

PyTorch's CPU kernel is slow in the backward at training lengths, so on a CPU short rows take a path of plain
matrix products: queries in blocks, each against the keys up to its end only (half the work of a full square),
the G heads of a group folded into one matrix. Measured at B 8, H 4, K 2, T 512, E 64 in fp32 on one core,
forward and backward: 97 ms against 186 ms. Its memory grows with T squared, hence the limit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 128  # queries per block; 64, 128 and 256 differ by less than 15 %
LONGEST_BLOCKED = 1024  # positions; beyond this the kernel that stores no probabilities is taken


def document_mask(segments_BT: Tensor) -> Tensor:
    """Bool [B, T, T], True where query t may see key s: s <= t and both in the same segment.

    Padding (segment -1) sees earlier padding: no query is left without a key, so there is no 0/0.
    """
    same_BTT = segments_BT[:, :, None] == segments_BT[:, None, :]
    return same_BTT.tril_()


def attention(q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor, mask_BTT: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(E), where ``mask_BTT``) v -> [B, H, T, E]. The mask must be causal."""
    if q_BHTE.device.type == "cpu" and q_BHTE.shape[2] <= LONGEST_BLOCKED:
        return _Blocked.apply(q_BHTE, k_BKTE, v_BKTE, mask_BTT)
    return attention_reference(q_BHTE, k_BKTE, v_BKTE, mask_BTT)


def attention_reference(q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor, mask_BTT: Tensor) -> Tensor:
    """The same through PyTorch's own kernels."""
    return F.scaled_dot_product_attention(q_BHTE, k_BKTE, v_BKTE, attn_mask=mask_BTT[:, None], enable_gqa=True)


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor, mask_BTT: Tensor) -> Tensor:
        B, H, T, E = q_BHTE.shape
        K = k_BKTE.shape[1]
        q_BKGTE = (q_BHTE * E**-0.5).view(B, K, H // K, T, E)
        out_BKGTE = torch.empty_like(q_BKGTE)
        bias_BTT = torch.zeros_like(mask_BTT, dtype=torch.float32).masked_fill_(~mask_BTT, float("-inf"))
        blocks = []
        for a in range(0, T, BLOCK):
            b = min(a + BLOCK, T)
            score_BKNS = _fold(q_BKGTE[:, :, :, a:b]) @ k_BKTE[:, :, :b].transpose(-1, -2)
            score = score_BKNS.view(B, K, H // K, b - a, b).float() + bias_BTT[:, None, None, a:b, :b]
            p_BKNS = score.softmax(-1).to(q_BHTE.dtype).view(B, K, -1, b)
            out_BKGTE[:, :, :, a:b] = (p_BKNS @ v_BKTE[:, :, :b]).view(B, K, H // K, b - a, E)
            blocks.append(p_BKNS)
        ctx.save_for_backward(q_BKGTE, k_BKTE, v_BKTE, *blocks)
        return out_BKGTE.view(B, H, T, E)

    @staticmethod
    def backward(ctx, grad_BHTE: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q_BKGTE, k_BKTE, v_BKTE, *blocks = ctx.saved_tensors
        B, K, G, T, E = q_BKGTE.shape
        grad_BKGTE = grad_BHTE.reshape(B, K, G, T, E)
        dq_BKGTE, dk_BKTE, dv_BKTE = torch.empty_like(q_BKGTE), torch.zeros_like(k_BKTE), torch.zeros_like(v_BKTE)
        for a, p_BKNS in zip(range(0, T, BLOCK), blocks, strict=True):
            b = min(a + BLOCK, T)
            grad_BKNE = _fold(grad_BKGTE[:, :, :, a:b])
            dv_BKTE[:, :, :b] += p_BKNS.transpose(-1, -2) @ grad_BKNE
            dp_BKNS = grad_BKNE @ v_BKTE[:, :, :b].transpose(-1, -2)
            # d softmax: p (dp - sum(p dp)); masked entries have p = 0 and stay 0
            ds_BKNS = torch._softmax_backward_data(dp_BKNS, p_BKNS, -1, p_BKNS.dtype)
            dq_BKGTE[:, :, :, a:b] = (ds_BKNS @ k_BKTE[:, :, :b]).view(B, K, G, b - a, E)
            dk_BKTE[:, :, :b] += ds_BKNS.transpose(-1, -2) @ _fold(q_BKGTE[:, :, :, a:b])
        return (dq_BKGTE * E**-0.5).view(B, K * G, T, E), dk_BKTE, dv_BKTE, None


def _fold(x_BKGQE: Tensor) -> Tensor:
    """[B, K, G, Q, E] -> [B, K, G Q, E]: one matrix per key/value head."""
    return x_BKGQE.flatten(2, 3)
