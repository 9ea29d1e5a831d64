"""Suites: scores are what the records say, items are fair and repeatable, and broken plumbing is no score."""

from __future__ import annotations

import json
import re

import pytest

from gristmill.data import problems
from gristmill.eval import arithmetic, cloze, harness, humaneval, models, sandbox, suites
from gristmill.kernels.common.files import read_json
from gristmill.recipes.runner import evaluate, runs


@pytest.fixture(scope="module")
def material(mini_run):
    return evaluate.material_of(runs.open_run("mini", mini_run.out), mini_run.out)


@pytest.fixture(scope="module")
def scored(mini_run, material, tmp_path_factory):
    config = suites.EvalConfig(
        name="x", of="merge", suite="arithmetic", arithmetic={"items": 6, "shots": 1, "max_tokens": 3}
    )
    lm = models.load(mini_run.artefact("merge"), mini_run.artefact("tokenizer"))
    out = tmp_path_factory.mktemp("eval")
    return suites.evaluate(lm, config, material, out), out


def records(folder, task):
    return [json.loads(line) for line in (folder / "records" / f"{task}.jsonl").read_text("utf-8").splitlines()]


def test_scores_are_what_the_records_say(scored):
    scores, out = scored
    assert set(scores["tasks"]) == set(suites.SUITES["arithmetic"])
    rows = records(out, "arithmetic")
    assert scores["tasks"]["arithmetic"]["value"] == sum(r["correct"] for r in rows) / len(rows)
    documents = records(out, "bpb")
    for domain, score in scores["domains"].items():
        mine = [d for d in documents if d["domain"] == domain]
        expected = sum(d["bits"] for d in mine) / sum(d["bytes"] for d in mine)
        assert score["bits_per_byte"] == pytest.approx(expected, abs=1e-5)
    assert read_json(out / "scores.json")["tasks"] == scores["tasks"]


def test_a_task_asks_the_very_prompt_it_was_given(mini_run, material, monkeypatch):
    """No template adds or drops a line end: one too many, and a model that knows the answer begins a new question."""
    lm = models.load(mini_run.artefact("merge"), mini_run.artefact("tokenizer"))
    asked = []

    def heard(adapter, requests, **_):
        asked.extend(request.args[0] for request in requests)
        return [""] * len(requests)

    monkeypatch.setattr(harness.Adapter, "generate_until", heard)
    arithmetic.measure(lm, arithmetic.ArithmeticConfig(items=3, shots=1), material)
    assert len(asked) == 3
    for text in asked:
        shot, _, question = text.rpartition("\n\n")
        assert question.endswith("=\n") and question.count("\n") == 1
        assert shot.count("\n") == 1 and shot.split("\n")[1].lstrip("-").isdigit()


def test_the_stage_and_the_command_agree(mini_run, material):
    """`gristmill eval RUN` on the release gives the scores the run's own stage gave to the merged model."""
    result = mini_run.gristmill("eval", "mini", "--suite", "bpb", "--run", "mini", "--json")
    stage = read_json(mini_run.artefact("eval.merged") / "scores.json")
    assert json.loads(result.stdout)["domains"] == stage["domains"]


def test_cloze_items_are_fair(material):
    rows = cloze.build(cloze.ClozeConfig(items=60), material)
    assert len(rows) == 60
    texts = {d: t for source in material.sources() for d, t in material.documents(source, 1000)}
    for row in rows:
        text, gold = texts[row["id"]], row["words"][row["gold"]]
        assert row["context"] + row["options"][row["gold"]] in text
        assert len(set(row["words"])) == cloze.OPTIONS
        tails = {option.removeprefix(word) for option, word in zip(row["options"], row["words"], strict=True)}
        assert len(tails) == 1  # the same text follows each
        for word in set(row["words"]) - {gold}:
            assert not re.search(rf"(?<![\w'-]){re.escape(word)}(?![\w'-])", text) or row["kind"] == "chinese"
    golds = [row["gold"] for row in rows]
    assert all(golds.count(k) > 60 / cloze.OPTIONS / 3 for k in range(cloze.OPTIONS))  # no favourite place


def test_cloze_items_follow_the_seed(material):
    from dataclasses import replace

    config = cloze.ClozeConfig(items=40)
    assert cloze.build(config, material) == cloze.build(config, material)
    assert cloze.build(config, material) != cloze.build(config, replace(material, seed=material.seed + 1))


def test_answers_are_graded_whole():
    (problem,) = problems.generate(arithmetic.EASY, 1, 3, "test")
    assert arithmetic.exact(problem, arithmetic.answer_of(f"\n {problem.answer} \nand more"))
    for wrong in ("", f"{problem.answer}1", f"about {problem.answer}", "x"):
        assert not arithmetic.exact(problem, arithmetic.answer_of(wrong))


ROW = {
    "task_id": "T/0",
    "prompt": "def add(a, b):\n",
    "canonical_solution": "    return a + b\n",
    "test": "def check(f):\n    assert f(1, 2) == 3\n",
    "entry_point": "add",
}


def test_function_completion_is_graded_by_running_it(mini_run, material, monkeypatch):
    monkeypatch.setattr(humaneval, "load", lambda config, material: ([ROW], {"files": []}))
    lm = models.load(mini_run.artefact("merge"), mini_run.artefact("tokenizer"))
    result = humaneval.measure(lm, humaneval.HumanEvalConfig(max_tokens=4), material)
    assert result.value == 0 and result.extra["humaneval_controls"]["known_good"] == "1 of 1 pass"
    assert sandbox.run(humaneval.program(ROW, "    return b + a\n")).passed
    assert not sandbox.run(humaneval.program(ROW, "    return a - b\n")).passed


@pytest.mark.parametrize("status", ["passed", "failed"])
def test_broken_plumbing_is_no_score(monkeypatch, status):
    monkeypatch.setattr(sandbox, "run", lambda program, limits: sandbox.Outcome(status))
    with pytest.raises(RuntimeError, match="not a score"):
        humaneval.check_controls([ROW], sandbox.DEFAULT)


def test_unknown_names_get_one_line(mini_run):
    assert "did you mean 'bpb'" in mini_run.gristmill("eval", "mini", "--suite", "bbp", code=2).stderr
    assert "did you mean 'mini'" in mini_run.gristmill("eval", "minni", "--run", "mini", code=2).stderr
    assert "no such run" in mini_run.gristmill("eval", "mini", "--run", "other", code=2).stderr
