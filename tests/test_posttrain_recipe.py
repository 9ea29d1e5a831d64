"""Post-training in a recipe: each step a stage of its own, evaluated and released like any model."""

from __future__ import annotations

import json

import mini
import pytest
from transformers import AutoModelForCausalLM

OPTIMIZER = {"lr": "1e-3"}
SMALL = {"batch": 2, "max_tokens": 4, "optimizer": OPTIMIZER}
POSTTRAIN = {
    "pack": {"seq_len": 128},
    "train": {**mini.RECIPE["train"], "checkpoints": 3},
    "merge": {"last": 2},
    "prompts": {"arithmetic": {"count": 20, "shots": 0}},
    "posttrain": [
        {"name": "sft", "method": "sft", "from": "merge", "steps": 2, "batch": 2, "optimizer": OPTIMIZER},
        {"name": "sept", "method": "sept", "from": "sft", "rounds": 1, **SMALL},
        {"name": "remax", "method": "remax", "from": "sft", "steps": 1, "verifiers": 1, **SMALL},
    ],
    "eval": [
        {
            "name": name,
            "of": name,
            "suite": "arithmetic",
            "bpb": {"documents": 2},
            "arithmetic": {"items": 3, "shots": 0, "max_tokens": 4},
        }
        for name in ("sft", "sept", "remax")
    ],
    "release": {"model": "remax"},
}


@pytest.fixture(scope="module")
def tuned(mini_copy):
    """The miniature's run with post-training, in a copy of its store: what comes before `pack` is there already."""
    recipe = mini_copy.recipe.with_name("tuned.yaml")
    recipe.write_text(json.dumps({"base": "mini.yaml", "name": "tuned", **POSTTRAIN}), "utf-8")
    mini_copy.gristmill("run", str(recipe))
    return recipe


def stale(mini_copy, recipe, *overrides: str) -> list[str]:
    answer = json.loads(mini_copy.gristmill("plan", str(recipe), *overrides, "--json").stdout)
    return [key for key, entry in answer["stages"].items() if entry["status"] != "cached"]


def test_a_step_reruns_alone_with_what_stands_on_it(mini_copy, tuned):
    assert stale(mini_copy, tuned) == []
    assert stale(mini_copy, tuned, "posttrain.remax.optimizer.lr=1e-4") == ["posttrain.remax", "eval.remax"]
    assert stale(mini_copy, tuned, "posttrain.sept.batch=4") == ["posttrain.sept", "eval.sept"]
    steps = [f"posttrain.{name}" for name in ("sft", "sept", "remax")]
    everything = [*steps, "eval.sft", "eval.sept", "eval.remax"]
    assert stale(mini_copy, tuned, "posttrain.sft.steps=3") == everything
    assert stale(mini_copy, tuned, "prompts.arithmetic.count=21") == everything
    assert stale(mini_copy, tuned, "posttrain.remax.verifiers=3", "posttrain.sft.micro_batch=1") == []


def test_a_step_can_be_released(mini_copy, tuned):
    release = mini_copy.out / "tuned" / "release"
    model = AutoModelForCausalLM.from_pretrained(release)
    assert type(model).__name__ == "Gemma3ForCausalLM"
    made = json.loads((release / "gristmill" / "manifests" / "posttrain.remax.json").read_text("utf-8"))
    weights = next(entry for entry in made["outputs"] if entry["path"] == "model.safetensors")
    sums = (release / "SHA256SUMS").read_text("utf-8")
    assert f"{weights['sha256']}  model.safetensors" in sums
    mini_copy.gristmill("verify", "tuned")
    mini_copy.gristmill("verify", str(release))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("posttrain.sept.from=remax", "posttrain.sept.from: no such model before it 'remax'"),
        ("posttrain.sept.from=stf", "did you mean 'sft'?"),
        ("posttrain.sft.data=arithmetics", "no such set of prompts 'arithmetics'; did you mean 'arithmetic'?"),
        ("posttrain.sept.name=sft", "two models are called 'sft'"),
        ("posttrain.sept.batch=3", "3 prompts cannot be split over 2 updates"),
        ("posttrain.remax.method=remaks", "did you mean 'remax'?"),
        ("posttrain.remax.rounds=3", "unknown key"),
        ("release.model=spt", "release.model: no such model 'spt'; did you mean 'sept'?"),
        ("eval.sept.of=septic", "eval.sept.of: no such model 'septic'; did you mean 'sept'?"),
        ("prompts.arithmetic.generators=[{task: chain_sums}]", "did you mean 'chain_sum'?"),
    ],
)
def test_bad_input_is_one_line(mini_copy, tuned, override, message):
    done = mini_copy.gristmill("plan", str(tuned), override, code=2)
    assert message in done.stderr and done.stderr.count("\n") == 1
