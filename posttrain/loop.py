"""The loop every post-training method runs in: rounds of one or more optimizer steps, resumable between rounds.

    out/config.json, model.safetensors, tokenizer ...   the trained model, a Hugging Face folder
    out/metrics.jsonl                one line per round; deterministic
    out/rollouts/round-00000.jsonl   what was generated in a round, and how it was graded; for methods that generate
    out/provenance/timing.jsonl      rates and restarts; not part of the artefact's content
    out/resume/                      while running: the latest checkpoint

What happens in round r is a function of (weights, settings, prompts, seed, r): a resumed run draws what an
uninterrupted one would have drawn, and on a CPU ends in the same bits.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from gristmill.eval import models
from gristmill.eval.models import LanguageModel
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import atomic
from gristmill.kernels.common.progress import bar
from gristmill.posttrain import losses
from gristmill.posttrain.config import StepConfig
from gristmill.posttrain.losses import Normaliser, Sample
from gristmill.train import checkpoint
from gristmill.train.interrupt import Interrupt
from gristmill.train.logs import Metrics, Timing
from gristmill.train.optimizer import moments, restore_moments
from gristmill.train.schedule import factor

MAX_SKIPS = 20  # optimizer steps in a row without a finite gradient after which a run is beyond saving


@dataclass(frozen=True)
class Round:
    """What a method learns from in one round: ``batches``, an optimizer step each, with what to log of them."""

    batches: list[list[Sample]]
    metrics: dict[str, float] = field(default_factory=dict)
    rollouts: list[dict[str, Any]] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)  # added up over the rounds into the ledger


class Method(Protocol):
    """SFT, SePT, ReMax: what to learn from in round ``number``, under the model's present weights."""

    rounds: int
    updates: int  # optimizer steps a round
    normaliser: Normaliser
    temperature: float  # of the distribution that is trained

    def round(self, lm: LanguageModel, number: int) -> Round: ...


def train(lm: LanguageModel, method: Method, config: StepConfig, identity: dict[str, str], out: Path) -> dict[str, Any]:
    """Train ``lm`` in place and write it to ``out``, which may hold a part of the same run. Returns the ledger.

    ``identity``: hashes of settings and data; a partial run of another identity is refused with BadInput. Ctrl-C
    finishes the round, saves, and raises KeyboardInterrupt; a second one raises at once.
    """
    return _Loop(lm, method, config, identity, out).run()


