"""The token ledger: nothing appears and nothing is lost between the mixture and the last step."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.recipes.report.blocks import Note, Section, Table
from gristmill.recipes.report.views import View, heading, missing
from gristmill.recipes.report.words import share, whole


def section(views: Sequence[View]) -> Section:
    blocks: list = [Note(line) for line in missing(views, "mix", "pack", "pretrain")]
    for view in views:
        lines = entries(view)
        if lines:
            rows = [
                [
                    what,
                    " + ".join(f"{whole(n)} {name} ({share(n / total)})" for name, n in parts),
                    whole(total),
                    "yes" if total == sum(n for _, n in parts) else "NO",
                ]
                for what, total, parts in lines
            ]
            blocks.append(
                Table(
                    ["tokens", "made up of", "count", "adds up"],
                    rows,
                    "Each line's parts must sum to its count, and each count is one that another line accounts for.",
                    texts=2,
                    title=heading(views, view, "tokens"),
                )
            )
    return Section("ledger", "The ledger", "Every token is accounted for by name.", blocks)


def entries(view: View) -> list[tuple[str, int, list[tuple[str, int]]]]:
    """(what, count, [(part, count)]) as far as the run has got."""
    lines = []
    if view.has("mix"):
        phases = {
            phase: sum(e["tokens"] for e in by_source.values()) for phase, by_source in view.ledger("mix").items()
        }
        lines.append(("selected by the mix", sum(phases.values()), list(phases.items())))
    if view.has("pack"):
        tokens, rows = view.ledger("pack")["tokens"], view.ledger("pack")["rows"]
        size = rows * view.config("pack")["pack"]["seq_len"]
        lines.append(("came to packing", tokens["in"], [(k, tokens[k]) for k in ("packed", "truncated")]))
        lines.append((f"{whole(rows)} rows", size, [(k, tokens[k]) for k in ("packed", "padding")]))
    if view.has("pretrain"):
        ledger = view.ledger("pretrain")
        tokens = ledger["tokens"]
        lines.append(("in rows to train on", tokens["packed"], [(k, tokens[k]) for k in ("seen", "left")]))
        rest = tokens["seen"] - ledger["supervised_tokens"]
        parts = [("predicted", ledger["supervised_tokens"]), ("first of a row or document, or padding", rest)]
        lines.append((f"seen in {whole(ledger['steps'])} steps", tokens["seen"], parts))
    return lines
