"""Tokenizer: train a byte-level BPE here, or take one from a file; either way a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import pyarrow.parquet as pq
from pydantic import Field
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from gristmill.data import tables
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json, write_json

BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"

# Words with their leading space, digits one at a time (sums need place value), runs of punctuation, line
# breaks. Written for this project in the manner GPT-2 began.
SPLIT = r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class TrainTokenizer(Config):
    """Byte-level BPE trained on the training split."""

    kind: Literal["train"] = Field("train", description="train here")
    vocab_size: int = Field(16384, ge=300, le=1 << 20, description="ids, the three special ones included (count)")
    max_mb: float = Field(32, gt=0, description="text read per source (MB), from the start of the id order")


class FileTokenizer(Config):
    """An existing tokenizer.json."""

    kind: Literal["file"] = Field(description="take from a file")
    path: str = Field(description="a tokenizer.json, relative to the recipe")
    bos: str | None = Field(None, description="token put before each document; default: the end-of-text token")
    eos: str = Field(description="token put after each document")
    pad: str | None = Field(None, description="token that fills rows; default: the end-of-text token")


TokenizerConfig = Annotated[TrainTokenizer | FileTokenizer, Field(discriminator="kind")]


class TokenizerStage(Config):
    tokenizer: TokenizerConfig = Field(description="the recipe's block")
    file: str | None = execution(None, description="kind file: where the tokenizer.json is; its hash is what counts")


def run(config: TokenizerStage, inputs: dict[str, Path], out: Path) -> dict:
    """``inputs``: {"split"} for kind train, none for kind file.

    Writes tokenizer.json, tokenizer_config.json and ``tokens.json`` {vocab_size, bos, eos, pad, *_id}.
    """
    spec = config.tokenizer
    if spec.kind == "train":
        tokenizer = _train(spec, inputs["split"] / "train")
        bos, eos, pad = BOS, EOS, PAD
    else:
        tokenizer = _load(Path(config.file), spec)
        bos, eos, pad = spec.bos or spec.eos, spec.eos, spec.pad or spec.eos
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "pad_token": pad,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1 << 30,
        },
    )
    ids = {f"{name}_id": tokenizer.token_to_id(token) for name, token in (("bos", bos), ("eos", eos), ("pad", pad))}
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    size = max(size, 1 + max(tokenizer.get_vocab(with_added_tokens=True).values()))
    write_json(out / "tokens.json", {"vocab_size": size, "bos": bos, "eos": eos, "pad": pad, **ids})
    return {"vocab_size": size}


def _train(spec: TrainTokenizer, folder: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in (BOS, EOS, PAD)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(folder, spec.max_mb * 1e6), trainer)
    if tokenizer.get_vocab_size() < spec.vocab_size:
        raise BadInput(
            "the text holds too few distinct pairs for this vocabulary",
            key="tokenizer.vocab_size",
            got=spec.vocab_size,
            expected=f"at most {tokenizer.get_vocab_size()}",
        )
    return tokenizer


def _regex(pattern: str):
    from tokenizers import Regex

    return Regex(pattern)


def _texts(folder: Path, limit: float) -> Iterator[str]:
    for source, parts in tables.read_index(folder).items():
        read = 0
        for part in parts:
            for text in pq.read_table(tables.part_path(folder, source, part["name"]), columns=["text"])["text"]:
                if read > limit:
                    break
                read += len(text.as_py().encode())
                yield text.as_py()


def _load(path: Path, spec: FileTokenizer) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise BadInput(f"not a readable tokenizer.json ({error})", file=path, key="tokenizer.path") from None
    for name in ("bos", "eos", "pad"):
        token = getattr(spec, name)
        if token is not None and tokenizer.token_to_id(token) is None:
            raise BadInput("no such token in the vocabulary", file=path, key=f"tokenizer.{name}", got=token)
    return tokenizer


class Encoder:
    """Text -> ids with the policy every stage shares: special-token text inside a document is ordinary text."""

    def __init__(self, folder: Path):
        folder = Path(folder)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True
        meta = read_json(folder / "tokens.json")
        self.vocab_size, self.bos_id, self.eos_id, self.pad_id = (
            meta[k] for k in ("vocab_size", "bos_id", "eos_id", "pad_id")
        )

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, nothing added before or after."""
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def policy(self) -> str:
        return json.dumps({"bos": self.bos_id, "eos": self.eos_id, "per": "document"})
