"""Recipe models of the tests' own, and a writer that loads what it wrote: what test_config*.py share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, field_validator, model_serializer, model_validator

from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput
from gristmill.recipes.runner import loader


class Share(Config):
    """Shorthand: `top .5`."""

    kind: str
    amount: float = 1.0

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind, _, amount = value.partition(" ")
        if kind not in ("all", "top"):
            raise ValueError(f"{value!r} is not a selector")
        return {"kind": kind, "amount": amount} if amount else {"kind": kind}

    @model_serializer
    def _text(self) -> str:
        return f"{self.kind} {self.amount!r}"


class Read(Config):
    """Shorthand: `lines` or `{jsonl: text}`."""

    format: str
    field: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _long(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"format": value}
        if isinstance(value, dict) and len(value) == 1:
            ((name, field),) = value.items()
            return {"format": name, "field": field}
        return value

    @model_serializer
    def _short(self) -> Any:
        return self.format if self.field is None else {self.format: self.field}


class Package(Config):
    kind: Literal["package"]
    pin: str


class Files(Config):
    kind: Literal["files"]
    path: str
    depth: int = 3


class Source(Config):
    origin: Annotated[Package | Files, Field(discriminator="kind")] = Field(alias="from")
    read: Read
    lang: str = "en"


class Optimizer(Config):
    kind: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = Field(3e-3, gt=0, le=1)
    betas: tuple[float, float] = (0.9, 0.95)


class Curriculum(Config):
    steps: int = 5
    sharpness: float = 1.0


class Train(Config):
    batch_tokens: int = Field(16384, ge=1)
    num_epochs: int = 1
    amp: bool = False
    clip: float | None = 1.0
    precision: float | Literal["auto"] = "auto"
    bits: Literal[8, 16, "auto"] = "auto"
    optimizer: Optimizer = Optimizer()
    curriculum: Curriculum = Curriculum()
    minhash: Curriculum | None = Curriculum(steps=7)


class Step(Config):
    name: str
    lr: float = 1e-5
    suite: Literal["nano", "full"] = "nano"


class Tree(Config):
    weight: float = 1.0
    kids: tuple[Tree, ...] = ()


class Filter(Config):
    name: str
    settings: Any


class FilterSettings(Config):
    min_words: int = 50


class Recipe(Config):
    name: str = "nano"
    note: str | None = None
    free: str = ""
    scores: dict[str, float] = {}
    sources: dict[str, Source] = {}
    mix: dict[str, tuple[Share, ...]] = {}
    train: Train = Train()
    posttrain: tuple[Step, ...] = ()
    tree: Tree = Tree()
    limit: Annotated[list[int | float], Field(max_length=3)] = []
    filters: tuple[Filter, ...] = ()

    @field_validator("filters", mode="before")
    @classmethod
    def _filters(cls, value: Any) -> Any:
        def one(entry: Any) -> Any:
            if not isinstance(entry, dict) or len(entry) != 1:
                raise ValueError("a filter is {name: settings}")
            ((name, given),) = entry.items()
            return Filter(name=name, settings=FilterSettings.model_validate(given))

        return [one(entry) for entry in value] if isinstance(value, list) else value

    @model_validator(mode="after")
    def _rows(self) -> Recipe:
        for step in self.posttrain:
            if step.lr == 0:
                raise ValueError(f"posttrain.{step.name}.lr: a step of 0 does nothing")
        for source in self.mix:
            if source not in self.sources:
                raise ValueError(f"mix.{source}: no such source")
        return self


class Write:
    """Writes recipes into a folder and loads them."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, text: str | bytes, *overrides: str, model: type[Config] = Recipe) -> loader.Loaded:
        self.file("r.yaml", text)
        return loader.load(self.folder / "r.yaml", overrides, model=model, search=[self.folder / "shipped"])

    def file(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def error(self, text: str | bytes, *overrides: str) -> str:
        """The message of the refusal, with the folder's name taken out."""
        with pytest.raises(BadInput) as caught:
            self(text, *overrides)
        message = str(caught.value)
        assert "\n" not in message
        return message.replace(f"{self.folder}/", "")
