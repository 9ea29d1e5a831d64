"""The inside of ``eval/sandbox.py``: limits itself, then runs the program it is told. Imports nothing of gristmill.

Reads one JSON object {"word", "program", "limits"} from standard input; says "<word> <status> <detail>" at the end.
"""

import ast
import builtins
import contextlib
import json
import os
import resource
import sys

# What solutions of programming problems are made of; nothing that reaches files, processes or the network.
# fmt: off
ALLOWED = frozenset((
    "__future__", "abc", "array", "base64", "bisect", "calendar", "cmath", "collections", "copy", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math",
    "numbers", "operator", "random", "re", "statistics", "string", "textwrap", "time", "typing", "unicodedata",
))
# fmt: on
REFUSED = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.kill",
    "os.putenv",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.chmod",
    "os.chown",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.listdir",
    "os.scandir",
    "os.walk",
    "os.chdir",
    "os.fwalk",
    "shutil.",
    "ctypes.",
    "mmap.",
    "signal.",
    "pty.",
    "glob.",
    "fcntl.",
    "urllib.",
    "http.",
    "ftplib.",
    "smtplib.",
    "sqlite3.",
    "webbrowser.",
    "syslog.",
    "tempfile.",
    "sys._current_frames",
    "sys.settrace",
    "sys.setprofile",
    "gc.get_objects",
    "gc.get_referrers",
    "gc.get_referents",
    "cpython._PySys_ClearAuditHooks",
)  # fmt: skip


class Forbidden(BaseException):
    """Not an Exception: a program's ``except Exception`` must not swallow it."""


def without_network() -> None:
    """A network namespace of our own, where the kernel allows; the audit hook refuses sockets either way."""
    try:
        import ctypes

        ctypes.CDLL(None).unshare(0x10000000 | 0x40000000)  # CLONE_NEWUSER | CLONE_NEWNET
    except (ImportError, OSError, AttributeError):
        pass


def limit(limits: dict) -> None:
    size = limits["memory_mb"] << 20
    for what, value in (
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_FSIZE, 1 << 20),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # e.g. no RLIMIT_AS on macOS
            resource.setrlimit(what, (value, value))


def guard() -> None:
    """From here on no file but the standard library's modules, no process, no network, no foreign function."""
    library = tuple(p for p in sys.path if p)
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def hook(event: str, args: tuple) -> None:
        if event == "open":
            path, mode, flags = args
            inside = isinstance(path, str) and path.startswith(library)
            if not inside or (flags or 0) & writing:
                raise Forbidden(f"open {path!r}"[:80])
        elif event == "os.listdir":  # the import system looks into the library's folders
            if not str(args[0]).startswith(library):
                raise Forbidden(event)
        elif event.startswith(REFUSED):
            raise Forbidden(event)

    sys.addaudithook(hook)


def importer(name, globals=None, locals=None, fromlist=(), level=0, real=builtins.__import__):
    """The program's own imports go by the list; what those modules import themselves is theirs."""
    asked_by = (globals or {}).get("__name__")
    if asked_by in (None, "__main__") and name.partition(".")[0] not in ALLOWED:
        raise Forbidden(f"import {name}")
    return real(name, globals, locals, fromlist, level)


def main() -> None:
    told = json.loads(sys.stdin.buffer.read())
    word, program, say = told["word"], told["program"], os.write
    del told["word"]
    without_network()
    limit(told["limits"])
    sys.setrecursionlimit(2000)
    status, detail = "passed", ""
    try:
        code = compile(ast.parse(program), "program", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        status, detail = "syntax", f"{type(error).__name__}: {error}"
    else:
        builtins.__import__ = importer
        scope = {"__name__": "__main__", "__builtins__": builtins}
        guard()
        try:
            exec(code, scope)
        except Forbidden as error:
            status, detail = "forbidden", str(error)
        except MemoryError:
            status, detail = "memory", "MemoryError"
        except BaseException as error:  # SystemExit too: leaving early is not passing
            status, detail = "failed", f"{type(error).__name__}: {str(error)[:200]}"
    line = f"\n{word} {status} {' '.join(detail.split())}\n"
    say(1, line.encode(errors="replace"))
    os._exit(0)


if __name__ == "__main__":
    main()
