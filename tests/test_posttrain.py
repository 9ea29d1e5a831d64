"""Post-training steps: their rollouts, verifiers and prompts; interrupted equals uninterrupted, bit for bit."""

from __future__ import annotations

import functools
import json
import os

import graders
import pytest
import torch
import toylm
from safetensors.torch import load_file
from transformers import AutoTokenizer

from gristmill.data import problems
from gristmill.eval import generate as generator
from gristmill.eval import models
from gristmill.kernels.common.errors import BadInput
from gristmill.posttrain import loop, rollout, stage
from gristmill.posttrain.prompts import PromptsConfig, build, in_order
from gristmill.posttrain.verify import Verifier

PROBLEM = problems.Problem("chain_sum", "1 + 1 =", "2", {"answer": "2"})


# --- verifiers ------------------------------------------------------------------------------------------------------


def test_a_verifier_survives_what_it_grades():
    answers = ["0.5", "hang", "1.0", "die", "", "raise", "0.25", "1.0"]
    with Verifier(workers=2, seconds=0.5, grader=graders.hostile) as verifier:
        grades = verifier.grade([(PROBLEM, answer) for answer in answers])
        pids = [worker.process.pid for worker in verifier._all]
    assert [g.status for g in grades] == ["ok", "timeout", "ok", "error", "no_answer", "error", "ok", "ok"]
    assert [g.score for g in grades] == [0.5, 0, 1, 0, 0, 0, 0.25, 1]
    assert [g.correct for g in grades] == [False, False, True, False, False, False, False, True]
    assert verifier.counts == {"ok": 4, "timeout": 1, "error": 2, "no_answer": 1}
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_real_grader_knows_right_from_wrong():
    (problem,) = problems.generate(PromptsConfig().generators, 1, 3, "train")
    wrong = str(int(problem.answer) + 1)
    with Verifier(workers=1) as verifier:
        right, other, prose = verifier.grade([(problem, problem.answer), (problem, wrong), (problem, "no idea")])
    assert right.correct and not other.correct and not prose.correct


# --- prompts --------------------------------------------------------------------------------------------------------


def test_every_epoch_asks_everything_once():
    stream = in_order(7, 10, 0, 30)
    assert all(sorted(stream[a : a + 10]) == list(range(10)) for a in (0, 10, 20))
    assert stream[:10] != stream[10:20] != stream[20:]
    assert in_order(8, 10, 0, 10) != stream[:10]
    for start, stop in ((0, 4), (4, 13), (13, 30), (9, 11)):
        assert in_order(7, 10, start, stop) == stream[start:stop]


@pytest.fixture(scope="module")
def lm(mini_run):
    tokenizer = AutoTokenizer.from_pretrained(mini_run.out / "mini" / "release")
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    return models.LanguageModel(toylm.llama(len(tokenizer), 256, **ids), tokenizer, "tiny")


