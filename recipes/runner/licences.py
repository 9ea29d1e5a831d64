"""The licences of a mix: which sources stand under each, and how much of what is trained on that is."""

from __future__ import annotations

from typing import Any

from gristmill.recipes.runner.schema import Recipe


def by_licence(recipe: Recipe, tokens: dict[str, int] | None) -> list[dict[str, Any]]:
    """One entry a licence: {"licence", "sources", "tokens", "share"}, the largest share first.

    ``tokens``: source -> tokens trained on, repetitions counted; without them ``tokens`` and ``share`` are None and
    the order is the recipe's. A source that no phase takes has a share of 0: it is read, not trained on.
    """
    sources: dict[str, list[str]] = {}
    for name, source in recipe.sources.items():
        sources.setdefault(source.licence, []).append(name)
    if tokens is None:
        return [{"licence": k, "sources": v, "tokens": None, "share": None} for k, v in sources.items()]
    total = sum(tokens.values())
    counts = {licence: sum(tokens.get(name, 0) for name in names) for licence, names in sources.items()}
    return [
        {"licence": k, "sources": sources[k], "tokens": counts[k], "share": counts[k] / total if total else None}
        for k in sorted(counts, key=lambda k: (-counts[k], k))
    ]


def trained_tokens(mix_ledger: dict[str, dict]) -> dict[str, int]:
    """source -> tokens over all phases, from the ledger of the mix stage."""
    tokens: dict[str, int] = {}
    for phase in mix_ledger.values():
        for source, entry in phase.items():
            tokens[source] = tokens.get(source, 0) + entry["tokens"]
    return tokens
