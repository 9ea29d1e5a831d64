"""The generator: greedy equals the library's own, draws depend on a rollout's seed alone, stops are honoured."""

from __future__ import annotations

import pytest
import torch
import toylm

from gristmill.eval.generate import SamplingParams, generate
from gristmill.kernels.common.errors import BadInput


@pytest.fixture(scope="module")
def model():
    return toylm.llama()


PROMPTS = [[1, 5, 9], [1], [1, 7, 3, 22, 30, 8]]


def test_greedy_equals_the_library(model):
    greedy = SamplingParams(max_tokens=12)
    ours = generate(model, PROMPTS, [greedy] * 3, stop={2}, pad_id=0)
    for prompt, rollout in zip(PROMPTS, ours, strict=True):
        theirs = model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=2, pad_token_id=0
        )
        assert rollout.token_ids == theirs[0, len(prompt) :].tolist()


def test_logprobs_are_those_of_a_plain_forward(model):
    params = [SamplingParams(temperature=1.3, seed=k, max_tokens=8) for k in range(3)]
    for prompt, rollout in zip(PROMPTS, generate(model, PROMPTS, params, stop=set(), pad_id=0), strict=True):
        ids = torch.tensor([prompt + rollout.token_ids])
        logp = torch.log_softmax(model(ids).logits[0].float(), -1)
        at = range(len(prompt) - 1, ids.shape[1] - 1)
        expected = [float(logp[t, ids[0, t + 1]]) for t in at]
        assert rollout.logprobs == pytest.approx(expected, abs=1e-4)
        assert rollout.finish_reason == "length" and len(rollout.token_ids) == 8


def test_a_prompt_asked_twice_is_read_once(model, monkeypatch):
    """As sampled and greedy answers are: the shared reading changes no token."""
    greedy = SamplingParams(max_tokens=8)
    params = [greedy.model_copy(update={"temperature": 0.9, "seed": k}) for k in range(5)] + [greedy]
    prompts = [PROMPTS[0], PROMPTS[2], PROMPTS[0], PROMPTS[0], PROMPTS[2], PROMPTS[2]]
    alone = [generate(model, [i], [p], stop={2}, pad_id=0)[0] for i, p in zip(prompts, params, strict=True)]
    rows = []
    forward = type(model).forward

    def counted(self, *args, **kwargs):
        rows.append(kwargs["input_ids"].shape)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", counted)
    together = generate(model, prompts, params, stop={2}, pad_id=0)
    assert rows[0] == (2, 6) and rows[1] == (6, 1)
    assert [r.token_ids for r in together] == [r.token_ids for r in alone]


def test_a_rollout_depends_on_its_own_seed(model):
    one = SamplingParams(temperature=1.0, seed=4, max_tokens=10)
    alone = generate(model, PROMPTS[:1], [one], stop=set(), pad_id=0)[0]
    among = generate(model, PROMPTS[::-1], [one] * 3, stop=set(), pad_id=0)[2]
    assert alone.token_ids == among.token_ids
    other = generate(model, PROMPTS[:1], [one.model_copy(update={"seed": 5})], stop=set(), pad_id=0)[0]
    assert other.token_ids != alone.token_ids


def test_stop_and_nucleus(model):
    greedy = generate(model, PROMPTS[:1], [SamplingParams(max_tokens=10)], stop=set(), pad_id=0)[0]
    stopped = generate(model, PROMPTS[:1], [SamplingParams(max_tokens=10)], stop={greedy.token_ids[3]}, pad_id=0)[0]
    cut = greedy.token_ids.index(greedy.token_ids[3]) + 1
    assert stopped.token_ids == greedy.token_ids[:cut] and stopped.finish_reason == "stop"
    narrow = SamplingParams(temperature=1.0, top_p=1e-6, max_tokens=10)
    assert generate(model, PROMPTS[:1], [narrow], stop=set(), pad_id=0)[0].token_ids == greedy.token_ids


def test_an_empty_prompt_is_refused(model):
    with pytest.raises(BadInput, match="at least one token"):
        generate(model, [[]], [SamplingParams()], stop=set(), pad_id=0)
