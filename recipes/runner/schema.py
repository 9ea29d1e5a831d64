"""A recipe: the rooms' own configuration models nested, and the checks that need more than one of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from gristmill.data.clean import CleanConfig
from gristmill.data.corpus import CorpusConfig
from gristmill.data.dedup import DedupConfig
from gristmill.data.engine import EngineConfig
from gristmill.data.mix import PhaseConfig
from gristmill.data.pack import PackConfig
from gristmill.data.score import ScoreConfig, names
from gristmill.data.selection import Selector
from gristmill.data.sources import SourceConfig
from gristmill.data.split import SplitConfig
from gristmill.data.tokenizer import TokenizerConfig, TrainTokenizer
from gristmill.data.tokens import TokensConfig
from gristmill.eval.suites import EvalConfig
from gristmill.kernels.common.config import Config, execution
from gristmill.kernels.common.errors import nearest
from gristmill.posttrain.prompts import PromptsConfig
from gristmill.posttrain.stage import Step
from gristmill.train.merge import MergeConfig
from gristmill.train.model import ModelConfig
from gristmill.train.pretrain import TrainConfig

MODELS = ("pretrain", "merge")  # stages that make a model; posttrain steps do too, under their own names


class ReleaseConfig(Config):
    """What `gristmill release` publishes."""

    model: str = Field("merge", description="the model that is released: pretrain, merge, or a posttrain step")
    licence: str = Field("Apache-2.0", description="SPDX identifier the weights are released under")


class Recipe(Config):
    """Everything that decides a model, and how the machine at hand computes it."""

    schema_version: Literal[1] = Field(1, description="version of the recipe format this file is written in")
    name: str = Field(pattern=r"^[\w.-]+$", description="name of the recipe and of its runs")
    seed: int = Field(0, ge=0, description="every stage's seed is derived from it")
    scale: float = Field(1.0, gt=0, le=1, description="share of every source kept, by content hash (0-1]")
    engine: EngineConfig = execution(EngineConfig(), description="where the data stages run")
    sources: dict[str, SourceConfig] = Field(min_length=1, description="source name -> where it comes from")
    corpus: CorpusConfig = Field(CorpusConfig(), description="layout of the document tables")
    clean: CleanConfig = Field(CleanConfig(), description="document filters")
    dedup: DedupConfig = Field(DedupConfig(), description="duplicates and near-duplicates")
    score: ScoreConfig = Field(ScoreConfig(), description="quality columns")
    split: SplitConfig = Field(SplitConfig(), description="held-out text")
    tokenizer: TokenizerConfig = Field(TrainTokenizer(), description="train a tokenizer, or take one")
    tokens: TokensConfig = Field(TokensConfig(), description="what is put around a document")
    phases: dict[str, PhaseConfig] = Field(min_length=1, description="phases in order")
    mix: dict[str, tuple[Selector, ...]] = Field(min_length=1, description="source -> one selector per phase")
    pack: PackConfig = Field(PackConfig(), description="documents into rows")
    model: ModelConfig = Field(description="the decoder")
    train: TrainConfig = Field(description="the training loop")
    merge: MergeConfig = Field(MergeConfig(), description="checkpoints into one model")
    prompts: dict[str, PromptsConfig] = Field(
        {"arithmetic": PromptsConfig()}, description="name -> problems that posttrain steps learn from"
    )
    posttrain: tuple[Step, ...] = Field((), description="steps after pretraining, in order, each a model by its name")
    eval: tuple[EvalConfig, ...] = Field((), description="evaluations, each of one model")
    release: ReleaseConfig = Field(ReleaseConfig(), description="what is published")

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        for source, cells in self.mix.items():
            if source not in self.sources:
                raise ValueError(_unknown(f"mix.{source}", source, self.sources, "source"))
            if len(cells) != len(self.phases):
                raise ValueError(
                    f"mix.{source}: {len(cells)} selectors for {len(self.phases)} phases ({', '.join(self.phases)})"
                )
            if any(cell.kind == "top" for cell in cells) and self.score_of(source) is None:
                raise ValueError(f"mix.{source}: `top` needs a score: add a scorer or sources.{source}.score")
        unused = [source for source in self.sources if source not in self.mix]
        if unused:
            raise ValueError(f"sources.{unused[0]}: no row in mix; give it one (`none` in every phase to leave it out)")
        for number, phase in enumerate(self.phases):
            if all(cells[number].kind == "none" for cells in self.mix.values()):
                raise ValueError(f"phases.{phase}: every source is `none`")
        models = [*MODELS]
        for step in self.posttrain:
            if step.name in models:
                raise ValueError(f"posttrain: two models are called {step.name!r}")
            if step.origin not in models:
                raise ValueError(_unknown(f"posttrain.{step.name}.from", step.origin, models, "model before it"))
            if step.data not in self.prompts:
                raise ValueError(_unknown(f"posttrain.{step.name}.data", step.data, self.prompts, "set of prompts"))
            models.append(step.name)
        if self.release.model not in models:
            raise ValueError(_unknown("release.model", self.release.model, models, "model"))
        seen: set[str] = set()
        for entry in self.eval:
            if entry.of not in models:
                raise ValueError(_unknown(f"eval.{entry.name}.of", entry.of, models, "model"))
            if entry.name in seen:
                raise ValueError(f"eval: two evaluations are called {entry.name!r}")
            seen.add(entry.name)
        if self.train.batch_tokens % self.pack.seq_len:
            raise ValueError(
                f"train.batch_tokens: {self.train.batch_tokens} is not a multiple of pack.seq_len ({self.pack.seq_len})"
            )
        if self.merge.last > self.train.checkpoints:
            raise ValueError(f"merge.last: {self.merge.last} of only {self.train.checkpoints} (train.checkpoints)")
        size = self.model.vocab_size
        if size is not None and self.tokenizer.kind == "train" and size < self.tokenizer.vocab_size:
            raise ValueError(f"model.vocab_size: {size} cannot hold the tokenizer's {self.tokenizer.vocab_size} ids")
        return self

    def score_of(self, source: str) -> str | None:
        """The column that ranks a source: its own, else the first configured scorer, else none."""
        return self.sources[source].score or next(iter(names(self.score)), None)

    def stage_of(self, model: str) -> str:
        """The stage that makes a model, by the name recipes give it."""
        return model if model in MODELS else f"posttrain.{model}"


def _unknown(key: str, got: str, valid, what: str) -> str:
    close = nearest(got, valid)
    hint = f"did you mean {close!r}?" if close else f"valid: {', '.join(valid)}"
    return f"{key}: no such {what} {got!r}; {hint}"
