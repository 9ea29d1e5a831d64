"""Child processes that never outlive their parent, however it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

POLL = 0.5  # seconds between looks at the parent


def join(parent: int) -> None:
    """A worker's first act: leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    follow(parent, lambda: os._exit(1))


def follow(parent: int, end: Callable[[], object]) -> None:
    """Call ``end`` from a thread once ``parent`` (a process id) is this process's parent no more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        end()

    threading.Thread(target=watch, daemon=True).start()
