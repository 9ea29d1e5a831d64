"""Pretraining: packed rows, each once and in order, into equally spaced checkpoints.

    out/checkpoints/step-*/      numbered checkpoints (the last also holds the optimizer state)
    out/model.json               model configuration, vocabulary, row length, precision
    out/metrics.jsonl            one line per step; deterministic
    out/provenance/timing.jsonl  rates and restarts; not part of the artefact's content
    out/resume/                  while running: the latest time-triggered checkpoint

Step s consumes rows [s R, min((s + 1) R, rows)), R = batch_tokens / seq_len, so a position is a number of steps
and resuming is arithmetic. On a CPU in FP32 an interrupted run ends in the same bits as an uninterrupted one.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from gristmill.data.shards import Packed
from gristmill.kernels.common.config import Config, execution, result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import digest, file_hash, write_json
from gristmill.kernels.common.progress import bar
from gristmill.train import checkpoint
from gristmill.train.interrupt import Interrupt
from gristmill.train.load import CARD
from gristmill.train.logs import Metrics, Timing
from gristmill.train.model import Decoder, ModelConfig, initialise
from gristmill.train.optimizer import AdamW, OptimizerConfig, moments, restore_moments
from gristmill.train.precision import Precision, pick_device, resolve
from gristmill.train.schedule import WSM, ScheduleConfig, factor
from gristmill.train.step import forward_backward

MAX_SKIPS = 20  # steps in a row without a usable gradient after which a run is beyond saving
MICRO_TOKENS = {"cpu": 4096, "cuda": 32768}  # default micro-batch; 1,024 to 4,096 are equally fast on a CPU


class TrainConfig(Config):
    """The training loop."""

    batch_tokens: int = Field(ge=1, description="tokens a step, padding included (count); a multiple of seq_len")
    precision: Precision = Field("auto", description="matrix products; auto: bf16 where the device has it, else fp32")
    optimizer: OptimizerConfig = Field(AdamW(), description="update rule")
    schedule: ScheduleConfig = Field(WSM(), description="learning rate over the steps")
    checkpoints: int = Field(16, ge=1, description="equally spaced checkpoints kept (count), the last at the end")
    max_tokens: int | None = Field(
        None, ge=1, description="stop after so many tokens (count); null: all that is packed"
    )
    seed: int | None = Field(None, ge=0, description="of the initial weights; null: derived from the recipe's seed")
    device: str = execution("auto", description="auto (a GPU if there is one), cpu, cuda, cuda:1 ...")
    micro_batch: int | None = execution(
        None, ge=1, description="rows a forward pass takes (count); null: 4,096 tokens on a CPU, 32,768 on a GPU"
    )
    threads: int | None = execution(None, ge=1, description="CPU threads (count); null: PyTorch's choice")
    log_every: int = execution(10, ge=1, description="steps between lines of timing.jsonl (count)")
    resume_every: float = execution(60, gt=0, description="time between checkpoints made only to resume from (s)")

    def resolved(self) -> TrainConfig:
        """With ``precision`` made concrete: what is hashed must not depend on the machine that reads it."""
        return self.model_copy(update={"precision": resolve(self.precision, pick_device(self.device))})


class PretrainConfig(Config):
    model: ModelConfig = Field(description="the recipe's block")
    train: TrainConfig = Field(description="the recipe's block")
    seed: int = Field(ge=0, description="of the initial weights")


def steps_of(rows: int, per_step: int) -> int:
    """Steps that consume ``rows`` rows; the last may be smaller."""
    return -(-rows // per_step)


def rows_of_step(step: int, rows: int, per_step: int) -> tuple[int, int]:
    """Rows [start, stop) of step ``step`` (from 0)."""
    return step * per_step, min((step + 1) * per_step, rows)


def checkpoint_steps(steps: int, count: int) -> list[int]:
    """After how many steps each checkpoint is made: exactly ``steps // count`` apart, the last at ``steps``."""
    if count > steps:
        raise BadInput("more checkpoints than steps", key="train.checkpoints", got=count, expected=f"at most {steps}")
    return [steps - k * (steps // count) for k in reversed(range(count))]


def run(
    config: PretrainConfig,
    inputs: dict[str, Path],
    out: Path,
    *,
    on_checkpoint: Callable[[int, Path], None] | None = None,
) -> dict:
    """``inputs``: {"pack": a packed folder}. ``out`` may hold a part of the same run: it is continued.

    ``on_checkpoint(steps done, checkpoint folder)`` is called once a numbered checkpoint is safe on the disk; what
    it raises ends the run, which can then be continued. Raises BadInput for a batch that is no multiple of the
    rows' length, a vocabulary that cannot hold the ids, data or a configuration that differs from what ``out`` was
    begun with, and a run whose gradients are unusable 20 steps in a row.
    """
    threads = torch.get_num_threads()
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    try:
        return _Run(config, Packed(inputs["pack"]), Path(out), on_checkpoint).run()
    finally:
        torch.set_num_threads(threads)


class _Run:
    """One process's part of a run: everything that changes from step to step."""

    def __init__(self, config: PretrainConfig, packed: Packed, out: Path, on_checkpoint: Callable | None):
        train = config.train
        self.config, self.packed, self.out, self.on_checkpoint = config, packed, out, on_checkpoint
        self.device = pick_device(train.device)
        self.precision = resolve(train.precision, self.device)
        if train.batch_tokens % packed.seq_len:
            raise BadInput(
                "not a multiple of the rows' length",
                key="train.batch_tokens",
                got=train.batch_tokens,
                expected=f"a multiple of {packed.seq_len}",
            )
        self.per_step = train.batch_tokens // packed.seq_len
        self.micro = train.micro_batch or max(1, MICRO_TOKENS.get(self.device.type, 4096) // packed.seq_len)
        self.rows = packed.rows
        if train.max_tokens is not None:
            self.rows = min(self.rows, train.max_tokens // packed.seq_len)
        if self.rows == 0:
            raise BadInput("not one row to train on", file=packed.folder, key="train.max_tokens", got=train.max_tokens)
        self.steps = steps_of(self.rows, self.per_step)
        self.numbered = set(checkpoint_steps(self.steps, train.checkpoints))
        vocab_size = config.model.vocab_size or packed.vocab_size
        if vocab_size < packed.vocab_size:
            raise BadInput(
                "too small for the packed ids",
                key="model.vocab_size",
                got=vocab_size,
                expected=f"at least {packed.vocab_size}",
            )
        self.identity = {
            "data": _data_hash(packed),
            "config": digest({**result_fields(config), "precision": self.precision}),
        }
        self.model = initialise(Decoder(config.model, vocab_size), config.seed).to(self.device)
        self.optimizer = train.optimizer.build(self.model)
        self.step = 0  # steps done
        self.counts = {"supervised_tokens": 0, "skipped": 0, "skipped_in_a_row": 0}

    @property
    def done(self) -> Path:
        return self.out / "checkpoints"

    @property
    def partial(self) -> Path:
        return self.out / "resume"

    def run(self) -> dict:
        self.out.mkdir(parents=True, exist_ok=True)
        checkpoint.sweep(self.out)
        self._resume()
        write_json(
            self.out / CARD,
            {
                "model": self.config.model.model_dump(mode="json"),
                "vocab_size": self.model.vocab_size,
                "seq_len": self.packed.seq_len,
                "precision": self.precision,
                "pad_id": self.packed.meta["pad_id"],
                "eos_id": self.packed.meta["eos_id"],
            },
        )
        with (
            Metrics(self.out / "metrics.jsonl", self.step) as self.metrics,
            Interrupt() as interrupt,
            bar("pretrain", self.rows * self.packed.seq_len, self._tokens(self.step)) as advance,
        ):
            log = self.out / "provenance" / "timing.jsonl"
            timing = Timing(log, self.step, self._tokens(self.step), self.config.train.log_every)
            saved = time.monotonic()
            while self.step < self.steps:
                line = self._step(interrupt)
                if line is None:  # Ctrl-C in mid-step: the weights still are those of the last whole step
                    self._save(self.partial)
                    raise KeyboardInterrupt
                self.metrics.write(line)
                rate = timing.step(self.step, self._tokens(self.step))
                loss = "skipped" if line["skipped"] else f"loss {line['loss']:.3f}"
                advance(self._tokens(self.step) - self._tokens(self.step - 1), f"{loss}  {rate:,.0f} tok/s")
                if self.step in self.numbered:
                    folder = self._save(self.done)
                    saved = time.monotonic()
                    if self.on_checkpoint:
                        self.on_checkpoint(self.step, folder)
                elif time.monotonic() - saved > self.config.train.resume_every:
                    self._save(self.partial)
                    saved = time.monotonic()
            if interrupt.requested:
                raise KeyboardInterrupt
        checkpoint.drop_optimizer(self.done, self.steps)
        shutil.rmtree(self.partial, ignore_errors=True)
        return {
            "tokens": self._token_ledger(),
            "steps": self.steps,
            "skipped": self.counts["skipped"],
            "rows": self.rows,
            "supervised_tokens": self.counts["supervised_tokens"],
        }

    def _step(self, interrupt: Interrupt) -> dict[str, Any] | None:
        """One optimizer step and its line for metrics.jsonl; None when interrupted before the update."""
        train = self.config.train
        start, stop = rows_of_step(self.step, self.rows, self.per_step)
        batches = [self._rows(a, min(a + self.micro, stop)) for a in range(start, stop, self.micro)]
        lr = train.optimizer.lr * factor(train.schedule, self.step, self.steps)
        self.optimizer.zero_grad(set_to_none=True)
        result = forward_backward(self.model, batches, self.precision, stop=lambda: interrupt.requested)
        if result is None:
            return None
        loss, supervised = result
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        usable = supervised > 0 and bool(torch.isfinite(norm))
        if usable:
            torch.nn.utils.clip_grads_with_norm_(parameters, train.optimizer.clip, norm)
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        self.step += 1
        self.counts["supervised_tokens"] += supervised
        self.counts["skipped"] += not usable
        self.counts["skipped_in_a_row"] = 0 if usable else self.counts["skipped_in_a_row"] + 1
        if self.counts["skipped_in_a_row"] == MAX_SKIPS:
            raise BadInput(
                f"{MAX_SKIPS} steps in a row without a usable gradient (no supervised token, or not finite), up to "
                f"step {self.step - 1}: lower train.optimizer.lr or look at the data",
                file=self.out,
            )
        return {
            "step": self.step - 1,
            "tokens": self._tokens(self.step),
            "rows": [start, stop],
            "phases": self._phases(start, stop),
            "supervised": supervised,
            "loss": loss if usable else None,
            "lr": lr,
            "grad_norm": float(norm) if usable else None,
            "skipped": not usable,
        }

    def _rows(self, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, segments = self.packed.batch(start, stop)
        return torch.from_numpy(tokens).to(self.device), torch.from_numpy(segments).to(self.device)

    def _phases(self, start: int, stop: int) -> list[str]:
        phases = self.packed.phases
        return [p["name"] for p in phases if p["first_row"] < stop and start < p["first_row"] + p["rows"]]

    def _tokens(self, steps: int) -> int:
        """Tokens (padding included) that ``steps`` steps consume."""
        return min(steps * self.per_step, self.rows) * self.packed.seq_len

    def _token_ledger(self) -> dict[str, int]:
        """Padding included: packed = seen + left (by max_tokens)."""
        packed, seen = self.packed.rows * self.packed.seq_len, self.rows * self.packed.seq_len
        return {"packed": packed, "seen": seen, "left": packed - seen}

    def _save(self, folder: Path) -> Path:
        self.metrics.flush()  # a checkpoint must never be ahead of the log it is resumed with
        path = checkpoint.save(
            folder,
            self.step,
            dict(self.model.named_parameters()),
            moments(self.model, self.optimizer),
            {"row": min(self.step * self.per_step, self.rows), "steps": self.steps, **self.identity, **self.counts},
        )
        checkpoint.drop_optimizer(self.done, self.step)
        for older in checkpoint.folders(self.partial)[:-1] if folder == self.partial else []:
            shutil.rmtree(older)
        return path

    def _resume(self) -> None:
        """Continue from the newest complete checkpoint that has an optimizer state, of either folder."""
        found = [next((c for c in checkpoint.complete(f) if c.has_optimizer), None) for f in (self.done, self.partial)]
        newest = max((c for c in found if c), key=lambda c: c.step, default=None)
        begun = checkpoint.folders(self.done) + checkpoint.folders(self.partial)
        if newest is None:
            if begun:
                print(f"warning: {self.out}: no complete checkpoint to resume from; starting over", file=sys.stderr)
            return
        for key, what in (("data", "the packed data"), ("config", "the configuration")):
            if newest.state[key] != self.identity[key]:
                raise BadInput(
                    f"{what} is not what this run was begun with; use another output folder",
                    file=newest.folder,
                    got=self.identity[key],
                    expected=newest.state[key],
                )
        self.model.load_state_dict(newest.weights(), strict=True)
        restore_moments(self.model, self.optimizer, newest.optimizer())
        self.step = newest.step
        self.counts = {key: newest.state[key] for key in self.counts}


def _data_hash(packed: Packed) -> str:
    """sha256 over pack.json and every shard's bytes: a changed byte of equal size must not pass for the same data.

    Costs one read of the shards at each start (1 GB/s or so), beside training that reads them anyway."""
    names = ["pack.json", *(f"{s['name']}{ext}" for s in packed.meta["shards"] for ext in (".tokens", ".parquet"))]
    return digest({name: file_hash(packed.folder / name) for name in names})
