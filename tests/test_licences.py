"""Licences: every token trained on stands under one, in the plan and in the model card alike."""

from __future__ import annotations

import json

import mini

from gristmill.recipes.runner import loader
from gristmill.recipes.runner.licences import by_licence, trained_tokens
from gristmill.recipes.runner.schema import Recipe

LICENCES = {"english": "CC-BY-SA-4.0", "chinese": "unstated", "python": "CC-BY-SA-4.0"}


def recipe(tmp_path, **changes):
    sources = {name: {**entry, "licence": LICENCES[name]} for name, entry in mini.RECIPE["sources"].items()}
    return mini.write(tmp_path, sources=sources, **changes)


def test_shares_follow_the_tokens_of_all_phases(tmp_path):
    config = loader.load(recipe(tmp_path), model=Recipe, search=[]).config
    ledger = {
        "p1": {"english": {"documents": 1, "tokens": 50}, "python": {"documents": 1, "tokens": 10}},
        "p2": {"english": {"documents": 1, "tokens": 15}},
    }
    tokens = trained_tokens(ledger)
    assert tokens == {"english": 65, "python": 10}  # a repetition is trained on again
    tokens["chinese"] = 225
    assert by_licence(config, tokens) == [
        {"licence": "unstated", "sources": ["chinese"], "tokens": 225, "share": 0.75},
        {"licence": "CC-BY-SA-4.0", "sources": ["english", "python"], "tokens": 75, "share": 0.25},
    ]
    del tokens["chinese"]
    assert by_licence(config, tokens)[1] == {"licence": "unstated", "sources": ["chinese"], "tokens": 0, "share": 0.0}


def test_the_plan_says_unknown_then_expected_then_exact(mini_run, tmp_path):
    path, out = recipe(tmp_path), tmp_path / "runs"

    def licences():
        return json.loads(mini_run.gristmill("plan", str(path), "--json", out=out).stdout)["licences"]

    assert [(e["licence"], e["tokens"], e["share"]) for e in licences()] == [
        ("CC-BY-SA-4.0", None, None),
        ("unstated", None, None),
    ]
    assert "unknown" in mini_run.gristmill("plan", str(path), out=out).stdout
    mini_run.gristmill("run", str(path), "--until", "tokens", out=out)
    expected = {e["licence"]: e["tokens"] for e in licences()}
    mini_run.gristmill("run", str(path), "--until", "mix", out=out)
    found = {e["licence"]: e["tokens"] for e in licences()}
    ledger = mini.artefacts(out)["mix"]["ledger"]
    assert sum(found.values()) == sum(entry["tokens"] for phase in ledger.values() for entry in phase.values())
    assert found["unstated"] == sum(phase["chinese"]["tokens"] for phase in ledger.values() if "chinese" in phase)
    for licence, tokens in found.items():
        assert 0.5 < expected[licence] / tokens < 2  # `top` takes the longer documents
    assert abs(sum(e["share"] for e in licences()) - 1) < 1e-9
    assert "licences of the mix" in mini_run.gristmill("plan", str(path), out=out).stdout


def test_the_card_gives_each_licence_its_tokens(mini_run):
    from gristmill.recipes.runner import card, runs

    run = runs.open_run("mini", mini_run.out)
    total = sum(trained_tokens(run.artefact("mix").manifest["ledger"]).values())
    lines = card.licence_table(run, run.recipe())
    assert lines[2:] == [f"| CC0-1.0 | english, chinese, python | {total:,} | 100.0 % |"]
