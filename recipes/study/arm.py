"""One arm in a process of its own: the ordinary `gristmill run`, which stops when the study that started it is gone."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time


def main() -> int:
    """``argv``: the study's process id, then what `gristmill` takes."""
    parent, arguments = int(sys.argv[1]), sys.argv[2:]
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    print(f"$ gristmill {shlex.join(arguments)}", file=sys.stderr, flush=True)
    from gristmill.recipes.runner import cli  # seconds of imports: the study may be gone by then

    return cli.main(arguments)


def _follow(parent: int) -> None:
    """As Ctrl-C would, end resumably when the parent is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
