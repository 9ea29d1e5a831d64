"""The `gristmill` command: calls what was asked for and prints; what it calls is importable without it."""

from __future__ import annotations

import argparse
import errno
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gristmill.kernels.common.errors import BadInput
from gristmill.recipes.runner.arguments import parser

SHIPPED = Path(__file__).resolve().parents[1]


def _load(recipe: str, overrides: Sequence[str] = ()):
    from gristmill.recipes.runner.loader import load
    from gristmill.recipes.runner.schema import Recipe

    return load(recipe, overrides, model=Recipe, search=[SHIPPED])


def _run(args: argparse.Namespace) -> int:
    from gristmill.recipes.report import page
    from gristmill.recipes.runner import release, runs

    run = runs.execute(_load(args.recipe, args.overrides), args.out, args.name, args.until, args.only)
    if args.until is None and args.only is None:
        release.release(run)
        page.report([run])
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


def _init(args: argparse.Namespace) -> int:
    from gristmill.recipes.init import write

    recipe, found, notes = write.init(args.data, args.name, args.out_recipe)
    for source in found:
        field = f", text in {source.text_field!r}" if source.text_field else ""
        print(f"{source.name}: {source.format}{field}, language {source.lang}; {write.amount(source)}")
    for note in notes:
        print(f"left out: {note}")
    where = shlex.quote(str(recipe))
    print(
        f"wrote {recipe}: these are guesses, and it runs as it is\nnext: gristmill plan {where}; gristmill run {where}"
    )
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


def _chat(args: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from gristmill.eval import models
    from gristmill.posttrain.chat import COMMANDS, ChatConfig, chat
    from gristmill.recipes.runner.evaluate import resolve

    given = {name: value for name in ChatConfig.model_fields if (value := getattr(args, name)) is not None}
    try:
        config = ChatConfig(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = "--" + str(first["loc"][0]).replace("_", "-")
        raise BadInput("out of range", key=key, got=first["input"], expected=first["msg"].lower()) from None
    lm = models.load(resolve(args.model, args.out))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # only Ctrl-C is about the answer
    people = sys.stdin.isatty()
    if people:
        import readline  # noqa: F401 - line editing and history in input()

        kind = "it has a chat template" if lm.tokenizer.chat_template else "no chat template: it continues your text"
        print(f"{args.model}: {kind}; {COMMANDS}")
    chat(lm, config, lambda: input("> " if people else ""), lambda text: print(text, end="", flush=True))
    return 0


def _report(args: argparse.Namespace) -> int:
    from gristmill.recipes.report import page
    from gristmill.recipes.runner import runs

    print(page.report([runs.open_run(name, args.out) for name in (args.run, args.other) if name]))
    return 0


def _study(args: argparse.Namespace) -> int:
    from gristmill.recipes.study import command, show

    results, folder = command.study(args.study, args.overrides, args.out, SHIPPED)
    print(json.dumps(results)) if args.json else show.show(results)
    print(f"study: {folder}", file=sys.stderr)
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
    "init": _init,
    "verify": _verify,
    "replay": _replay,
    "eval": _eval,
    "chat": _chat,
    "report": _report,
    "study": _study,
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
            return _fail(
                f"{error.filename or getattr(args, 'out', '.')}: no space left on the disk; free some and run again", 2
            )
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
