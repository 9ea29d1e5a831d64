"""Export to a stock Hugging Face class: no remote code, no loss.

Sandwich norm, QK-norm and a final soft-cap are what ``Gemma3ForCausalLM`` computes, with every layer set to full
attention, SiLU for its activation and the head size for its query scale. Two conventions differ: its norms multiply
by 1 + w, so gains are stored minus 1, and it multiplies embeddings by sqrt(hidden), so they are stored divided by
it. A tied model is written untied, since that factor is on the input side only. ``parity`` proves the result.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, processors
from torch import Tensor

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import canonical, read_json, write_json
from gristmill.kernels.common.seeds import hash64
from gristmill.train.load import CARD, load_model
from gristmill.train.model import Decoder

NORMS = {
    "attention_norm": "input_layernorm",
    "attention_out_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_out_norm": "post_feedforward_layernorm",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
}
MATRICES = {
    **{f"attention.{x}": f"self_attn.{x}_proj" for x in "qkvo"},
    **{f"mlp.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
}
COPIED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)  # of a Hugging Face folder


def to_huggingface(model_dir: Path, tokenizer_dir: Path, out: Path) -> dict[str, Any]:
    """Write config.json, generation_config.json, model.safetensors (FP32) and the tokenizer to ``out``.

    A folder that is Hugging Face's already (a post-training step's) is copied. Returns {"class", "parameters",
    "vocab_size", "tokenizer_vocab_size", "padded_ids"}. Raises BadInput for a model that no stock class computes,
    naming the option. Not checked here: see :func:`check`.
    """
    if not (Path(model_dir) / CARD).is_file():
        return _copy(Path(model_dir), read_json(Path(tokenizer_dir) / "tokens.json"), Path(out))
    model, meta = load_model(model_dir)
    ids = read_json(Path(tokenizer_dir) / "tokens.json")
    config = _config(model, meta, ids)  # refuses before anything is written
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tensors = to_gemma(model)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", config)
    special = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    write_json(out / "generation_config.json", special)
    _tokenizer(Path(tokenizer_dir), out, ids, meta["seq_len"])
    return {
        "class": config["architectures"][0],
        "parameters": sum(t.numel() for t in tensors.values()),
        "vocab_size": model.vocab_size,
        "tokenizer_vocab_size": ids["vocab_size"],
        "padded_ids": model.vocab_size - ids["vocab_size"],
    }


def _copy(folder: Path, ids: dict, out: Path) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)
    config, tensors = read_json(out / "config.json"), load_file(out / "model.safetensors")
    return {
        "class": config["architectures"][0],
        "parameters": sum(t.numel() for t in tensors.values()),
        "vocab_size": config["vocab_size"],
        "tokenizer_vocab_size": ids["vocab_size"],
        "padded_ids": config["vocab_size"] - ids["vocab_size"],
    }


def to_gemma(model: Decoder) -> dict[str, Tensor]:
    """The weights under Gemma 3's names and conventions."""
    tensors = {}
    for name, value in model.state_dict().items():
        new = _name(name.removesuffix(".weight"))
        if value.ndim == 1:
            value = value - 1  # exact for gains in [0.5, 2], otherwise to half an ulp of the gain
        elif name == "embed.weight":
            value = (value.double() / model.config.hidden**0.5).float()
        tensors[f"{new}.weight"] = value.contiguous()
    if model.head is None:
        tensors["lm_head.weight"] = model.embed.weight.detach().clone()
    return tensors


def _name(name: str) -> str:
    if name.startswith("layers."):
        _, number, rest = name.split(".", 2)
        return f"model.layers.{number}.{ {**NORMS, **MATRICES}[rest] }"
    return {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}[name]


