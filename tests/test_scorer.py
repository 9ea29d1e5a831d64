"""The scorer and lm-eval's view of it: what is scored, and that nothing but the request decides."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill.eval import harness, models
from gristmill.eval.bpb import split_windows
from gristmill.eval.scorer import score
from gristmill.kernels.common.errors import BadInput

REQUESTS = [
    ("River stone", " market engine."),
    ("", "Garden letter"),
    ("的一是", "在不了有"),
    ("def river_0(stone):\n    ", 'return stone + 1\n"""'),
    ("mountain " * 100, "teacher"),
]


@pytest.fixture(scope="module")
def lm(mini_run):
    return models.load(mini_run.artefact("merge"), mini_run.artefact("tokenizer"))


def plain(lm, context: str, continuation: str) -> float:
    """The same from one unbatched forward, for requests whose join falls between two tokens."""
    a, b = lm.encode([context, continuation])
    assert a + b == lm.encode([context + continuation])[0]
    ids = [*lm.begin, *a, *b]
    with torch.inference_mode():
        logp = torch.log_softmax(lm.model(torch.tensor([ids])).logits[0].double(), -1)
    return sum(float(logp[k - 1, ids[k]]) for k in range(len(ids) - len(b), len(ids)))


def test_it_is_the_sum_of_a_plain_forward(lm):
    for request in REQUESTS[:3]:
        assert score(lm, [request])[0].loglikelihood == pytest.approx(plain(lm, *request), abs=1e-4)


def test_a_record_depends_on_its_request_alone(lm):
    together = score(lm, REQUESTS)
    for request, record in zip(REQUESTS, together, strict=True):
        (alone,) = score(lm, [request])
        assert alone.loglikelihood == pytest.approx(record.loglikelihood, abs=1e-4)
        assert (alone.tokens, alone.greedy, alone.truncated) == (record.tokens, record.greedy, record.truncated)
    backwards = score(lm, REQUESTS[::-1])[::-1]
    for a, b in zip(together, backwards, strict=True):
        assert a.loglikelihood == pytest.approx(b.loglikelihood, abs=1e-4)


def test_a_shared_beginning_is_read_once_and_changes_nothing(lm, monkeypatch):
    """Options of items, in items of their own length, among requests that share nothing."""
    contexts = ["River stone market engine garden letter.\n" * 2, "Winter mountains and a teacher in a market.\n" * 2]
    options = ["market", "a garden letter and more", "的一是在", "x"]
    requests = [
        REQUESTS[0],
        *((c, o) for c in contexts for o in options),
        REQUESTS[3],
        *((contexts[0], o) for o in "ab"),
    ]
    alone = [score(lm, [request])[0] for request in requests]
    read = []
    forward = type(lm.model).forward

    def counted(self, *args, **kwargs):
        read.append(tuple(kwargs["input_ids"].shape))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(lm.model), "forward", counted)
    together = score(lm, requests)
    assert [rows for rows, _ in read] == [2, 3, 10]  # two alone; three beginnings, ten endings
    for a, b in zip(alone, together, strict=True):
        assert a.loglikelihood == pytest.approx(b.loglikelihood, abs=1e-4)
        assert (a.tokens, a.greedy, a.truncated) == (b.tokens, b.greedy, b.truncated)


@given(st.integers(0, 40), st.integers(1, 20))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_split_of_a_text_loses_a_token(lm, cut, length):
    text = "River stone。market_的一 engine\n\n  garden. Letter 42 winter mountains"
    context, continuation = text[:cut], text[cut : cut + length]
    (record,) = score(lm, [(context, continuation)])
    assert record.tokens >= 1 and math.isfinite(record.loglikelihood)


def test_a_context_that_does_not_fit_loses_its_left_end(lm):
    full, tail = "mountain " * 100, "mountain " * 3
    cut, kept = score(lm, [(full, "teacher"), (tail, "teacher")])
    assert cut.truncated and not kept.truncated and cut.tokens == kept.tokens


def test_an_empty_continuation_is_an_error(lm):
    with pytest.raises(ValueError, match="request 1"):
        score(lm, [("a", "b"), ("a", "")])


def test_windows_score_every_token_once():
    for n in (2, 7, 8, 9, 30, 31):
        ids = list(range(n))
        windows = split_windows(3, ids, 8)
        scored = [i for w in windows for i in w.ids[w.first :]]
        assert scored == ids[1:] and all(len(w.ids) <= 8 and w.first >= 1 for w in windows)


def test_lm_eval_sees_what_its_own_backend_computes(lm):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(pretrained=lm.model, tokenizer=lm.tokenizer, batch_size=2, add_bos_token=True, max_length=64)
    # not the fourth: where a token spans the join theirs conditions on ids that are not the text's
    requests = [Instance("loglikelihood", {}, r, k) for k, r in enumerate(REQUESTS[:3])]
    for ours, other in zip(harness.Adapter(lm).loglikelihood(requests), theirs.loglikelihood(requests), strict=True):
        assert ours[0] == pytest.approx(other[0], abs=1e-3) and ours[1] == other[1]
    theirs = HFLM(pretrained=lm.model, tokenizer=lm.tokenizer, add_bos_token=False, max_length=64)  # else it has two
    rolling = [Instance("loglikelihood_rolling", {}, ("River stone market engine.",), 0)]
    assert harness.Adapter(lm).loglikelihood_rolling(rolling)[0] == pytest.approx(
        theirs.loglikelihood_rolling(rolling)[0], abs=1e-3
    )


def test_generation_stops_at_what_the_task_says(lm):
    from lm_eval.api.instance import Instance

    free = {"until": [], "max_gen_toks": 12, "do_sample": False}
    prompts = ["River stone", "的一是", "def "]
    adapter = harness.Adapter(lm)
    full = adapter.generate_until([Instance("generate_until", {}, (p, free), k) for k, p in enumerate(prompts)])
    mark = full[0][2:4]
    cut = adapter.generate_until([Instance("generate_until", {}, ("River stone", {**free, "until": [mark]}), 0)])
    assert cut == [full[0].split(mark)[0]] and len(cut[0]) < len(full[0])
    with pytest.raises(BadInput, match="num_beams"):
        adapter.generate_until([Instance("generate_until", {}, ("a", {**free, "num_beams": 4}), 0)])
