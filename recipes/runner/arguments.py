"""What the `gristmill` command takes, and what `--help` says of it."""

from __future__ import annotations

import argparse
from pathlib import Path

ABOUT = """One YAML takes raw text to a released, verifiable language model.

  gristmill run nano                              the whole path, on a CPU, in minutes
  gristmill run nano train.optimizer.lr=1e-3      the same with one number changed; only what it touches runs again
  gristmill init --data my_texts                  a recipe for your own files
"""
WORDS = """RECIPE is a YAML file or the name of a shipped recipe, such as nano. key=value changes one field, as in
train.optimizer.lr=1e-3. A run is named after its recipe and lives in runs/; what is built is never built again.
`gristmill COMMAND --help` says more."""
MODEL = "a Hugging Face folder or name, a run (its release), or smollm2-135m"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="gristmill", description=ABOUT, epilog=WORDS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str,
        text: str,
        example: str = "",
        recipe: bool = False,
        run: bool = False,
        json: bool = False,
        out: bool = True,
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example: {example}" if example else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if recipe:
            sub.add_argument("recipe", metavar="RECIPE", help="a YAML file, or a shipped name such as nano")
            sub.add_argument(
                "overrides", metavar="key=value", nargs="*", help="changes, such as train.optimizer.lr=1e-3"
            )
        if run:
            sub.add_argument("run", metavar="RUN", help="a run's name below --out, or its folder")
        if json:
            sub.add_argument("--json", action="store_true", help="print one JSON object")
        if out:
            sub.add_argument(
                "--out", type=Path, default=Path("runs"), metavar="DIR", help="where runs live (default: runs)"
            )
        return sub

    sub = command(
        "run",
        "Carry out a recipe; continues where it stopped.",
        "gristmill run nano train.optimizer.lr=1e-3 --until merge",
        recipe=True,
    )
    sub.add_argument("--name", help="name of the run (default: the recipe's, plus a hash when there are overrides)")
    sub.add_argument("--until", metavar="STAGE", help="build this stage and what it is made from, nothing else")
    sub.add_argument("--only", metavar="STAGE", help="build just this stage; what it is made from must be built")

    command(
        "plan",
        "Show what a run would build, train on and cost. Runs nothing.",
        "gristmill plan nano scale=1",
        recipe=True,
        json=True,
    )

    sub = command(
        "diff",
        "Show which fields of two recipes differ, and which stages that changes.",
        "gristmill diff nano nano-uniform",
        json=True,
    )
    sub.add_argument("a", metavar="A", help="a recipe")
    sub.add_argument("b", metavar="B", help="another recipe, or overrides of A when it contains `=`")

    sub = command(
        "init",
        "Look at a folder of text and write a recipe for it that runs.",
        "gristmill init --data my_texts && gristmill run my_texts.yaml",
        out=False,
    )
    sub.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of text; .gz, .zst, .bz2 are fine")
    sub.add_argument("--name", help="name of the recipe (default: the folder's)")
    sub.add_argument("--out-recipe", type=Path, metavar="FILE", help="where to write it (default: NAME.yaml)")

    sub = command("verify", "Re-hash everything, derive the data order again, and name each mismatch.")
    sub.add_argument("target", metavar="RUN|BUNDLE", help="a run's name or folder, or a release's folder")

    sub = command(
        "replay",
        "Show which documents were in a step, or at which steps a document was seen.",
        "gristmill replay nano --step 200",
        run=True,
        json=True,
    )
    what = sub.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, metavar="N", help="a training step, from 0")
    what.add_argument("--doc", metavar="ID", help="a document id, or its beginning")

    sub = command(
        "eval",
        "Put any model through a suite of tasks, on a run's validation text.",
        "gristmill eval smollm2-135m --suite bpb",
        json=True,
    )
    sub.add_argument("model", metavar="MODEL", help=MODEL)
    sub.add_argument("--suite", default="nano", help="bpb, arithmetic or nano (default: nano)")
    sub.add_argument("--run", default="nano", metavar="RUN", help="whose validation text to use (default: nano)")

    sub = command(
        "chat",
        "Talk to a model: one with a chat template answers, any other continues your text.",
        "gristmill chat nano --temperature 0.7",
    )
    sub.add_argument("model", metavar="MODEL", help=MODEL)
    for field, kind, text in (
        ("temperature", float, "0 always takes the likeliest token (default: 0.8)"),
        ("top-p", float, "draw from the likeliest tokens with this mass, 0 to 1 (default: 0.95)"),
        ("max-tokens", int, "longest answer, in tokens (default: 200)"),
        ("seed", int, "the same seed and lines get the same answers (default: 0)"),
    ):
        sub.add_argument(f"--{field}", type=kind, metavar="N", help=text)

    sub = command(
        "report",
        "Write one self-contained HTML page of a run, or of two side by side.",
        "gristmill report nano nano-uniform",
        run=True,
    )
    sub.add_argument("other", metavar="RUN", nargs="?", help="a second run to show beside it")

    sub = command(
        "study",
        "Run a recipe's variants with several seeds each, and compare them in pairs; continues where it stopped.",
        "gristmill study curriculum seeds=[1,2] jobs=1",
        json=True,
    )
    sub.add_argument("study", metavar="STUDY", help="a YAML file, or a shipped study such as curriculum")
    sub.add_argument("overrides", metavar="key=value", nargs="*", help="changes to the study, such as jobs=1")

    command("release", "Write the bundle RELEASE.md describes; refuses what does not verify.", run=True)

    sub = command("gc", "Drop artefacts that no run reaches.")
    sub.add_argument("--dry-run", action="store_true", help="only say what would go")
    return top
