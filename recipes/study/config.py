"""What a study file says: which recipe, what is varied, over which seeds, what is measured and compared."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from gristmill.kernels.common.config import Config, execution


def _name(text: str) -> str:
    if not text or not all(c.isalnum() or c in "._-" for c in text):
        raise ValueError(f"{text!r} is no name: letters, digits, dot, dash and underscore")
    return text


Name = Annotated[str, AfterValidator(_name)]
Overrides = dict[str, Any]  # key path -> value, each what `gristmill run RECIPE key.path=value` takes


class Variant(Config):
    """One way to do it: what it changes in the recipe, and which evaluation scores it."""

    set: Overrides = Field({}, description="key path -> value, as overrides of the recipe; default none")
    eval: str | None = Field(None, description="name of the evaluation that scores it; null: metric.eval")


class MetricConfig(Config):
    """The one number a run is judged by."""

    eval: str | None = Field(
        None, description="name of the recipe's evaluation the score is from; null: every variant says its own"
    )
    task: str = Field("bpb", description="task of that evaluation's suite")
    part: str | None = Field(None, description="a domain (of bpb) or a group of the task; null: the whole")


class Study(Config):
    """A study: variants of one recipe, each with the same seeds."""

    name: Name = Field(description="name of the study: its folder, and the beginning of its runs' names")
    recipe: str = Field(description="a shipped recipe, or a file relative to the study's")
    seeds: tuple[int, ...] = Field(min_length=1, description="one run of every variant for each (paired)")
    vary: str = Field(
        "seed",
        description="field the seeds go into. `seed`: all that is drawn (subsample, split and so the validation text, "
        "shuffles, first weights), so error bars speak of other data like this; `train.seed`: first weights alone, on "
        "the very same data",
    )
    set: Overrides = Field({}, description="key path -> value, overrides of the recipe common to all variants")
    variants: dict[Name, Variant] = Field({}, description="name -> variant; the first is the baseline")
    factors: dict[Name, dict[Name, Variant]] = Field(
        {}, description="factor -> level -> variant; every combination is a variant, the first levels the baseline"
    )
    metric: MetricConfig = Field(MetricConfig(), description="what is measured")
    compare: tuple[Literal["baseline", "effects", "interaction"], ...] = Field(
        ("baseline",),
        min_length=1,
        description="what is tested. baseline: every other variant against the first. Of two factors with two levels: "
        "effects (each factor, averaged over the other) and interaction",
    )
    alpha: float = Field(0.05, gt=0, lt=1, description="a difference is shown when its p, after Holm, is below (0-1)")
    threads: int = execution(1, ge=1, description="CPU threads a run computes with (count), the same for all")
    jobs: int | None = execution(
        None, ge=1, description="runs at once (count); null: cores / threads, or 1 where training is on a GPU"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        if bool(self.variants) == bool(self.factors):
            raise ValueError("variants: give either variants or factors" + (", not both" if self.variants else ""))
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: a seed appears twice")
        for factor, levels in self.factors.items():
            if len(levels) < 2:
                raise ValueError(f"factors.{factor}: a factor has at least two levels")
        if len(self.variants) == 1:
            raise ValueError("variants: a comparison needs at least two")
        two_by_two = len(self.factors) == 2 and all(len(levels) == 2 for levels in self.factors.values())
        for kind in self.compare:
            if kind != "baseline" and not two_by_two:
                raise ValueError(f"compare: {kind} is of two factors with two levels each")
        if len(set(self.compare)) < len(self.compare):
            raise ValueError("compare: a comparison appears twice")
        return self
