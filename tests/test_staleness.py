"""Staleness: a changed field makes exactly its dependants stale; an execution field makes none."""

from __future__ import annotations

import json

import pytest

ALL = ["corpus", "clean", "dedup", "score", "split", "tokenizer", "tokens", "mix", "pack", "pretrain", "merge"]
EVALS = ["eval.raw", "eval.merged"]


def statuses(mini_run, *overrides: str) -> dict[str, str]:
    done = mini_run.gristmill("plan", str(mini_run.recipe), *overrides, "--json")
    return {key: entry["status"] for key, entry in json.loads(done.stdout)["stages"].items()}


@pytest.mark.parametrize(
    ("override", "first"),
    [
        ("scale=0.9", "corpus"),
        ("sources.english.licence=MIT", "corpus"),
        ("clean.filters=[{length: {min_chars: 16}}]", "clean"),
        ("dedup.minhash.threshold=0.8", "dedup"),
        ("score.heuristics.full_length=1000", "score"),
        ("split.validation=0.2", "split"),
        ("tokenizer.vocab_size=410", "tokenizer"),
        ("tokens.bos=false", "tokens"),
        ("mix.english=[all, all, top .50, top .30, top .2]", "mix"),
        ("phases.p5.order=shuffle", "mix"),
        ("pack.seq_len=128", "pack"),
        ("model.layers=2", "pretrain"),
        ("train.optimizer.lr=1e-3", "pretrain"),
        ("train.seed=5", "pretrain"),
        ("merge.last=2", "merge"),
    ],
)
def test_a_result_field_makes_its_dependants_stale(mini_run, override, first):
    after = ALL[ALL.index(first) :]
    stale = set(after) | {"eval.merged"} | ({"eval.raw"} if first != "merge" else set())
    if first == "tokens":  # the evaluations read the tokenizer and the model, and the model is new
        assert "tokenizer" not in stale
    answer = statuses(mini_run, override)
    assert {key for key, status in answer.items() if status == "stale"} == stale
    assert {status for key, status in answer.items() if key not in stale} <= {"cached"}


def test_an_evaluation_field_touches_that_evaluation(mini_run):
    answer = statuses(mini_run, "eval.raw.bpb.documents=7")
    assert [key for key, status in answer.items() if status != "cached"] == ["eval.raw"]


@pytest.mark.parametrize(
    "override",
    ["engine.partitions=3", "train.micro_batch=1", "train.threads=2", "train.device=cpu"],
)
def test_an_execution_field_makes_nothing_stale(mini_run, override):
    assert set(statuses(mini_run, override).values()) == {"cached"}


def test_a_changed_input_byte_makes_everything_stale(mini_run):
    path = mini_run.recipe.parent / "raw" / "chinese.txt"
    before = path.read_bytes()
    try:
        path.write_bytes(before.replace("。".encode(), "！".encode(), 1))
        assert set(statuses(mini_run).values()) == {"stale"}
    finally:
        path.write_bytes(before)
    assert set(statuses(mini_run).values()) == {"cached"}


def test_another_name_is_new_not_stale(mini_run):
    answer = statuses(mini_run, "name=other", "seed=99")
    assert set(answer.values()) == {"new"}


def test_diff_names_fields_and_stages(mini_run):
    done = mini_run.gristmill("diff", str(mini_run.recipe), "merge.last=2", "--json")
    assert json.loads(done.stdout) == {"fields": {"merge.last": [3, 2]}, "stages": ["merge", "eval.merged"]}
