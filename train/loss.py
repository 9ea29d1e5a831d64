"""Next-token cross-entropy over supervised tokens, a chunk of tokens at a time.

The logits of a whole batch are its largest tensor (4,096 tokens x 151,936 ids in FP32: 2.5 GB), and nothing but
their gradient is needed. So each chunk's logits are made, its loss and its gradients with respect to the hidden
states and the head are taken at once, and the logits are dropped; the backward only scales.

Shapes: B rows, T positions, N supervised tokens, C tokens of a chunk, D hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gristmill.train.model import softcap

IGNORE = -100  # label of a position that predicts nothing
CHUNK_LOGITS = 1 << 22  # logits alive at once (16 MB in FP32)


def next_token_labels(tokens_BT: Tensor, segments_BT: Tensor) -> Tensor:
    """[B, T]: the next token where it belongs to the same document, IGNORE elsewhere (ends, padding)."""
    labels_BT = torch.full_like(tokens_BT, IGNORE)
    same = (segments_BT[:, 1:] == segments_BT[:, :-1]) & (segments_BT[:, :-1] >= 0)
    labels_BT[:, :-1] = torch.where(same, tokens_BT[:, 1:], IGNORE)
    return labels_BT


def cross_entropy(hidden_BTD: Tensor, head_VD: Tensor, labels_BT: Tensor, cap: float | None) -> tuple[Tensor, int]:
    """(sum of -log p over supervised tokens, nats; their count). Divide by the count of the whole step, not of
    this micro-batch. No supervised token: (0, 0), with zero gradients."""
    supervised = (labels_BT != IGNORE).flatten().nonzero().squeeze(1)
    hidden_ND = hidden_BTD.flatten(0, 1).index_select(0, supervised)
    labels_N = labels_BT.flatten().index_select(0, supervised)
    return _Chunked.apply(hidden_ND, head_VD, labels_N, cap), len(supervised)


def cross_entropy_reference(
    hidden_BTD: Tensor, head_VD: Tensor, labels_BT: Tensor, cap: float | None
) -> tuple[Tensor, int]:
    """The same from all logits at once, by PyTorch's own functions."""
    logits = softcap(F.linear(hidden_BTD, head_VD).float(), cap).flatten(0, 1)
    nll = F.cross_entropy(logits, labels_BT.flatten(), ignore_index=IGNORE, reduction="sum")
    return nll, int((labels_BT != IGNORE).sum())


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden_ND: Tensor, head_VD: Tensor, labels_N: Tensor, cap: float | None) -> Tensor:
        device = hidden_ND.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_ND.dtype
        with torch.autocast(device, enabled=False):
            return _Chunked._forward(ctx, hidden_ND.to(dtype), head_VD.to(dtype), labels_N, cap, hidden_ND.dtype)

    @staticmethod
    def _forward(ctx, hidden_ND, head_VD, labels_N, cap, out_dtype) -> Tensor:
        """``hidden_ND`` and ``head_VD`` in the type of the matrix products; all else, and dW, in FP32 (or FP64)."""
        wide = torch.promote_types(head_VD.dtype, torch.float32)
        need_hidden, need_head = ctx.needs_input_grad[:2]
        grad_ND = torch.empty_like(hidden_ND) if need_hidden else None
        grad_VD = torch.zeros_like(head_VD, dtype=wide) if need_head else None
        total = torch.zeros((), dtype=torch.float64, device=hidden_ND.device)
        size = min(len(hidden_ND), max(32, CHUNK_LOGITS // len(head_VD)))
        # Two buffers for all chunks: a fresh one costs a page fault every 4 KB, as much time as the arithmetic.
        logits_CV = hidden_ND.new_empty((size, len(head_VD)), dtype=wide)
        tanh_CV = torch.empty_like(logits_CV) if cap is not None else None
        for a in range(0, len(hidden_ND), size or 1):
            h_CD, label_C1 = hidden_ND[a : a + size], labels_N[a : a + size, None]
            z_CV = logits_CV[: len(h_CD)]
            if h_CD.dtype == wide:
                torch.mm(h_CD, head_VD.T, out=z_CV)
            else:
                z_CV.copy_(h_CD @ head_VD.T)
            if cap is not None:
                t_CV = torch.tanh(z_CV.div_(cap), out=tanh_CV[: len(h_CD)])
                torch.mul(t_CV, cap, out=z_CV)
            label_z_C1 = z_CV.gather(1, label_C1)
            top_C1 = z_CV.amax(-1, keepdim=True)
            sum_C1 = z_CV.sub_(top_C1).exp_().sum(-1, keepdim=True)
            total += (sum_C1.log() + top_C1 - label_z_C1).sum(dtype=torch.float64)
            if not (need_hidden or need_head):
                continue
            g_CV = z_CV.div_(sum_C1)  # softmax
            g_CV.scatter_add_(1, label_C1, torch.full_like(sum_C1, -1.0))
            if cap is not None:  # d cap tanh(z / cap) / dz = 1 - tanh^2
                g_CV.addcmul_(g_CV, t_CV.square_(), value=-1)
            g_CV = g_CV.to(head_VD.dtype)
            if need_hidden:
                grad_ND[a : a + size] = g_CV @ head_VD
            if need_head:
                grad_VD += g_CV.T @ h_CD
        ctx.save_for_backward(grad_ND if grad_ND is None else grad_ND.to(out_dtype), grad_VD)
        return total.to(wide)

    @staticmethod
    def backward(ctx, scale: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        grad_ND, grad_VD = ctx.saved_tensors
        return (
            None if grad_ND is None else grad_ND * scale.to(grad_ND.dtype),
            None if grad_VD is None else grad_VD * scale,
            None,
            None,
        )
