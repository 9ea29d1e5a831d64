"""Carry out a study: as many arms at once as the machine has cores for, each a process; resumable like its runs.

An arm starts when none of the stages it still lacks is being built by another, so what arms share is built once and
no core waits for it. Finished arms are recognised in the store and cost nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json
from gristmill.kernels.common.progress import bar
from gristmill.recipes.runner.runs import RUN_FILE, say
from gristmill.recipes.runner.store import Artefact, Store, fingerprint
from gristmill.recipes.study.config import Study
from gristmill.recipes.study.expand import Arm
from gristmill.train.precision import pick_device
from gristmill.train.pretrain import steps_of

POLL = 0.5  # seconds between looks at the children
TRAINING = 0.9  # share of an arm's work that is training, for the progress bar alone


def jobs_of(study: Study, arms: Sequence[Arm]) -> int:
    """Arms at once: what the study says, else cores / threads; one where they would share a GPU."""
    if study.jobs is not None:
        return study.jobs
    if pick_device(arms[0].loaded.config.train.device).type != "cpu":
        return 1
    return max(1, cores() // study.threads)


def cores() -> int:
    """Cores this process may use (count)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def built(arm: Arm, store: Store, known: dict[str, Artefact] | None = None) -> dict[str, Artefact]:
    """Node key -> artefact, of every stage of the arm in the store; what is ``known`` is not looked at again."""
    found = dict(known or {})
    for key, node in arm.nodes.items():
        if key not in found and all(source in found for source in node.inputs.values()):
            have = store.find(node, {name: found[source].content for name, source in node.inputs.items()})
            if have is not None:
                found[key] = have
    return found


def execute(study: Study, arms: Sequence[Arm], root: Path, logs: Path) -> None:
    """Run every arm that is not done. Raises BadInput naming the first failed one and its log, once the rest is done;
    on Ctrl-C all running arms save what they have, then KeyboardInterrupt goes on."""
    store = Store(root)
    have = {arm.run: built(arm, store) for arm in arms}
    waiting = [arm for arm in arms if not _done(arm, have[arm.run], root)]
    done, at_once = len(arms) - len(waiting), jobs_of(study, arms)
    say(f"{len(arms)} runs, {done} of them done; {at_once} at once, threads: {study.threads} each")
    running: list[_Child] = []
    failed: list[_Child] = []
    with bar("runs", len(arms), done) as advance:
        shown = float(done)
        try:
            while waiting or running:
                if len(running) < at_once:
                    for arm in _startable(waiting, running, have)[: at_once - len(running)]:
                        waiting.remove(arm)
                        running.append(_Child(arm, study, root, logs))
                time.sleep(POLL)
                for arm in [*waiting, *(child.arm for child in running)]:
                    have[arm.run] = built(arm, store, have[arm.run])
                for child in [c for c in running if c.process.poll() is not None]:
                    running.remove(child)
                    child.close()
                    done += 1
                    if child.process.returncode:
                        failed.append(child)
                    say(f"{str(child.arm):<40} {'failed' if child.process.returncode else f'{child.seconds:7.1f} s'}")
                now = done + sum(child.share(have[child.arm.run]) for child in running)
                advance(max(0.0, now - shown), "; ".join(f"{c.arm} {c.stage}" for c in running))
                shown = max(shown, now)
        finally:
            _stop(running)
    if failed:
        child = failed[0]
        more = f" (+{len(failed) - 1} more)" if len(failed) > 1 else ""
        raise BadInput(f"{child.arm}: the run failed (exit code {child.process.returncode}): {child.last_line()}{more}",
                       file=child.log)  # fmt: skip


def _startable(waiting: list[Arm], running: list[_Child], have: dict[str, dict]) -> list[Arm]:
    """Arms that lack no stage which a running one, or one listed before, is going to build."""

    def lacks(arm: Arm) -> set[str]:
        return {print_ for key, print_ in arm.prints.items() if key not in have[arm.run]}

    busy = {print_ for child in running for print_ in lacks(child.arm)}
    found = []
    for arm in waiting:
        if not lacks(arm) & busy:
            found.append(arm)
            busy |= lacks(arm)
    return found


def _done(arm: Arm, have: dict[str, Artefact], root: Path) -> bool:
    """Whether the arm's run is there and remembers just the artefact that its recipe would make today."""
    path = Path(root) / arm.run / RUN_FILE
    if arm.target not in have or not path.is_file():
        return False
    return read_json(path)["stages"].get(arm.target) == have[arm.target].name


def _stop(running: list[_Child]) -> None:
    """End the children as Ctrl-C would, and wait until they have saved."""
    for child in running:
        child.process.send_signal(signal.SIGINT)
    for child in running:
        child.process.wait()
        child.close()


class _Child:
    """A running arm."""

    def __init__(self, arm: Arm, study: Study, root: Path, logs: Path):
        logs.mkdir(parents=True, exist_ok=True)
        self.arm, self.root, self.log = arm, Path(root), logs / f"{arm.variant}--{arm.seed}.log"
        self.store, self.began = Store(root), time.monotonic()
        self.stage, self.steps = "", None
        self.file: TextIO = open(self.log, "w", encoding="utf-8")  # noqa: SIM115 - closed with the child
        command = [sys.executable, "-m", "gristmill.recipes.study.arm", str(os.getpid()), "run"]
        command += [str(arm.loaded.file.resolve()), *arm.overrides]
        command += ["--name", arm.run, "--until", arm.target, "--out", str(self.root)]
        # evaluation and libraries take their number of threads from the environment
        threads = {name: str(study.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.file,
            stderr=self.file,
            env={**os.environ, **threads, "PYTHONSAFEPATH": "1"},
            start_new_session=True,  # Ctrl-C reaches the study, which passes it on once
        )

    def close(self) -> None:
        self.seconds = time.monotonic() - self.began
        self.file.close()

    def share(self, have: dict[str, Artefact]) -> float:
        """How much of the arm's work is done, 0 to 1; sets ``stage`` to where it is."""
        self.stage = next((key for key in self.arm.nodes if key not in have), "")
        others = sum(key in have for key in self.arm.nodes if key != "pretrain") / max(1, len(self.arm.nodes) - 1)
        trained = 1.0 if "pretrain" in have else self._trained(have)
        return TRAINING * trained + (1 - TRAINING) * others

    def _trained(self, have: dict[str, Artefact]) -> float:
        """Share of the training steps that are done."""
        if "pack" not in have:
            return 0.0
        train, node = self.arm.loaded.config.train, self.arm.nodes["pretrain"]
        if self.steps is None:
            pack = read_json(have["pack"].folder / "pack.json")
            rows = min(pack["rows"], (train.max_tokens or sys.maxsize) // pack["seq_len"])
            self.steps = steps_of(rows, train.batch_tokens // pack["seq_len"])
            final = self.store.path(node, fingerprint(node, {"pack": have["pack"].content}))
            self.metrics = final.with_name(f"{final.name}.partial") / "metrics.jsonl"
        try:
            steps = self.metrics.read_bytes().count(b"\n")
        except OSError:
            return 0.0
        self.stage = f"step {steps}/{self.steps}"
        return min(1.0, steps / self.steps)

    def last_line(self) -> str:
        lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1].removeprefix("gristmill: ") if lines else "no output"
