"""Ctrl-C at a moment when the state is whole."""

from __future__ import annotations

import signal
import threading


class Interrupt:
    """Within the context the first SIGINT only sets ``requested``; a second raises KeyboardInterrupt at once.

    Outside the main thread, where no handler can be set, ``requested`` stays False.
    """

    def __enter__(self) -> Interrupt:
        self.requested = False
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
