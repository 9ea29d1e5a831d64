"""Release: the bundle RELEASE.md describes. Written only if the run verifies and a fresh process, loading the
exported folder as a stock class, computes the logits our own model does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import file_hash, fsync, read_json, walk, write_json
from gristmill.recipes.runner import verify
from gristmill.recipes.runner.card import model_card
from gristmill.recipes.runner.runs import Run, say
from gristmill.recipes.runner.scores import table
from gristmill.recipes.runner.store import MANIFEST, code_version
from gristmill.train import export

FOLDER = "release"
PROMPTS = ("The", "In 1998,", "def main(", "import os\n", "这个", "很好，")  # for samples in the model card
SAMPLE_TOKENS = 40


def release(run: Run) -> Path:
    """Write ``<run>/release``; done already when it was made from the same artefacts. Returns the folder."""
    final = run.folder / FOLDER
    recipe = run.recipe()
    made_from = {key: run.artefact(key).content for key in run.record["stages"]}
    if (final / "gristmill" / "release.json").is_file():
        before = read_json(final / "gristmill" / "release.json")
        if before["made_from"] == made_from and before["model"] == recipe.release.model:
            say(f"release    cached    {final}")
            return final
    problems = verify.verify(str(run.folder), run.folder.parent)
    if problems:
        more = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
        raise BadInput(f"not released, it does not verify: {problems[0]}{more}", file=run.folder)
    say("release    running")
    partial = run.folder / f"{FOLDER}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    model, tokenizer = run.artefact(recipe.stage_of(recipe.release.model)).folder, run.artefact("tokenizer").folder
    exported = export.to_huggingface(model, tokenizer, partial)
    parity = export.check(model, partial)
    about = partial / "gristmill"
    (about / "manifests").mkdir(parents=True)
    shutil.copyfile(run.folder / "recipe.yaml", about / "recipe.yaml")
    shutil.copyfile(run.artefact("corpus").folder / "raw.json", about / "raw.json")
    shutil.copyfile(run.artefact("mix").folder / "order.json", about / "order.json")
    for key in run.record["stages"]:
        shutil.copyfile(run.artefact(key).folder / MANIFEST, about / "manifests" / f"{key}.json")
    scores = {
        key.removeprefix("eval."): read_json(run.artefact(key).folder / "scores.json")
        for key in run.record["stages"]
        if key.startswith("eval.")
    }
    write_json(about / "scores.json", scores)
    write_json(about / "parity.json", parity)
    samples = _samples(partial, about / "samples.json")
    commit, dirty = code_version()
    if dirty:
        (about / "code.patch").write_bytes(_patch())
    write_json(
        about / "release.json",
        {"model": recipe.release.model, "made_from": made_from, "commit": commit, "dirty": dirty},
    )
    (partial / "README.md").write_text(
        model_card(run, recipe, scores, samples, {**exported, **parity}, commit, dirty), "utf-8"
    )
    sums = "".join(f"{file_hash(partial / p)}  {p}\n" for p in walk(partial))
    (partial / verify.SUMS).write_text(sums, "utf-8")
    for path in walk(partial):
        fsync(partial / path)
    if final.exists():
        shutil.rmtree(final)
    partial.rename(final)
    say(f"release    done      {final}")
    return final


def _samples(folder: Path, out: Path) -> list[dict]:
    """What the exported model says, by greedy search and by sampling; loaded as anybody would load it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from gristmill.eval.generate import SamplingParams, generate

    logging.disable_progress_bar()  # a bar for sixteen tensors
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    params = [
        params
        for k in range(len(PROMPTS))
        for params in (
            SamplingParams(max_tokens=SAMPLE_TOKENS),
            SamplingParams(temperature=0.8, top_p=0.95, max_tokens=SAMPLE_TOKENS, seed=k),
        )
    ]
    prompts = [p for p in PROMPTS for _ in range(2)]
    ids = [[tokenizer.bos_token_id, *tokenizer.encode(p, add_special_tokens=False)] for p in prompts]
    stop, pad = {tokenizer.eos_token_id}, tokenizer.pad_token_id
    samples = [
        {
            "prompt": prompt,
            "temperature": p.temperature,
            "text": tokenizer.decode(r.token_ids, skip_special_tokens=True),
        }
        for prompt, p, r in zip(prompts, params, generate(model, ids, params, stop=stop, pad_id=pad), strict=True)
    ]
    write_json(out, samples)
    return samples


def _patch() -> bytes:
    here = Path(__file__).resolve().parents[2]
    return subprocess.run(["git", "diff", "HEAD"], cwd=here, capture_output=True, check=True).stdout


def summary(run: Run) -> None:
    """Print where the release is and what its models score."""
    scores = read_json(run.folder / FOLDER / "gristmill" / "scores.json")
    if scores:
        print(table(scores))
    print(f"released: {run.folder / FOLDER}", file=sys.stdout)
