"""What came out: every arm's scores and artefacts, the comparisons, a verdict in words, and what it cost."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gristmill.kernels.common.config import result_fields
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json
from gristmill.recipes.runner.store import Artefact, Store
from gristmill.recipes.study import statistics
from gristmill.recipes.study.config import Study
from gristmill.recipes.study.expand import Arm, varies
from gristmill.recipes.study.run import built, jobs_of
from gristmill.train.load import read_card
from gristmill.train.model import flops_per_token


def collect(study: Study, arms: Sequence[Arm], root: Path) -> dict[str, Any]:
    """Everything results.json holds. All but ``provenance`` is a function of the study and its inputs."""
    store = Store(root)
    rows, trainings = [], {}
    higher, unit = False, ""
    for arm in arms:
        artefacts = built(arm, store)
        if arm.target not in artefacts:
            what = "made something else than the study asked for: its files or the code changed meanwhile; run it again"
            raise BadInput(f"{arm}: {what}", file=Path(root) / arm.run)
        scores = read_json(artefacts[arm.target].folder / "scores.json")
        value, stderr = read_score(scores, study, artefacts[arm.target])
        task = scores["tasks"][study.metric.task]
        higher, unit = task["higher_is_better"], task["metric"].replace("_", " ")
        training = trainings.setdefault(artefacts["pretrain"].name, _training(arm, artefacts["pretrain"]))
        rows.append(
            {
                "variant": arm.variant,
                "seed": arm.seed,
                "value": value,
                "stderr_over_items": stderr,
                "run": arm.run,
                "evaluation": arm.eval,
                "overrides": list(arm.overrides),
                "steps": training["steps"],
                "tokens": training["tokens"],
                "scores": scores,
                "artefacts": {key: artefact.name for key, artefact in artefacts.items()},
            }
        )
    names = list(dict.fromkeys(arm.variant for arm in arms))
    by_seed = {seed: {r["variant"]: r["value"] for r in rows if r["seed"] == seed} for seed in study.seeds}
    summary = {n: asdict(statistics.estimate([by_seed[seed][n] for seed in study.seeds])) for n in names}
    for entry in summary.values():
        entry.pop("p")  # that a score is not zero is no finding
    factors = {factor: list(levels) for factor, levels in study.factors.items()}
    compared = statistics.contrasts(study.compare, names, factors)
    found = [[contrast.of(by_seed[seed]) for seed in study.seeds] for contrast in compared]
    estimates = [statistics.estimate(values) for values in found]
    adjusted = statistics.holm([e.p for e in estimates])
    comparisons = []
    for contrast, values, e, p in zip(compared, found, estimates, adjusted, strict=True):
        shown = p is not None and p < study.alpha
        entry = {"left": contrast.left, "right": contrast.right, "weights": dict(contrast.weights)}
        entry |= {"by_seed": dict(zip(map(str, study.seeds), values, strict=True)), **asdict(e), "p_holm": p}
        comparisons.append({**entry, "shown": shown, "sentence": sentence(entry, shown, unit, higher, len(compared))})
    return {
        "study": result_fields(study),
        "unit": unit,
        "higher_is_better": higher,
        "seed_varies": varies(arms),
        "variants": summary,
        "comparisons": comparisons,
        "verdict": verdict(comparisons, len(study.seeds)),
        "compute": {
            "runs": len(arms),
            "trainings": len(trainings),
            "tokens": sum(t["tokens"] for t in trainings.values()),
            "flops": sum(t["flops"] for t in trainings.values()),
        },
        "provenance": {
            "train_seconds": round(sum(t["seconds"] for t in trainings.values()), 1),
            "runs_at_once": jobs_of(study, arms),
            "threads": study.threads,
            "cores": os.cpu_count(),
            "platform": platform.platform(),
        },
        "arms": rows,
    }


def read_score(scores: dict, study: Study, where: Artefact) -> tuple[float, float]:
    """(value, standard error over items) of the study's metric. Raises BadInput for a part the task does not have."""
    metric, task = study.metric, scores["tasks"][study.metric.task]
    if metric.part is None:
        return task["value"], task["stderr"]
    parts = {name: (g["value"], g["stderr"]) for name, g in task.get("groups", {}).items()}
    if metric.task == "bpb":
        parts |= {name: (d["bits_per_byte"], d["stderr"]) for name, d in scores["domains"].items()}
    if metric.part not in parts:
        raise BadInput("no such part of the task", file=where.folder, key="metric.part", got=metric.part, valid=parts)
    return parts[metric.part]


def sentence(entry: dict, shown: bool, unit: str, higher_is_better: bool, comparisons: int) -> str:
    """One comparison in plain words, with everything needed to weigh it."""
    n, p = entry["n"], entry["p_holm"]
    holm = f", Holm over {comparisons}" if comparisons > 1 else ""
    tested = f"paired over {n} seeds, " + ("no spread to test against" if p is None else f"p = {p:.2g}{holm}")
    tested = tested if n > 1 else "one seed: no test"
    if shown:
        better = "better" if (entry["mean"] > 0) == higher_is_better else "worse"
        side = "higher" if entry["mean"] > 0 else "lower"
        by = f"{abs(entry['mean']):.4f} {unit}"
        return f"{entry['left']} is {side} ({better}) than {entry['right']} by {by} ({tested})"
    spread = "" if entry["stderr"] is None else f" ±{entry['stderr']:.4f}"
    difference = f"{entry['mean']:+.4f}{spread} {unit}"
    return f"no difference shown: {entry['left']} minus {entry['right']} is {difference} ({tested})"


def verdict(comparisons: Sequence[dict], seeds: int) -> str:
    """One line: what the study shows, or that it shows nothing."""
    shown = [c["sentence"] for c in comparisons if c["shown"]]
    if shown:
        return "; ".join(shown)
    many = f"{len(comparisons)} comparison{'s' * (len(comparisons) > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    return f"no difference shown ({many})"


def _training(arm: Arm, artefact: Artefact) -> dict[str, float]:
    """Steps, tokens, FLOPs and seconds (wall time of the process that finished it) of one training."""
    card, ledger = read_card(artefact.folder), artefact.manifest["ledger"]
    tokens = ledger["tokens"]["seen"]
    per_token = flops_per_token(arm.loaded.config.model, card["vocab_size"], card["seq_len"])
    seconds = artefact.manifest["provenance"]["seconds"]
    return {"steps": ledger["steps"], "tokens": tokens, "flops": tokens * per_token, "seconds": seconds}
