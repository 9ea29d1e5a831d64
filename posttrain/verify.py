"""Verifiers: how right an answer is, judged in processes that can be killed.

A grader parses what a model wrote, and some text makes a parser run for minutes. So each answer is graded in a worker
process under a wall-time limit; a worker that overruns is killed and replaced, its answer scores 0 as ``timeout``,
and the others never notice. Results keep the order of the answers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from gristmill.data import problems
from gristmill.kernels.common.children import join
from gristmill.kernels.common.errors import BadInput

Status = Literal["ok", "no_answer", "timeout", "error"]
LIMIT = 5.0  # seconds an answer may take to grade
START = 120.0  # seconds a worker may take to start: it imports the generators
LONGEST = 10_000  # characters of an answer that are looked at


@dataclass(frozen=True)
class Grade:
    """``score`` in [0, 1], 1 only for a right answer; 0 unless the status is ``ok``."""

    score: float
    status: Status

    @property
    def correct(self) -> bool:
        return self.score == 1.0


class Verifier:
    """A pool of grading processes; a context manager, so that none is left behind.

    ``grader(problem, answer) -> score`` must be importable by name; it runs in the workers only.
    """

    def __init__(self, workers: int = 2, seconds: float = LIMIT, grader: Callable[..., float] = problems.score):
        self.seconds, self.grader, self.counts = seconds, grader, Counter()
        self._size = workers
        self._idle: queue.SimpleQueue = queue.SimpleQueue()
        self._all: list[_Worker] = []

    def __enter__(self) -> Verifier:
        self._all = [_Worker(self.grader) for _ in range(self._size)]
        for worker in self._all:
            self._idle.put(worker)
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._all:
            worker.kill()

    def grade(self, answers: Sequence[tuple[problems.Problem, str]]) -> list[Grade]:
        """A grade for every (problem, answer); ``counts`` adds up their statuses. Nothing an answer says raises."""
        with ThreadPoolExecutor(self._size) as threads:
            grades = list(threads.map(self._one, answers))
        self.counts.update(grade.status for grade in grades)
        return grades

    def _one(self, pair: tuple[problems.Problem, str]) -> Grade:
        problem, answer = pair
        if not answer.strip():
            return Grade(0.0, "no_answer")
        worker = self._idle.get()
        try:
            return worker.grade(problem, answer[:LONGEST], self.seconds)
        finally:
            self._idle.put(worker)


class _Worker:
    """One process, replaced when it must be killed."""

    def __init__(self, grader: Callable[..., float]):
        self.grader = grader
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process that runs torch's threads may hang
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self.grader, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False

    def grade(self, problem: problems.Problem, answer: str, seconds: float) -> Grade:
        if not self.ready:
            if not self.pipe.poll(START) or self._receive() != "ready":
                raise BadInput(f"a verifier did not start (exit code {self.process.exitcode})")
            self.ready = True
        with contextlib.suppress(OSError):
            self.pipe.send((problem, answer))
        if not self.pipe.poll(seconds):
            self.kill()
            self._start()
            return Grade(0.0, "timeout")
        score = self._receive()
        if score is None:  # it died: out of memory, or the parser crashed the interpreter
            self.kill()
            self._start()
            return Grade(0.0, "error")
        return Grade(score, "ok") if score >= 0 else Grade(0.0, "error")

    def _receive(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Any, grader: Callable[..., float], parent: int) -> None:
    """A worker's life: (problem, answer) in, score or -1 out, until the pipe closes."""
    join(parent)
    if grader is problems.score:
        problems.warm_up()  # must not count against the first answer
    pipe.send("ready")
    while True:
        try:
            problem, answer = pipe.recv()
        except EOFError:
            return
        try:
            score = float(grader(problem, answer))
        except BaseException:  # what some parsers raise on their own timeouts is no Exception
            score = -1.0
        pipe.send(score)