def _config(model: Decoder, meta: dict, ids: dict) -> dict[str, Any]:
    c = model.config
    for option, value, wanted in (("norm", c.norm, "sandwich"), ("qk_norm", c.qk_norm, True)):
        if value != wanted:
            raise BadInput(
                "no stock class computes this without loss", key=f"model.{option}", got=value, expected=f"{wanted}"
            )
    if c.hidden % c.heads:
        raise BadInput("Gemma3TextConfig refuses a size that is no multiple of heads", key="model.hidden", got=c.hidden)
    rope = {"rope_type": "default", "rope_theta": c.rope_theta}
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": "float32",
        "vocab_size": model.vocab_size,
        "hidden_size": c.hidden,
        "intermediate_size": c.mlp,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_size,
        "hidden_activation": "silu",
        "max_position_embeddings": meta["seq_len"],
        "initializer_range": c.init_std,
        "rms_norm_eps": c.norm_eps,
        "rope_parameters": {"full_attention": rope, "sliding_attention": rope},
        "layer_types": ["full_attention"] * c.layers,
        "query_pre_attn_scalar": c.head_size,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "final_logit_softcapping": c.logit_softcap,
        "attn_logit_softcapping": None,
        "tie_word_embeddings": False,
        "bos_token_id": ids["bos_id"],
        "eos_token_id": ids["eos_id"],
        "pad_token_id": ids["pad_id"],
    }


def _tokenizer(source: Path, out: Path, ids: dict, seq_len: int) -> None:
    """The tokenizer, made to begin a text as training documents begin: with exactly one BOS."""
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    if tokenizer.encode("a").ids[:1] != [ids["bos_id"]]:
        begin = processors.TemplateProcessing(
            single=f"{ids['bos']} $A", pair=f"{ids['bos']} $A $B", special_tokens=[(ids["bos"], ids["bos_id"])]
        )
        before = tokenizer.post_processor
        tokenizer.post_processor = begin if before is None else processors.Sequence([before, begin])
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json", {**read_json(source / "tokenizer_config.json"), "model_max_length": seq_len}
    )


def prompts(vocab_size: int, seq_len: int, count: int = 4) -> Tensor:
    """Fixed token ids [count, up to 64] over the tokenizer's vocabulary."""
    length = min(64, seq_len)
    ids = hash64(0, np.arange(count * length, dtype=np.uint64)) % np.uint64(vocab_size)
    return torch.from_numpy(ids.astype(np.int64)).view(count, length)


def reference_logits(model_dir: Path, tokens_PT: Tensor, out: Path) -> None:
    """Write what ``parity`` compares with: {"tokens", "logits" [P, T, V]} of our own forward, and the hash of every
    exported tensor (logits on a few prompts cannot see all rows of an embedding)."""
    if (Path(model_dir) / CARD).is_file():
        model, _ = load_model(model_dir)
        tensors = to_gemma(model)
        with torch.inference_mode():
            logits_PTV = model.logits(model(tokens_PT))
    else:
        from transformers import AutoModelForCausalLM  # slow to import

        tensors = load_file(Path(model_dir) / "model.safetensors")
        with torch.inference_mode():
            stock = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, trust_remote_code=False).eval()
            logits_PTV = stock(tokens_PT).logits
    save_file({"tokens": tokens_PT, "logits": logits_PTV.contiguous()}, out)
    write_json(Path(out).with_suffix(".json"), {name: tensor_hash(t) for name, t in tensors.items()})


def tensor_hash(tensor: Tensor) -> str:
    """sha256 of a tensor's shape and bytes."""
    return hashlib.sha256(canonical(list(tensor.shape)) + tensor.contiguous().numpy().tobytes()).hexdigest()


def check(model_dir: Path, hf_dir: Path) -> dict[str, Any]:
    """Load ``hf_dir`` in a fresh process through AutoModelForCausalLM and compare it with ``model_dir``.

    Returns parity's report. Raises BadInput when anything differs (``parity`` says what counts).
    """
    config = read_json(Path(hf_dir) / "config.json")
    with tempfile.TemporaryDirectory() as scratch:
        expected = Path(scratch) / "expected.safetensors"
        reference_logits(model_dir, prompts(config["vocab_size"], config["max_position_embeddings"]), expected)
        command = [sys.executable, "-P", "-m", "gristmill.train.parity", str(hf_dir), str(expected)]
        done = subprocess.run(command, capture_output=True, text=True)
        report = expected.with_name("report.json")
        if done.returncode == 0 and report.is_file():
            return read_json(report)
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    raise BadInput(f"the export is not the model: {lines[-1]}", file=hf_dir)
