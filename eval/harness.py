"""lm-eval (0.4.13) over our scorer and generator: any task written for it runs on any model we can load.

A task is lm-eval's own configuration, as a dict or a YAML file; what is ours is the model side. Nothing is cached by
prompt, so no model is ever given another's answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate as harness_evaluate
from lm_eval.tasks import TaskManager

from gristmill.eval.bpb import split_windows
from gristmill.eval.generate import SamplingParams, generate
from gristmill.eval.models import LanguageModel
from gristmill.eval.scorer import forward, score
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.progress import bar

FEWSHOT_SEED = 1234  # lm-eval's own
GENERATED_TOKENS = 256  # when a task does not say
GENERATE_BATCH = 32768  # tokens (prompt and answer) held in the cache at once


class Adapter(LM):
    """lm-eval's model interface on a :class:`LanguageModel`."""

    def __init__(self, lm: LanguageModel, title: str = "eval"):
        super().__init__()
        self.lm, self.title = lm, title
        self.truncated = 0  # requests whose context was cut to fit the model

    def loglikelihood(self, requests: list[Instance], **_: Any) -> list[tuple[float, bool]]:
        with bar(self.title, len(requests)) as advance:
            records = score(self.lm, [request.args for request in requests], advance=advance)
        self.truncated += sum(record.truncated for record in records)
        return [(record.loglikelihood, record.greedy) for record in records]

    def loglikelihood_rolling(self, requests: list[Instance], **_: Any) -> list[float]:
        begin = self.lm.begin or [self.lm.prefix_id]
        texts = self.lm.encode([request.args[0] for request in requests])
        length = self.lm.max_length
        windows = [w for k, ids in enumerate(texts) for w in split_windows(k, [*begin, *ids], length)]
        sums = [0.0] * len(requests)
        with bar(self.title, len(windows)) as advance:
            for window, value, _greedy in forward(self.lm, windows):
                sums[window.owner] += value
                advance(1)
        return sums

    def generate_until(self, requests: list[Instance], **_: Any) -> list[str]:
        answers = [""] * len(requests)
        with bar(self.title, len(requests)) as advance:
            for batch in self._batches(requests):
                self._generate(batch, answers)
                advance(len(batch))
        return answers

    def _batches(self, requests: list[Instance]) -> list[list[tuple[int, list[int], dict]]]:
        """(number, prompt ids, settings) of requests with equal settings and like length, longest first."""
        prompts = self.lm.encode([request.args[0] for request in requests])
        rows = [(k, ids, request.args[1]) for k, (ids, request) in enumerate(zip(prompts, requests, strict=True))]
        rows.sort(key=lambda row: (repr(sorted(row[2].items())), -len(row[1]), row[0]))
        batches: list[list] = []
        for row in rows:
            tokens = len(row[1]) + _settings(row[2])[0].max_tokens
            last = batches[-1] if batches else None
            if not last or last[0][2] != row[2] or (len(last) + 1) * tokens > GENERATE_BATCH:
                batches.append([])
            batches[-1].append(row)
        return batches

    def _generate(self, batch: list[tuple[int, list[int], dict]], answers: list[str]) -> None:
        params, until = _settings(batch[0][2])
        room = self.lm.max_length - params.max_tokens - len(self.lm.begin)
        if room < 1:
            raise BadInput("no room for a prompt", key="max_gen_toks", got=params.max_tokens, file=self.lm.name)
        prompts = []
        for _, ids, _ in batch:
            self.truncated += len(ids) > room
            prompts.append([*self.lm.begin, *ids[-room:]] or [self.lm.prefix_id])
        per_row = [params.model_copy(update={"seed": k}) for k, _, _ in batch]
        rollouts = generate(self.lm.model, prompts, per_row, stop=self.lm.stop, pad_id=self.lm.pad_id)
        for (k, _, _), rollout in zip(batch, rollouts, strict=True):
            text = self.lm.decode(rollout.token_ids)
            for mark in until:
                text = text.split(mark)[0]
            answers[k] = text


def evaluate(lm: LanguageModel, task: dict[str, Any]) -> tuple[dict, list[dict]]:
    """(lm-eval's metrics of ``task``, its samples). ``task`` must bring its data (``custom_dataset``)."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    adapter = Adapter(lm, task["task"])
    # not simple_evaluate: it seeds the global generators, and looks for git and every package's version first
    loaded = TaskManager(include_defaults=False).load([task])
    for entry in loaded["tasks"].values():
        if entry.get_config("num_fewshot") is None:
            entry.set_config(key="num_fewshot", value=0)
        entry.set_fewshot_seed(seed=FEWSHOT_SEED)
    # one bootstrap iteration: enough for closed-form standard errors; 0 turns those off too
    answer = harness_evaluate(lm=adapter, task_dict=loaded, bootstrap_iters=1, log_samples=True)
    metrics = answer["results"][task["task"]]
    return {**metrics, "truncated": adapter.truncated}, answer["samples"][task["task"]]


def dataset(rows: Sequence[dict[str, Any]]) -> Callable[..., dict]:
    """``custom_dataset`` of a task over rows made here."""

    def build(**_: Any) -> dict:
        from datasets import Dataset

        return {"test": Dataset.from_list(list(rows))}

    return build


def _settings(arguments: dict[str, Any]) -> tuple[SamplingParams, list[str]]:
    """lm-eval's generation arguments as ours. Raises BadInput for one we would have to ignore."""
    known = {"until", "max_gen_toks", "do_sample", "temperature", "top_p"}
    if unknown := sorted(set(arguments) - known):
        raise BadInput(
            "a generation setting that is not supported", key="generation_kwargs", got=unknown[0], valid=known
        )
    until = arguments.get("until") or []
    temperature = float(arguments.get("temperature", 1.0 if arguments.get("do_sample") else 0.0))
    params = SamplingParams(
        temperature=temperature if arguments.get("do_sample", temperature > 0) else 0.0,
        top_p=float(arguments.get("top_p", 1.0)),
        max_tokens=int(arguments.get("max_gen_toks", GENERATED_TOKENS)),
    )
    return params, [until] if isinstance(until, str) else list(until)
