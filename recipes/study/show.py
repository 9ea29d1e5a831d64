"""A study's results as tables: for the terminal, and as Markdown for whoever is told about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def tables(results: dict[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, columns, rows) of what was scored and of what was compared."""
    n, alpha = len(results["study"]["seeds"]), results["study"]["alpha"]
    seeds = [f"seed {seed}" for seed in results["study"]["seeds"]]
    scores = []
    for name, e in results["variants"].items():
        values = [f"{arm['value']:.4f}" for arm in results["arms"] if arm["variant"] == name]
        scores.append([name, *values, f"{e['mean']:.4f}", _number(e["stderr"])])
    differences = [
        [
            f"{c['left']} − {c['right']}",
            f"{c['mean']:+.4f}",
            _number(c["stderr"]),
            "-" if c["low"] is None else f"{c['low']:+.4f} to {c['high']:+.4f}",
            "-" if c["p"] is None else f"{c['p']:.3g}",
            "-" if c["p_holm"] is None else f"{c['p_holm']:.3g}" + " *" * c["shown"],
        ]
        for c in results["comparisons"]
    ]
    direction = "higher is better" if results["higher_is_better"] else "lower is better"
    title = f"{results['study']['name']}: {results['unit']} ({direction}), n = {n} seeds"
    columns = ["difference", "mean", "s.e.", "95 % interval", "p", "p Holm"]
    return [
        (title, ["variant", *seeds, "mean", "s.e."], scores),
        (f"differences within a seed, paired t-test (* p after Holm below {alpha:g})", columns, differences),
    ]


def show(results: dict[str, Any]) -> None:
    """Print the tables, the verdict and the cost."""
    console = Console()
    for title, columns, rows in tables(results):
        console.print(title)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for k, column in enumerate(columns):
            table.add_column(column, justify="right" if k else "left", no_wrap=k > 0)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    print(varied(results))
    print(compute(results))
    print(f"verdict: {results['verdict']}")


def markdown(results: dict[str, Any], picture: str) -> str:
    """The same as a document, beside its ``picture``."""
    parts = [f"# {results['study']['name']}", results["verdict"][:1].upper() + results["verdict"][1:] + "."]
    for title, columns, rows in tables(results):
        parts.append(f"**{title}**\n\n" + _table(columns, rows))
    parts += [f"![every seed, means and intervals]({picture})", *(f"- {c['sentence']}" for c in results["comparisons"])]
    parts += [varied(results), compute(results)]
    return "\n\n".join(parts) + "\n"


def varied(results: dict[str, Any]) -> str:
    """What the spread between seeds is the spread of."""
    study = results["study"]
    stages = ", ".join(results["seed_varies"]) or "nothing: there is one"
    return f"`{study['vary']}` differs between seeds, and through it the draws of: {stages}"


def compute(results: dict[str, Any]) -> str:
    """Runs x tokens / rate, and the FLOPs."""
    cost, where = results["compute"], results["provenance"]
    rate = cost["tokens"] / max(1e-9, where["train_seconds"])
    each = f"{cost['tokens'] / cost['trainings']:,.0f}"
    return (
        f"compute: {cost['trainings']} trainings ({cost['runs']} runs) x {each} tokens = {cost['tokens']:,} tokens, "
        f"{cost['flops']:.2g} FLOPs; {where['train_seconds']:,.0f} s of training at {rate:,.0f} tokens/s each, "
        f"{where['runs_at_once']} at once, threads: {where['threads']}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
