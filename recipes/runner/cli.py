"""The `gristmill` command. Parses, calls, prints; what it calls is importable without it."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gristmill.kernels.common.errors import BadInput

SHIPPED = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="gristmill",
        description="One YAML takes raw text to a released, verifiable language model.",
        epilog="RECIPE is a YAML file or a shipped name, such as nano. Overrides are written a.b.c=value.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, recipe: bool = False, run: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if recipe:
            sub.add_argument("recipe", metavar="RECIPE", help="a YAML file, or a shipped name such as nano")
            sub.add_argument(
                "overrides", metavar="key=value", nargs="*", help="changes, such as train.optimizer.lr=1e-3"
            )
        if run:
            sub.add_argument("run", metavar="RUN", help="a run's name below --out, or its folder")
        sub.add_argument(
            "--out", type=Path, default=Path("runs"), metavar="DIR", help="where runs live (default: runs)"
        )
        return sub

    sub = command("run", "Carry out a recipe; continues where it stopped.", recipe=True)
    sub.add_argument("--name", help="name of the run (default: the recipe's, plus a hash when there are overrides)")
    sub.add_argument("--until", metavar="STAGE", help="stop after this stage")
    sub.add_argument("--only", metavar="STAGE", help="build just this stage; what it is made from must be built")

    sub = command("plan", "Show what a run would build, train on and cost. Runs nothing.", recipe=True)
    sub.add_argument("--json", action="store_true", help="print one JSON object")

    sub = command("diff", "Show which fields of two recipes differ, and which stages that changes.")
    sub.add_argument("a", metavar="A", help="a recipe")
    sub.add_argument("b", metavar="B", help="another recipe, or overrides of A when it contains `=`")
    sub.add_argument("--json", action="store_true", help="print one JSON object")

    sub = command("verify", "Re-hash everything, derive the data order again, and name each mismatch.")
    sub.add_argument("target", metavar="RUN|BUNDLE", help="a run's name or folder, or a release's folder")

    sub = command("replay", "Show which documents were in a step, or at which steps a document was seen.", run=True)
    what = sub.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, metavar="N", help="a training step, from 0")
    what.add_argument("--doc", metavar="ID", help="a document id, or its beginning")
    sub.add_argument("--json", action="store_true", help="print one JSON object")

    sub = command("eval", "Put any model through a suite of tasks, on a run's validation text.")
    sub.add_argument(
        "model", metavar="MODEL", help="a Hugging Face folder or name, a run (its release), or smollm2-135m"
    )
    sub.add_argument("--suite", default="nano", help="bpb, arithmetic or nano (default: nano)")
    sub.add_argument("--run", default="nano", metavar="RUN", help="whose validation text to use (default: nano)")
    sub.add_argument("--json", action="store_true", help="print one JSON object")

    command("release", "Write the bundle RELEASE.md describes; refuses what does not verify.", run=True)

    sub = command("gc", "Drop artefacts that no run reaches.")
    sub.add_argument("--dry-run", action="store_true", help="only say what would go")
    return top


def _load(recipe: str, overrides: Sequence[str] = ()):
    from gristmill.recipes.runner.loader import load
    from gristmill.recipes.runner.schema import Recipe

    return load(recipe, overrides, model=Recipe, search=[SHIPPED])


def _run(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner import release, runs

    run = runs.execute(_load(args.recipe, args.overrides), args.out, args.name, args.until, args.only)
    if args.until is None and args.only is None:
        release.release(run)
        release.summary(run)
    return 0


def _plan(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner import plan

    answer = plan.plan(_load(args.recipe, args.overrides), args.out)
    print(json.dumps(answer)) if args.json else plan.show(answer)
    return 0


def _diff(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner.diff import diff

    other = _load(args.a, [args.b]) if "=" in args.b else _load(args.b)
    answer = diff(_load(args.a), other, args.out)
    if args.json:
        print(json.dumps(answer))
        return 0
    for key, (a, b) in answer["fields"].items():
        print(f"{key}: {a} -> {b}")
    print("stages that change: " + (", ".join(answer["stages"]) or "none"))
    return 0


def _verify(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner.verify import verify

    problems = verify(args.target, args.out)
    for problem in problems:
        print(problem)
    print(f"{args.target}: " + (f"mismatches: {len(problems)}" if problems else "everything is as it was recorded"))
    return 1 if problems else 0


def _replay(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner import replay, runs

    run = runs.open_run(args.run, args.out)
    if args.step is not None:
        answer = replay.step(run, args.step)
        if args.json:
            print(json.dumps(answer))
            return 0
        first, stop = answer["rows"]
        print(f"step {args.step}: rows {first} to {stop - 1}, phase {', '.join(answer['phases'])}")
        pieces = answer["pieces"]
    else:
        pieces = replay.document(run, args.doc)
        if args.json:
            print(json.dumps(pieces))
            return 0
    for piece in pieces:
        where = f"step {piece['step']} {piece['phase']} " if "step" in piece else ""
        tokens = f"tokens {piece['offset']}:{piece['offset'] + piece['length']}"
        print(f"{where}row {piece['row']}  {piece['source']} {piece['id']} pass {piece['pass']} {tokens}")
    return 0


def _eval(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner import evaluate
    from gristmill.recipes.runner.scores import table

    scores, folder = evaluate.evaluate(args.model, args.suite, args.run, args.out)
    print(json.dumps(scores) if args.json else table({args.model: scores}))
    print(f"records: {folder}", file=sys.stderr)
    return 0


def _release(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner import release, runs

    run = runs.open_run(args.run, args.out)
    release.release(run)
    release.summary(run)
    return 0


def _gc(args: argparse.Namespace) -> int:
    from gristmill.recipes.runner.gc import collect

    dropped = collect(args.out, args.dry_run)
    for name, size in dropped:
        print(f"{name}  {size / 1e6:.1f} MB")
    print(f"{'would drop' if args.dry_run else 'dropped'} {len(dropped)}, {sum(s for _, s in dropped) / 1e6:.1f} MB")
    return 0


COMMANDS = {
    "run": _run,
    "plan": _plan,
    "diff": _diff,
    "verify": _verify,
    "replay": _replay,
    "eval": _eval,
    "release": _release,
    "gc": _gc,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 when the work is done, 1 when something was found wrong, 2 for bad input, 130 on Ctrl-C."""
    args = parser().parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TQDM_DISABLE", "1")  # the libraries' bars; ours have the time left
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return COMMANDS[args.command](args)
    except BadInput as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command continues", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _fail(f"{error.filename or args.out}: no space left on the disk; free some and run again", 2)
        if isinstance(error, PermissionError):
            return _fail(f"{error.filename}: no permission", 2)
        raise
    except RuntimeError as error:
        if type(error).__name__ == "EngineDied":
            return _fail(f"{error}; the same command continues", 1)
        raise


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _fail(line: str, code: int) -> int:
    print(f"gristmill: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