@pytest.fixture(scope="module")
def base(lm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    models.save(lm, folder)
    return folder


def test_prompts_are_never_test_questions_and_end_in_eos(lm):
    asked = build(PromptsConfig(count=40, shots=1), lm, 5)
    assert len({p.problem.id for p in asked}) == 40
    assert not any(problems.is_test(p.problem.question) for p in asked)
    for p in asked:
        text = lm.decode(p.ids)
        assert text.endswith(p.problem.question + "\n") and text.count("=") == 2
        assert p.ids[0] == lm.tokenizer.bos_token_id and lm.tokenizer.bos_token_id not in p.ids[1:]
        assert p.answer[-1] == lm.tokenizer.eos_token_id and lm.decode(p.answer) == p.problem.answer
    again = build(PromptsConfig(count=40, shots=1), lm, 5)
    assert [p.ids for p in again] == [p.ids for p in asked]


# --- rollouts -------------------------------------------------------------------------------------------------------


def test_sampled_and_greedy_come_from_one_call_and_any_batch(lm, monkeypatch):
    calls = []

    def counted(model, prompts, params, **kwargs):
        calls.append(len(prompts))
        return generator.generate(model, prompts, params, **kwargs)

    monkeypatch.setattr(rollout, "generate", counted)
    prompts = [[1, 5, 9], [1], [1, 7, 3], [1, 4]]
    greedy = generator.SamplingParams(max_tokens=4)
    params = [[greedy.model_copy(update={"temperature": 1.0, "seed": k}), greedy] for k in range(4)]
    together = rollout.rollouts(lm, prompts, params, 8)
    assert calls == [8]
    apart = rollout.rollouts(lm, prompts, params, 3)
    assert calls == [8, 2, 2, 2, 2]  # a prompt's rollouts are never separated
    assert [[r.token_ids for r in some] for some in apart] == [[r.token_ids for r in some] for some in together]


# --- steps ----------------------------------------------------------------------------------------------------------

STEPS = {
    "sft": {"method": "sft", "steps": 6, "batch": 4, "optimizer": {"lr": 3e-3}},
    "sept": {"method": "sept", "rounds": 4, "batch": 4, "max_tokens": 5, "optimizer": {"lr": 3e-3}},
    "remax": {
        "method": "remax", "steps": 4, "batch": 3, "samples": 2, "max_tokens": 5, "reward": "graded", "kl": 0.1,
        "verifiers": 1, "optimizer": {"lr": 3e-3},
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def easy_grader(monkeypatch):
    """A tiny model is never right, and without a reward nothing would move."""
    monkeypatch.setattr(stage, "Verifier", functools.partial(Verifier, grader=graders.by_length))


def settings(name: str, **changes) -> stage.PosttrainStage:
    step = {"name": name, "from": "merge", **STEPS[name], **changes}
    return stage.PosttrainStage.model_validate(
        {"step": step, "prompts": {"count": 20, "shots": 0}, "prompts_seed": 3, "seed": 9}
    )


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def outcome(folder) -> dict:
    """Everything a step decides, by file; the log of rates aside."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and "provenance" not in p.parts]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


@pytest.mark.parametrize("name", list(STEPS))
def test_an_interrupted_step_ends_in_the_same_bits(name, base, tmp_path, monkeypatch):
    straight = tmp_path / "straight"
    ledger = stage.run(settings(name), {"model": base}, straight)
    before, after = load_file(base / "model.safetensors"), load_file(straight / "model.safetensors")
    assert before.keys() == after.keys() and any(not torch.equal(before[k], after[k]) for k in before)
    broken = tmp_path / "broken"

    class Killed(Exception):
        pass

    original = loop._Loop._round

    def dies(self):  # after a checkpoint and another round, of which nothing is saved
        if self.done == 3:
            raise Killed
        return original(self)

    monkeypatch.setattr(loop._Loop, "_round", dies)
    with pytest.raises(Killed):
        stage.run(settings(name, resume_every=1e-9), {"model": base}, broken)
    monkeypatch.setattr(loop._Loop, "_round", original)
    assert (broken / "resume" / "step-0000003").is_dir()
    assert stage.run(settings(name), {"model": base}, broken) == ledger
    assert outcome(broken) == outcome(straight)
    assert [line["step"] for line in lines(straight / "metrics.jsonl")] == list(range(ledger["rounds"]))


def test_a_part_of_another_run_is_refused(base, tmp_path, monkeypatch):
    monkeypatch.setattr(loop._Loop, "_round", stop_at(2, loop._Loop._round))
    with pytest.raises(KeyboardInterrupt):
        stage.run(settings("sft", resume_every=1e-9), {"model": base}, tmp_path)
    monkeypatch.undo()
    with pytest.raises(BadInput, match="the settings differ"):
        stage.run(settings("sft", batch=2), {"model": base}, tmp_path)


def stop_at(count, original):
    def round_(self):
        if self.done == count:
            raise KeyboardInterrupt
        return original(self)

    return round_


def test_sft_learns_the_answers_and_where_they_end(base, tmp_path):
    config = settings("sft", steps=120, batch=8)
    config = config.model_copy(update={"prompts": PromptsConfig(count=4, shots=0)})
    stage.run(config, {"model": base}, tmp_path)
    losses = [line["loss"] for line in lines(tmp_path / "metrics.jsonl")]
    assert losses[0] > 4 and losses[-1] < 0.1
    tuned = models.load(tmp_path)
    for p in build(config.prompts, tuned, config.prompts_seed):
        (answer,) = generator.generate(
            tuned.model, [p.ids], [generator.SamplingParams(max_tokens=9)], stop=tuned.stop, pad_id=tuned.pad_id
        )
        assert tuned.decode(answer.token_ids) == p.problem.answer and answer.finish_reason == "stop"


def test_the_smallest_learning_rate_in_use_moves_the_weights(base, tmp_path):
    """1e-7 is below what a bf16 weight can take in; FP32 weights do."""
    config = settings("sft", optimizer={"lr": 1e-7}, schedule={"kind": "wsm", "warmup": 0})
    stage.run(config, {"model": base}, tmp_path)
    before, after = load_file(base / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    matrices = [k for k in before if before[k].ndim == 2 and "embed" not in k]
    moved = sum(int((before[k] != after[k]).sum()) for k in matrices)
    assert moved > 0.9 * sum(before[k].numel() for k in matrices)


def test_remax_logs_what_it_was_rewarded_for(base, tmp_path):
    ledger = stage.run(settings("remax"), {"model": base}, tmp_path)
    assert ledger["responses"] == 4 * 3 * 2 and ledger["prompts"] == 12
    graded = sum(v for k, v in ledger.items() if k.startswith("graded_"))
    assert graded == ledger["responses"] + ledger["prompts"]  # the greedy ones are graded too
    learned = 0
    for k, line in enumerate(lines(tmp_path / "metrics.jsonl")):
        records = lines(tmp_path / "rollouts" / f"round-{k:05d}.jsonl")
        rewards = {kind: [r["reward"] for r in records if r["kind"] == kind] for kind in ("sampled", "greedy")}
        assert len(rewards["sampled"]) == 6 and len(rewards["greedy"]) == 3
        assert line["reward"] == pytest.approx(sum(rewards["sampled"]) / 6)
        assert line["greedy_reward"] == pytest.approx(sum(rewards["greedy"]) / 3)
        learned = line["tokens"]
    assert any(line["reward"] not in (0, 1) for line in lines(tmp_path / "metrics.jsonl"))
    assert learned == ledger["tokens"] <= ledger["responses"] * 5  # no greedy token among them


def test_sept_cools_its_sampler_as_told(base, tmp_path):
    stage.run(settings("sept", sampling={"start": 0.5, "end": 1.0, "anneal": 0.5}), {"model": base}, tmp_path)
    assert [line["tau"] for line in lines(tmp_path / "metrics.jsonl")] == [0.5, 0.75, 1.0, 1.0]


def test_prompts_that_do_not_fit_are_refused(base, tmp_path):
    with pytest.raises(BadInput, match="longer than the model's context"):
        stage.run(settings("remax", max_tokens=250), {"model": base}, tmp_path)
