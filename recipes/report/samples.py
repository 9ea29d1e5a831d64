"""Samples: how checkpoints along the run continue the beginnings of a few held-out documents.

Drawn once and kept beside the run in ``report-samples.json`` under the contents of all that decides them.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gristmill.data import tables
from gristmill.kernels.common.files import digest, read_json, write_json
from gristmill.kernels.common.progress import bar
from gristmill.kernels.common.seeds import derive
from gristmill.recipes.report.blocks import Note, Samples, Section
from gristmill.recipes.report.training import checkpoints
from gristmill.recipes.report.views import View, heading, missing
from gristmill.recipes.report.words import whole

FILE = "report-samples.json"
RAW = 4  # checkpoints shown, evenly spread from the first to the last; the merged model comes on top
PROMPTS = 5  # one a domain at most
TOKENS = 48
TEMPERATURE, TOP_P = 0.7, 0.95
CUT, CUT_UNSPACED = 60, 14  # characters of a prompt: to the last space, or where a script has none
NEEDS = ("split", "tokenizer", "pretrain")


def section(views: Sequence[View]) -> Section:
    blocks: list = [Note(line) for line in missing(views, *NEEDS)]
    drawn = [[_block(views, view, sample) for sample in samples(view)] for view in views if view.has(*NEEDS)]
    # the runs' answers to one prompt side by side
    blocks += [block for row in itertools.zip_longest(*drawn) for block in row if block]
    return Section(
        "samples",
        "What it says, along the way",
        f"The beginning of a held-out document, and how each checkpoint goes on (temperature {TEMPERATURE:g}, one "
        "seed for all). The last line is the document itself.",
        blocks,
    )


def samples(view: View) -> list[dict[str, Any]]:
    """[{"domain", "source", "prompt", "document", "code", "lines": [{"step": int or "merged", "text"}]}].

    A pure function of the artefacts; computed only where the file beside the run was made from others.
    """
    models = _models(view)
    prompts = _prompts(view)
    key = digest(
        {
            "from": {key: view.artefacts[key].content for key in (*NEEDS, "merge") if view.has(key)},
            "asked": [[step for step, _ in models], prompts, TOKENS, TEMPERATURE, TOP_P],
        }
    )
    path = view.run.folder / FILE
    if path.is_file():
        try:
            before = read_json(path)
            if before["key"] == key:
                return before["samples"]
        except (ValueError, KeyError, TypeError):
            pass  # a damaged file is drawn again
    drawn = _draw(view, models, prompts)
    write_json(path, {"key": key, "samples": drawn})
    return drawn


def spread(steps: Sequence[int], count: int) -> list[int]:
    """``count`` of ``steps``, evenly spread, the first and the last among them."""
    if len(steps) <= count:
        return list(steps)
    return [steps[round(k * (len(steps) - 1) / (count - 1))] for k in range(count)]


def cut(text: str) -> str:
    """The beginning of a document that is given as a prompt; never ends in a space, which tokenisers mind."""
    head = text[:CUT]
    words = head.rsplit(None, 1)
    spaced = len(words) == 2 and len(words[0]) > CUT // 3
    return words[0].rstrip() if spaced else head[:CUT_UNSPACED].rstrip()


def _models(view: View) -> list[tuple[int | str, Path]]:
    folder = view.folder("pretrain") / "checkpoints"
    found: list[tuple[int | str, Path]] = [(s, folder / f"step-{s:07d}") for s in spread(checkpoints(view), RAW)]
    return found + ([("merged", view.folder("merge"))] if view.has("merge") else [])


def _prompts(view: View) -> list[dict[str, Any]]:
    """The first held-out document (ids are hashes, so: any) of one source a domain that leaves something to say."""
    folder, found = view.folder("split") / "validation", {}
    index = tables.read_index(folder)
    for source, facts in view.recipe["sources"].items():
        if facts["domain"] in found or source not in index or len(found) == PROMPTS:
            continue
        for text in _texts(folder, source, index[source]):
            prompt = cut(text)
            if len(text) > 2 * len(prompt):
                rest = text[len(prompt) : len(prompt) + 3 * CUT]
                about = {"domain": facts["domain"], "source": source, "code": facts["domain"] == "code"}
                found[facts["domain"]] = {**about, "prompt": prompt, "document": rest}
                break
    return list(found.values())


def _texts(folder: Path, source: str, parts: list[dict]) -> Iterator[str]:
    for part in parts:
        for batch in pq.ParquetFile(tables.part_path(folder, source, part["name"])).iter_batches(64, columns=["text"]):
            yield from batch["text"].to_pylist()


def _draw(view: View, models: list[tuple[int | str, Path]], prompts: list[dict]) -> list[dict[str, Any]]:
    from gristmill.eval.generate import SamplingParams, generate
    from gristmill.eval.models import load
    from gristmill.train.checkpoint import MODEL
    from gristmill.train.load import CARD

    how = {"temperature": TEMPERATURE, "top_p": TOP_P, "max_tokens": TOKENS}
    params = [SamplingParams(**how, seed=derive(0, "report", k)) for k in range(len(prompts))]
    lines: list[list[dict]] = [[] for _ in prompts]
    with bar("samples", len(models)) as advance:
        for step, folder in models if prompts else []:
            with tempfile.TemporaryDirectory() as scratch:
                # a checkpoint has weights only; what they are weights of stands in the stage's folder
                os.symlink(view.folder("pretrain") / CARD, Path(scratch) / CARD)
                os.symlink(folder / MODEL, Path(scratch) / MODEL)
                lm = load(Path(scratch), view.folder("tokenizer"))
            asked = lm.encode([prompt["prompt"] for prompt in prompts])
            ids = [[*lm.begin, *encoded[-(lm.max_length // 2) :]] for encoded in asked]
            for k, rollout in enumerate(generate(lm.model, ids, params, stop=lm.stop, pad_id=lm.pad_id)):
                lines[k].append({"step": step, "text": lm.decode(rollout.token_ids)})
            advance(1)
    return [{**prompt, "lines": own} for prompt, own in zip(prompts, lines, strict=True)]


def _block(views: Sequence[View], view: View, sample: dict[str, Any]) -> Samples:
    lines = [(_who(line["step"]), line["text"]) for line in sample["lines"]]
    title = heading(views, view, f"{sample['domain']}, from {sample['source']}")
    return Samples(title, sample["prompt"], [*lines, ("the document", sample["document"])], sample["code"])


def _who(step: int | str) -> str:
    return "merged" if step == "merged" else f"step {whole(int(step))}"
