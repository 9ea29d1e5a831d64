"""The model card: what a stranger needs to know before using the model, all of it from the run's own records."""

from __future__ import annotations

from typing import Any

from gristmill.kernels.common.files import read_json
from gristmill.recipes.runner.licences import by_licence, trained_tokens
from gristmill.recipes.runner.runs import Run
from gristmill.recipes.runner.schema import Recipe
from gristmill.recipes.runner.scores import cell, rows


def model_card(
    run: Run, recipe: Recipe, scores: dict, samples: list[dict], exported: dict, commit: str | None, dirty: bool | None
) -> str:
    """Markdown with Hugging Face front matter. ``exported``: what ``train.export`` reported of the folder."""
    pretrain = run.artefact("pretrain").manifest["ledger"]
    trained = read_json(run.artefact("pretrain").folder / "model.json")
    tokens = read_json(run.artefact("tokenizer").folder / "tokens.json")
    languages = sorted({s.lang for s in recipe.sources.values() if s.lang != "py"})
    code = (
        f"commit `{commit}`" + (" with local changes (`gristmill/code.patch`)" if dirty else "")
        if commit
        else "a package"
    )
    return "\n".join(
        [
            "---",
            f"license: {recipe.release.licence.lower()}",
            "language: [" + ", ".join(languages) + "]",
            "library_name: transformers",
            "pipeline_tag: text-generation",
            "tags: [gristmill]",
            "---",
            "",
            f"# {run.name}",
            "",
            f"A {_count(exported['parameters'])}-parameter decoder ({recipe.model.layers} layers, width "
            f"{recipe.model.hidden}, context {trained['seq_len']}) trained from scratch by the gristmill recipe "
            f"`{recipe.name}` on {_count(pretrain['supervised_tokens'])} predicted tokens in "
            f"{pretrain['steps']} steps, {trained['precision']}. The weights are those of `{recipe.release.model}`.",
            "",
            "```python",
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            'model, tokenizer = (c.from_pretrained("FOLDER") for c in (AutoModelForCausalLM, AutoTokenizer))',
            "```",
            "",
            "It loads as a stock class; no remote code. The tokenizer begins a text with the BOS token "
            f"(`{tokens['bos']}`): every training document began with it.",
            "",
            "## Scores",
            "",
            "Each with its standard error. Bits per byte are of held-out documents; 0 of HumanEval is the model, not "
            "the grader: known-good and known-bad solutions were graded in the same run.",
            "",
            *_scores(scores),
            "",
            "## Data",
            "",
            *_sources(run, recipe),
            "",
            "Documents selected per phase (tokens):",
            "",
            *_phases(run),
            "",
            "Licences of the text trained on:",
            "",
            *licence_table(run, recipe),
            "",
            "## Samples",
            "",
            *[_sample(s) for s in samples],
            "",
            "## Limits",
            "",
            "Trained to show and test a recipe, not to be used: it knows little, states falsehoods fluently, and was "
            "neither aligned nor filtered for harm."
            if pretrain["supervised_tokens"] < 1e9
            else "A base model: neither aligned nor filtered for harm.",
            "",
            "## Reproduce and check",
            "",
            f"Made by {code}. `gristmill run gristmill/recipe.yaml` makes it again; `gristmill verify FOLDER` checks "
            f"every byte and that recipe, manifests and hashes agree. A fresh process loaded this folder as "
            f"`{exported['class']}` and computed the trained model's logits to within "
            f"{exported['max_abs_difference']:.1e} (largest: {exported['largest_logit']:.1f}).",
            "",
        ]
    )


def _count(value: float) -> str:
    for unit in ("", "k", "M", "B"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _scores(scores: dict[str, Any]) -> list[str]:
    if not scores:
        return ["Not evaluated."]
    lines = [
        ["\u2003" * row.depth + row.label, *[cell(row.cells.get(name)) for name in scores], row.note]
        for row in rows(scores)
    ]
    return _table(["", *scores, "items"], lines)


def _sources(run: Run, recipe: Recipe) -> list[str]:
    ledgers = {key: run.artefact(key).manifest["ledger"] for key in ("corpus", "split", "tokens", "mix")}
    rows = []
    for name, source in recipe.sources.items():
        seen = sum(phase.get(name, {"tokens": 0})["tokens"] for phase in ledgers["mix"].values())
        own = ledgers["tokens"][name]["tokens"]
        rows.append(
            [
                name,
                source.domain,
                source.licence,
                f"{ledgers['corpus'][name]['in'][0]:,}",
                f"{ledgers['split'][name]['kept'][0]:,}",
                f"{own:,}",
                f"{seen:,}",
                f"{seen / own:.2f}",
            ]
        )
    return _table(
        ["source", "domain", "licence", "documents read", "kept", "tokens", "tokens trained on", "passes"], rows
    )


def _phases(run: Run) -> list[str]:
    mix = run.artefact("mix").manifest["ledger"]
    sources = sorted({source for phase in mix.values() for source in phase})
    rows = []
    for phase, entry in mix.items():
        total = sum(s["tokens"] for s in entry.values())
        shares = [f"{100 * entry[s]['tokens'] / total:.1f} %" if s in entry else "-" for s in sources]
        rows.append([phase, f"{total:,}", *shares])
    return _table(["phase", "tokens", *sources], rows)


def licence_table(run: Run, recipe: Recipe) -> list[str]:
    tokens = trained_tokens(run.artefact("mix").manifest["ledger"])
    rows = [
        [entry["licence"], ", ".join(entry["sources"]), f"{entry['tokens']:,}", f"{100 * entry['share']:.1f} %"]
        for entry in by_licence(recipe, tokens)
    ]
    return _table(["licence", "sources", "tokens trained on", "share"], rows)


def _sample(sample: dict) -> str:
    how = "greedy" if sample["temperature"] == 0 else f"temperature {sample['temperature']:g}"
    text = (sample["prompt"] + "→" + sample["text"]).replace("\n", "⏎").replace("`", "'")
    return f"- {how}: `{text}`"
