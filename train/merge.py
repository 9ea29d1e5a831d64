"""WSM: a weighted mean of the last checkpoints of a constant-rate run, in place of a decayed run (arXiv 2507.17634).

With theta_0 ... theta_k the checkpoints, oldest first, and Delta_i = theta_{i-1} - theta_i what interval i did,

    sum_j c_j theta_j = theta_0 - sum_i w_i Delta_i,     w_i = sum_{j >= i} c_j        (c >= 0, sum c = 1)

so merging with c scales the updates of interval i by w_i, as a decay of the rate to w_i would have to first order.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from safetensors import safe_open

from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import atomic, canonical, write_json
from gristmill.train import checkpoint
from gristmill.train.load import CARD, read_card
from gristmill.train.schedule import SHAPES


class MergeConfig(Config):
    """Which checkpoints are merged, and with what weights."""

    kind: Literal["wsm"] = Field("wsm", description="weighted mean of the last checkpoints")
    shape: Literal["linear", "1-sqrt", "cosine", "ema", "ema-from-first"] = Field(
        "linear", description="the decay the weights stand for; linear is the plain mean"
    )
    last: int = Field(8, ge=1, description="checkpoints merged (count), the newest included")
    decay: float | None = Field(
        None, ge=0, lt=1, description="ema shapes only: a checkpoint's weight relative to the next newer one [0-1)"
    )

    @model_validator(mode="after")
    def _decay_where_it_counts(self) -> MergeConfig:
        if self.shape.startswith("ema") != (self.decay is not None):
            need = "needs" if self.decay is None else "does not take"
            raise ValueError(f"shape {self.shape} {need} decay")
        return self


def merge_weights(shape: str, count: int, decay: float | None = None) -> list[float]:
    """Weights c of ``count`` checkpoints, oldest first; they sum to 1.

    linear, 1-sqrt, cosine: w_i = f(i / (k + 1)), k = count - 1, of the decay f from 1 to 0 (the paper's sampling is
    not published; this one keeps weight on both ends and makes linear the plain mean). ema: c_j proportional to
    decay^(k - j). ema-from-first: m = decay m + (1 - decay) theta, begun at m = theta_0, which leaves the oldest
    with decay^k (arXiv 2511.18903 with decay 0.8).
    """
    k = count - 1
    if shape == "ema":
        raw = [decay ** (k - j) for j in range(count)]
        return [c / sum(raw) for c in raw]
    if shape == "ema-from-first":
        return [decay**k] + [(1 - decay) * decay ** (k - j) for j in range(1, count)]
    return from_decay([SHAPES[shape](i / (k + 1)) for i in range(1, k + 1)])


def from_decay(w: Sequence[float]) -> list[float]:
    """c_0 ... c_k of update scales w_1 ... w_k. Raises ValueError unless 1 >= w_1 >= ... >= w_k >= 0."""
    steps = [1.0, *w, 0.0]
    if any(a < b for a, b in zip(steps, steps[1:], strict=False)):
        raise ValueError(f"update scales must fall from at most 1 to at least 0, not {list(w)}")
    return [a - b for a, b in zip(steps, steps[1:], strict=False)]


def to_decay(c: Sequence[float]) -> list[float]:
    """w_1 ... w_k, by how much merging with c_0 ... c_k scales each interval's updates."""
    return [sum(c[i:]) for i in range(1, len(c))]


def merge_files(files: Sequence[Path], weights: Sequence[float], out: Path) -> None:
    """Write the weighted mean of safetensors files: FP64 sums, FP32 result, one tensor of one file at a time.

    The sum is theta_k + sum_j c_j (theta_j - theta_k), so merging a checkpoint with copies of itself changes nothing.
    Besides the two tensors at hand nothing is held: the result is written as it is made.
    """
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        shapes = _shapes(readers[-1])
        for file, reader in zip(files, readers, strict=True):
            if _shapes(reader) != shapes:
                raise BadInput("holds other parameters than the newest checkpoint", file=file)
        with atomic(out) as tmp, open(tmp, "wb") as f:
            f.write(_header(shapes))
            for name in shapes:
                newest = readers[-1].get_tensor(name).double()
                total = torch.zeros_like(newest)
                for weight, reader in zip(weights[:-1], readers[:-1], strict=True):
                    total += weight * (reader.get_tensor(name).double() - newest)
                f.write((newest + total).float().numpy().astype("<f4").tobytes())


def _shapes(reader: Any) -> dict[str, list[int]]:
    return {name: reader.get_slice(name).get_shape() for name in sorted(reader.keys())}


def _header(shapes: dict[str, list[int]]) -> bytes:
    """The head of a safetensors file of FP32 tensors: a length, JSON, spaces up to a multiple of 8 bytes."""
    entries, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = canonical(entries)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def run(config: MergeConfig, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"pretrain": its output folder}. Writes model.safetensors, model.json and merge.json
    {"shape", "checkpoints": [{"step", "weight"}]}. Raises BadInput when there are fewer than ``last`` checkpoints,
    or one of all is damaged: the identity wants equal spacing."""
    folder = inputs["pretrain"] / "checkpoints"
    available = list(checkpoint.complete(folder))[::-1]
    if len(available) < len(checkpoint.folders(folder)):
        raise BadInput("a checkpoint is damaged (named above)", file=folder)
    if len(available) < config.last:
        raise BadInput(
            "more checkpoints than there are",
            file=inputs["pretrain"],
            key="merge.last",
            got=config.last,
            expected=f"at most {len(available)}",
        )
    chosen = available[-config.last :]
    weights = merge_weights(config.shape, config.last, config.decay)
    out.mkdir(parents=True, exist_ok=True)
    merge_files([c.folder / checkpoint.MODEL for c in chosen], weights, out / checkpoint.MODEL)
    write_json(out / CARD, read_card(inputs["pretrain"]))
    used = [{"step": c.step, "weight": w} for c, w in zip(chosen, weights, strict=True)]
    write_json(out / "merge.json", {"shape": config.shape, "checkpoints": used})
    return {"checkpoints": len(chosen), "first_step": chosen[0].step, "last_step": chosen[-1].step}
