"""A progress bar with rate and time left, on standard error; silent where nobody is looking."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextlib.contextmanager
def bar(title: str, total: float, done: float = 0) -> Iterator[Callable[..., None]]:
    """Yield ``advance(n=1, note="")``; ``total`` and ``n`` are in any one unit."""
    console = Console(file=sys.stderr)
    progress = Progress(
        TextColumn("  {task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with progress:
        task = progress.add_task(title, total=total, completed=done, note="")

        def advance(n: float = 1, note: str = "") -> None:
            progress.update(task, advance=n, note=note)

        yield advance
