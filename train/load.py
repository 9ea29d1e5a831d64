"""A trained model from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json
from gristmill.train import checkpoint
from gristmill.train.model import Decoder, ModelConfig

CARD = "model.json"  # {"model": ModelConfig, "vocab_size", "seq_len", "precision", "pad_id", "eos_id"}


def load_model(folder: Path) -> tuple[Decoder, dict[str, Any]]:
    """(decoder in FP32 on the CPU, contents of model.json) of a folder that ``merge``, ``pretrain`` or a
    post-training stage wrote. A pretrain folder stands for its newest numbered checkpoint."""
    folder = Path(folder)
    meta, weights = read_card(folder), load_file(weights_file(folder))
    with torch.device("meta"):
        model = Decoder(ModelConfig(**meta["model"]), meta["vocab_size"])
    try:
        model.load_state_dict(weights, strict=True, assign=True)
    except RuntimeError as error:
        raise BadInput(f"the weights do not fit {CARD} ({' '.join(str(error).split())})", file=folder) from None
    return model.eval(), meta


def read_card(folder: Path) -> dict[str, Any]:
    """model.json of a model folder."""
    try:
        return read_json(Path(folder) / CARD)
    except FileNotFoundError:
        raise BadInput(f"not a model folder (no {CARD})", file=folder) from None


def weights_file(folder: Path) -> Path:
    """The safetensors file that holds a model folder's weights."""
    single = Path(folder) / checkpoint.MODEL
    if single.is_file():
        return single
    newest = checkpoint.latest(Path(folder) / "checkpoints")
    if newest is None:
        raise BadInput(f"no {checkpoint.MODEL} and no complete checkpoint", file=folder)
    return newest.folder / checkpoint.MODEL
