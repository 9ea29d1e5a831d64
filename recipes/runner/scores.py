"""Scores of several models side by side, as the terminal, the model card and the report show them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One score of every model: ``cells``: model -> {"value", "stderr", ...} as in scores.json."""

    label: str
    note: str  # n, chance, direction
    depth: int  # 1 for a part of the row above
    cells: dict[str, dict]


def rows(columns: dict[str, dict]) -> list[Row]:
    """``columns``: name -> contents of an evaluation's scores.json. Parts follow the total they make up."""
    found: dict[str, Row] = {}
    for name, scores in columns.items():
        for label, depth, row in _lines(scores):
            found.setdefault(label, Row(label.split("/")[-1], _note(row), depth, {})).cells[name] = row
    order = {task: k for k, task in enumerate(dict.fromkeys(t for s in columns.values() for t in s["tasks"]))}
    return [found[label] for label in sorted(found, key=lambda label: order[label.split("/")[0].split(" ")[0]])]


def table(columns: dict[str, dict]) -> str:
    """Plain text, one line a score."""
    lines = rows(columns)
    width = max((len(row.label) + 2 * row.depth for row in lines), default=0) + 2
    wide = {name: max(len(name), 15) for name in columns}
    text = [" " * width + "  ".join(f"{name:>{wide[name]}}" for name in columns)]
    for row in lines:
        values = "  ".join(f"{cell(row.cells.get(name)):>{wide[name]}}" for name in columns)
        text.append(f"{'  ' * row.depth + row.label:<{width}}{values}   {row.note}")
    return "\n".join(text)


def cell(score: dict | None) -> str:
    """One value with its standard error."""
    return "-" if score is None else f"{score['value']:.4f} ±{score['stderr']:.4f}"


def _note(row: dict) -> str:
    chance = f"chance {row['chance']:g}" if row.get("chance") is not None else ""
    return ", ".join(filter(None, (f"n {row['n']}", chance, "" if row["higher_is_better"] else "lower is better")))


def _lines(scores: dict) -> list[tuple[str, int, dict]]:
    """(unique label, depth, score)"""
    lines = []
    for task, row in scores["tasks"].items():
        total = f"{task} {row['metric'].replace('_', ' ')}"
        lines.append((total, 0, row))
        lines += [(f"{total}/{group}", 1, {**row, **part}) for group, part in row.get("groups", {}).items()]
        if task == "bpb":
            for domain, part in scores["domains"].items():
                values = {"value": part["bits_per_byte"], "stderr": part["stderr"], "n": part["documents"]}
                lines.append((f"{total}/{domain}", 1, {**row, **values}))
    return lines
