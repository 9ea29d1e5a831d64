"""One step's gradient: micro-batches summed and normalised together, so how a batch is cut does not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from gristmill.train.loss import IGNORE, cross_entropy, next_token_labels
from gristmill.train.model import Decoder
from gristmill.train.precision import autocast


def forward_backward(
    model: Decoder,
    batches: Sequence[tuple[Tensor, Tensor]],
    precision: str,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[float, int] | None:
    """Add to ``.grad`` the gradient of the mean -log p over all supervised tokens of ``batches``, (tokens [B, T],
    segments [B, T]) pairs. Returns (that mean in nats, supervised tokens); None as soon as ``stop()`` says so.

    The mean is over the whole step: a mean of micro-batch means would weigh a token by the company it keeps. A
    micro-batch without supervised tokens adds 0 to both sums; a step without any returns (0, 0) and no gradient.
    """
    labels = [next_token_labels(tokens, segments) for tokens, segments in batches]
    count = sum(int((label != IGNORE).sum()) for label in labels)
    total = 0.0
    for (tokens_BT, segments_BT), labels_BT in zip(batches, labels, strict=True):
        if stop():
            return None
        with autocast(precision, tokens_BT.device):
            nll, here = cross_entropy(
                model(tokens_BT, segments_BT), model.head_VD, labels_BT, model.config.logit_softcap
            )
        if here:
            (nll / count).backward()
            total += nll.item()
    return total / max(1, count), count
