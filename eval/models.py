"""Models to evaluate, train further or talk to: any Hugging Face causal language model, ours among them.

A folder that ``pretrain`` or ``merge`` wrote is exported (losslessly: see ``train.export``) and loaded back as the
stock class a release loads as, so what is evaluated is what is released.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import file_hash, read_json, write_json
from gristmill.train import export
from gristmill.train.load import CARD


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model in FP32, its tokenizer, and the conventions both were trained with."""

    model: Any  # transformers.PreTrainedModel
    tokenizer: Any  # transformers.PreTrainedTokenizerFast
    name: str

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, nothing added; a special token's text inside a text is ordinary text."""
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False)[
            "input_ids"
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @cached_property
    def begin(self) -> list[int]:
        """What the tokenizer puts before a text: [BOS] or nothing."""
        bos = self.tokenizer.bos_token_id
        return [bos] if bos is not None and self.tokenizer("a")["input_ids"][:1] == [bos] else []

    @property
    def prefix_id(self) -> int:
        """The token an empty context is made of: BOS, else EOS (lm-eval's rule)."""
        for token in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return token
        raise BadInput("the tokenizer has neither BOS nor EOS to begin an empty context with", file=self.name)

    @cached_property
    def stop(self) -> set[int]:
        """Every id that ends a text: the tokenizer's, the configuration's and the generation configuration's."""
        found: set[int] = set()
        for value in (
            self.tokenizer.eos_token_id,
            self.model.config.eos_token_id,
            self.model.generation_config.eos_token_id if self.model.generation_config else None,
        ):
            found |= set(value) if isinstance(value, list) else {value} - {None}
        return found

    @cached_property
    def pad_id(self) -> int:
        """An id to fill batches with; always masked, so any will do."""
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else min(self.stop, default=0)

    @property
    def max_length(self) -> int:
        """Longest text the model was made for (tokens)."""
        return int(getattr(self.model.config, "max_position_embeddings", 0) or self.tokenizer.model_max_length)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def fingerprint(self) -> dict[str, Any]:
        """What the scores of this model are scores of: class, parameters, dtype, and the files' hashes."""
        return {
            "class": type(self.model).__name__,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "max_length": self.max_length,
            "weights": weights_hash(Path(self.name)),
        }


def load(model: str | Path, tokenizer: Path | None = None, device: str = "cpu") -> LanguageModel:
    """A model by folder (Hugging Face's format or ours), or by a name that transformers resolves.

    ``tokenizer``: the tokenizer stage's folder, for a model folder of ours. Raises BadInput for what is no model.
    """
    folder = Path(model)
    if (folder / CARD).is_file():
        if tokenizer is None:
            raise BadInput("a model artefact needs its tokenizer; give the run's release, or the run", file=folder)
        with tempfile.TemporaryDirectory() as scratch:
            export.to_huggingface(folder, tokenizer, Path(scratch))
            return _load(Path(scratch), str(folder), device)
    return _load(model, str(model), device)


def save(model: LanguageModel, out: Path) -> None:
    """A Hugging Face folder: configuration, FP32 weights as safetensors, tokenizer. The same bytes whatever version of
    transformers writes it: the version is provenance, not part of a model."""
    model.model.save_pretrained(out)
    model.tokenizer.save_pretrained(out)
    for name in ("config.json", "generation_config.json"):
        if (out / name).is_file():
            write_json(out / name, {k: v for k, v in read_json(out / name).items() if k != "transformers_version"})


def weights_hash(folder: Path) -> dict[str, str]:
    """sha256 of every weights and tokenizer file of a folder; empty for a model that is no folder."""
    names = [*folder.glob("*.safetensors"), *folder.glob("tokenizer.json")] if folder.is_dir() else []
    return {path.name: file_hash(path) for path in sorted(names)}


def _load(source: str | Path, name: str, device: str) -> LanguageModel:
    from transformers import AutoModelForCausalLM, AutoTokenizer  # slow to import
    from transformers.utils import logging

    logging.disable_progress_bar()
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise BadInput("not a model folder (no config.json)", file=source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, trust_remote_code=False)
    except (OSError, ValueError) as error:
        what = str(error).strip().splitlines()[0]
        raise BadInput(f"cannot be loaded as a causal language model: {what}", file=name) from None
    if not tokenizer.is_fast:
        raise BadInput("the tokenizer has no fast version (tokenizer.json)", file=name)
    return LanguageModel(model.to(device).eval(), tokenizer, name)
