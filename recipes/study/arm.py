"""One arm in a process of its own: the ordinary `gristmill run`, which stops when the study that started it is gone."""

from __future__ import annotations

import os
import shlex
import signal
import sys

from gristmill.kernels.common.children import follow


def main() -> int:
    """``argv``: the study's process id, then what `gristmill` takes."""
    parent, arguments = int(sys.argv[1]), sys.argv[2:]
    follow(parent, lambda: os.kill(os.getpid(), signal.SIGINT))  # as Ctrl-C would: resumably
    print(f"$ gristmill {shlex.join(arguments)}", file=sys.stderr, flush=True)
    from gristmill.recipes.runner import cli  # seconds of imports: the study may be gone by then

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