class _Loop:
    def __init__(self, lm: LanguageModel, method: Method, config: StepConfig, identity: dict[str, str], out: Path):
        self.lm, self.method, self.config, self.identity, self.out = lm, method, config, identity, Path(out)
        self.model = lm.model.eval()  # no dropout: what is sampled is what is trained
        self.optimizer = config.optimizer.build(self.model)
        self.done = 0  # rounds
        self.counts: Counter[str] = Counter()
        self.skipped_in_a_row = 0

    @property
    def partial(self) -> Path:
        return self.out / "resume"

    def run(self) -> dict[str, Any]:
        self.out.mkdir(parents=True, exist_ok=True)
        checkpoint.sweep(self.out)
        self._resume()
        method = self.method
        with (
            Metrics(self.out / "metrics.jsonl", self.done) as metrics,
            Interrupt() as interrupt,
            bar(self.config.name, method.rounds, self.done) as advance,
        ):
            timing = Timing(self.out / "provenance" / "timing.jsonl", self.done, self.counts["tokens"], 1)
            saved = time.monotonic()
            while self.done < method.rounds:
                line = self._round()
                metrics.write(line)
                timing.step(self.done, self.counts["tokens"])
                advance(1, "  ".join(f"{k} {line[k]:.3f}" for k in ("loss", "reward") if line.get(k) is not None))
                late = time.monotonic() - saved > self.config.resume_every
                if self.done < method.rounds and (interrupt.requested or late):
                    self._save(metrics)
                    saved = time.monotonic()
                if interrupt.requested:
                    raise KeyboardInterrupt
        models.save(self.lm, self.out)
        shutil.rmtree(self.partial, ignore_errors=True)
        return {"rounds": method.rounds, "steps": method.rounds * method.updates, **dict(sorted(self.counts.items()))}

    def _round(self) -> dict[str, Any]:
        number, method = self.done, self.method
        made = method.round(self.lm, number)
        assert len(made.batches) == method.updates, (len(made.batches), method.updates)
        if made.rollouts:
            with atomic(self.out / "rollouts" / f"round-{number:05d}.jsonl") as tmp:
                lines = (json.dumps(r, ensure_ascii=False, allow_nan=False) + "\n" for r in made.rollouts)
                tmp.write_text("".join(lines), encoding="utf-8")
        steps = [self._step(batch, number * method.updates + k) for k, batch in enumerate(made.batches)]
        self.counts.update(made.counts)
        self.done += 1
        taken = [s for s in steps if not s["skipped"]]
        mean = {key: sum(s[key] for s in taken) / len(taken) if taken else None for key in ("loss", "grad_norm")}
        return {
            "step": number,
            **mean,
            "lr": steps[-1]["lr"],
            "skipped": len(steps) - len(taken),
            "tokens": self.counts["tokens"],
            **made.metrics,
        }

    def _step(self, batch: list[Sample], number: int) -> dict[str, Any]:
        """One optimizer step; ``number`` counts them from 0 over all rounds."""
        config, method = self.config, self.method
        lr = config.optimizer.lr * factor(config.schedule, number, method.rounds * method.updates)
        count = losses.size(batch, method.normaliser)
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for a in range(0, len(batch), config.micro_batch):
            some = batch[a : a + config.micro_batch]
            logp_BR, mask_BR = losses.log_probs(self.model, some, self.lm.pad_id, method.temperature)
            loss = losses.weighted_nll(logp_BR, mask_BR, some, count)
            loss.backward()
            total += loss.item()
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        usable = bool(torch.isfinite(norm))
        if usable:
            torch.nn.utils.clip_grads_with_norm_(parameters, config.optimizer.clip, norm)
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        self.counts.update(tokens=sum(len(s.response) for s in batch), skipped=int(not usable))
        self.skipped_in_a_row = 0 if usable else self.skipped_in_a_row + 1
        if self.skipped_in_a_row == MAX_SKIPS:
            raise BadInput(
                f"{MAX_SKIPS} steps in a row without a finite gradient: lower posttrain.{config.name}.optimizer.lr",
                file=self.out,
            )
        return {"loss": total, "grad_norm": float(norm), "lr": lr, "skipped": not usable}

    def _save(self, metrics: Metrics) -> None:
        metrics.flush()  # a checkpoint must never be ahead of the log it is resumed with
        checkpoint.save(
            self.partial,
            self.done,
            dict(self.model.named_parameters()),
            moments(self.model, self.optimizer),
            {**self.identity, "counts": dict(self.counts), "skipped_in_a_row": self.skipped_in_a_row},
        )
        for older in checkpoint.folders(self.partial)[:-1]:
            shutil.rmtree(older)

    def _resume(self) -> None:
        newest = checkpoint.latest(self.partial)
        if newest is None:
            if checkpoint.folders(self.partial):
                print(f"warning: {self.out}: no complete checkpoint to resume from; starting over", file=sys.stderr)
            shutil.rmtree(self.out / "rollouts", ignore_errors=True)
            return
        for key, value in self.identity.items():
            if newest.state[key] != value:
                raise BadInput(
                    f"the {key} differ from what this run was begun with; use another output folder",
                    file=newest.folder,
                    got=value,
                    expected=newest.state[key],
                )
        weights = newest.weights()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():  # a tied weight is among them once
                parameter.copy_(weights[name])
        restore_moments(self.model, self.optimizer, newest.optimizer())
        self.done = newest.step
        self.counts = Counter(newest.state["counts"])
        self.skipped_in_a_row = newest.state["skipped_in_a_row"]
        for path in sorted((self.out / "rollouts").glob("round-*.jsonl"))[self.done :]:
            path.unlink()
