"""Plan: what a recipe would build, what it would train on, and what that costs. Runs nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gristmill.data.selection import Selector
from gristmill.kernels.common.files import read_json
from gristmill.recipes.runner.licences import by_licence, trained_tokens
from gristmill.recipes.runner.loader import Loaded
from gristmill.recipes.runner.runs import RUN_FILE, nodes_of
from gristmill.recipes.runner.store import Store
from gristmill.train.model import flops_per_token, parameter_count

REFERENCE_FLOPS = 989e12 * 0.4  # one H100 at 40 % of its dense bf16 peak: what GPU-hours are quoted in
BYTES_PER_PARAMETER = 4


def statuses(loaded: Loaded, root: Path) -> dict[str, dict]:
    """Node key -> {"status", "artefact"}.

    ``cached``: built already. ``stale``: a run of this recipe's name built the stage, from something else.
    ``new``: no run of this name has. What lies below an unbuilt stage cannot be cached for sure: it is not.
    """
    store, nodes = Store(root), nodes_of(loaded, root)
    before = _built_before(root, loaded.config.name)
    known, answer = {}, {}
    for key, node in nodes.items():
        have = None
        if all(source in known for source in node.inputs.values()):
            have = store.find(node, {name: known[source].content for name, source in node.inputs.items()})
        if have is not None:
            known[key] = have
            answer[key] = {"status": "cached", "artefact": have.name}
        else:
            answer[key] = {"status": "stale" if key in before else "new", "artefact": None}
    return answer


def _built_before(root: Path, recipe: str) -> set[str]:
    keys: set[str] = set()
    for path in Path(root).glob(f"*/{RUN_FILE}"):
        record = read_json(path)
        if record["recipe"]["name"] == recipe:
            keys |= set(record["stages"])
    return keys


def plan(loaded: Loaded, root: Path) -> dict[str, Any]:
    """Everything `gristmill plan` shows, as plain data."""
    recipe = loaded.config
    stages = statuses(loaded, root)
    sizes = _sizes(stages, root)
    mix = {source: _cells(source, recipe, sizes) for source in recipe.mix}
    vocab = recipe.model.vocab_size or getattr(recipe.tokenizer, "vocab_size", None)
    licences = by_licence(recipe, _by_source(stages, root, mix))
    answer: dict[str, Any] = {"recipe": recipe.name, "stages": stages, "mix": mix, "licences": licences}
    if vocab:
        count = parameter_count(recipe.model, vocab)
        answer["model"] = {
            "vocab_size": vocab,
            "parameters": count,
            "flops_per_token": flops_per_token(recipe.model, vocab, recipe.pack.seq_len),
            "checkpoint_bytes": sum(count.values()) * BYTES_PER_PARAMETER,
        }
    tokens = _tokens(stages, root, mix)
    if tokens is not None and recipe.train.max_tokens is not None:
        tokens = min(tokens, recipe.train.max_tokens)
    answer["train"] = {
        "batch_tokens": recipe.train.batch_tokens,
        "tokens": tokens,
        "steps": None if tokens is None else -(-tokens // recipe.train.batch_tokens),
    }
    if vocab and tokens is not None:
        flops = tokens * answer["model"]["flops_per_token"]
        answer["train"] |= {"flops": flops, "h100_hours_at_40_percent": flops / REFERENCE_FLOPS / 3600}
    if vocab:
        weights = answer["model"]["checkpoint_bytes"] * (recipe.train.checkpoints + 4)
        answer["disk"] = {"checkpoints_bytes": weights, "free_bytes": shutil.disk_usage(_existing(root)).free}
    return answer


def _existing(path: Path) -> Path:
    path = Path(path).resolve()
    while not path.exists():
        path = path.parent
    return path


def _sizes(stages: dict, root: Path) -> dict[str, dict] | None:
    """source -> {documents, tokens} once the token tables exist."""
    name = stages["tokens"]["artefact"]
    return read_json(Path(root) / "store" / name / "tokens.json")["sources"] if name else None


def _cells(source: str, recipe: Any, sizes: dict | None) -> dict[str, Any]:
    """Per phase: the selector, its expected copies of a document, and tokens (by documents' mean length)."""
    cells: tuple[Selector, ...] = recipe.mix[source]
    phases = {}
    for phase, cell in zip(recipe.phases, cells, strict=True):
        copies = cell.expected_copies()
        tokens = None if sizes is None else round(copies * sizes[source]["tokens"])
        phases[phase] = {"select": str(cell), "copies": copies, "expected_tokens": tokens}
    entry: dict[str, Any] = {"phases": phases, "expected_passes": round(sum(p["copies"] for p in phases.values()), 4)}
    if sizes is not None:
        entry |= {unit: sizes[source][unit] for unit in ("documents", "tokens")}
    return entry


def _tokens(stages: dict, root: Path, mix: dict) -> int | None:
    """Tokens the run trains on: exact once packed (rows times row length), else expected, else unknown."""
    name = stages["pack"]["artefact"]
    if name:
        pack = read_json(Path(root) / "store" / name / "pack.json")
        return pack["rows"] * pack["seq_len"]
    expected = [phase["expected_tokens"] for entry in mix.values() for phase in entry["phases"].values()]
    return None if None in expected else sum(expected)


def _by_source(stages: dict, root: Path, mix: dict) -> dict[str, int] | None:
    """source -> tokens trained on: exact once the order is drawn, else expected, else unknown."""
    name = stages["mix"]["artefact"]
    if name:
        return trained_tokens(Store(root).open(name).manifest["ledger"])
    expected = {s: [phase["expected_tokens"] for phase in entry["phases"].values()] for s, entry in mix.items()}
    return None if any(None in tokens for tokens in expected.values()) else {s: sum(t) for s, t in expected.items()}


def show(answer: dict[str, Any]) -> None:
    """Print a plan for people."""
    console = Console()
    stages = Table(title=f"{answer['recipe']}: stages", title_justify="left")
    for column in ("stage", "status", "artefact"):
        stages.add_column(column)
    for key, entry in answer["stages"].items():
        stages.add_row(key, entry["status"], entry["artefact"] or "")
    console.print(stages)
    mix = Table(title="mix: selection and expected tokens", title_justify="left")
    phases = list(next(iter(answer["mix"].values()))["phases"])
    for column in ("source", *phases, "passes"):
        mix.add_column(column, justify="left" if column == "source" else "right")
    for source, entry in answer["mix"].items():
        cells = []
        for phase in phases:
            cell = entry["phases"][phase]
            known = cell["expected_tokens"] is not None and cell["copies"] > 0
            cells.append(cell["select"] + (f"\n{_si(cell['expected_tokens'])}" if known else ""))
        mix.add_row(source, *cells, f"{entry['expected_passes']:g}")
    console.print(mix)
    if "model" in answer:
        count = answer["model"]["parameters"]
        console.print("parameters: " + ", ".join(f"{_si(v)} {k}" for k, v in count.items()))
    train = answer["train"]
    if train["tokens"] is None:
        console.print("tokens: known once the tokens stage has run")
    else:
        console.print(f"tokens: {_si(train['tokens'])} in {train['steps']} steps of {_si(train['batch_tokens'])}")
    if "flops" in train:
        hours = train["h100_hours_at_40_percent"]
        console.print(f"training: {train['flops']:.3g} FLOPs, {hours:.3g} H100-hours at 40 % of peak")
    if "disk" in answer:
        disk = answer["disk"]
        console.print(f"disk: {_si(disk['checkpoints_bytes'])}B of checkpoints, {_si(disk['free_bytes'])}B free")
    licences = Table(title="licences of the mix", title_justify="left")
    for column in ("licence", "tokens", "share", "sources"):
        licences.add_column(column, justify="right" if column in ("tokens", "share") else "left")
    for entry in answer["licences"]:
        known = entry["share"] is not None
        cells = (_si(entry["tokens"]), f"{100 * entry['share']:.1f} %") if known else ("unknown", "unknown")
        licences.add_row(entry["licence"], *cells, ", ".join(entry["sources"]))
    console.print(licences)


def _si(value: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}P"
