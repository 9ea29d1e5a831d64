"""Bad input: one line that names file, key and value, exit code 2, and nothing half-written that looks done."""

from __future__ import annotations

import json
import os
import subprocess

import mini
import pytest

from gristmill.recipes.runner import store


def refused(mini_run, tmp_path, *arguments: str, changes: dict | None = None, needs: tuple[str, ...]) -> str:
    recipe = mini.write(tmp_path / "recipe", **(changes or {}))
    out = tmp_path / "runs"
    done = mini_run.gristmill("run", str(recipe), *arguments, out=out, code=2)
    errors = [line for line in done.stderr.splitlines() if line.startswith("gristmill: ")]
    assert len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in needs:
        assert word in errors[0], errors[0]
    return errors[0]


def source(**changes) -> dict:
    sources = json.loads(json.dumps(mini.RECIPE["sources"]))
    sources["english"].update(changes)
    return {"sources": sources}


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (["train.optimzer.lr=1e-3"], ("train.optimzer", "optimizer")),
        (["train.optimizer.lr=fast"], ("train.optimizer.lr", "fast", "number")),
        (["mix.english=[all, top 1.5, all, all, all]"], ("mix.english", "top 1.5", "at most 1")),
        (["mix.englsh=[all, all, all, all, all]"], ("mix", "englsh", "english")),
        (["mix.english=[all, all]"], ("mix.english", "2 selectors", "5 phases")),
        (["merge.last=7"], ("merge.last", "7", "6")),
        (["train.batch_tokens=1000"], ("train.batch_tokens", "1000", "64")),
        (["model.vocab_size=300"], ("model.vocab_size", "300", "400")),
        (["model.heads=3"], ("model", "heads", "3")),
        (["tokenizer.vocab_size=50000"], ("tokenizer.vocab_size", "50000")),
        (["clean.filters=[{length: {min_chars: 100000}}]"], ("sources", "no document is left", "too short")),
        (["--until", "packk"], ("--until", "packk", "pack")),
        (["dedup.scope=everything"], ("dedup.scope", "everything", "global")),
    ],
)
def test_overrides(mini_run, tmp_path, arguments, needs):
    refused(mini_run, tmp_path, *arguments, needs=needs)


def test_a_phase_without_documents(mini_run, tmp_path):
    mix = {name: ["none", *cells[1:]] for name, cells in mini.RECIPE["mix"].items()}
    refused(mini_run, tmp_path, changes={"mix": mix}, needs=("phases.p1", "none"))


def test_a_missing_file(mini_run, tmp_path):
    changes = source(**{"from": {"kind": "files", "path": "raw/englsh.jsonl"}})
    refused(mini_run, tmp_path, changes=changes, needs=("englsh.jsonl", "english.jsonl"))


def test_an_unreadable_row_under_strict(mini_run, tmp_path):
    recipe = mini.write(tmp_path / "recipe", clean={"on_bad_row": "strict"})
    with (recipe.parent / "raw" / "english.jsonl").open("a") as f:
        f.write('{"text": "cut in the mid')
    done = mini_run.gristmill("run", str(recipe), out=tmp_path / "runs", code=2)
    assert "english.jsonl:136" in done.stderr and "Traceback" not in done.stderr
    assert not list((tmp_path / "runs" / "store").glob("corpus-????????????????"))
    # under skip the same file is read, and the row counted
    done = mini_run.gristmill(
        "run", str(recipe), "clean.on_bad_row=skip", "--name", "mini", "--until", "corpus", out=tmp_path / "runs"
    )
    assert mini.artefacts(tmp_path / "runs")["corpus"]["ledger"]["english"]["dropped"] == {"truncated": [1, 24]}


def test_a_recipe_that_is_not_there(mini_run, tmp_path):
    done = mini_run.gristmill("run", "nan0", out=tmp_path, code=2)
    assert "nan0" in done.stderr and "nano" in done.stderr


@pytest.mark.parametrize("size", ["4m", "300k", "150k"])
def test_no_space_left(mini_run, tmp_path, monkeypatch, size):
    """The real thing: a file system too small to start on, and, the check taken away, ones that fill up midway."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    out = tmp_path / "small"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(out)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    if size != "4m":
        monkeypatch.setattr(store, "MIN_FREE", 0)
    try:
        done = mini_run.gristmill("run", str(mini_run.recipe), out=out, code=2)
        assert "space" in done.stderr and "Traceback" not in done.stderr and str(out) in done.stderr
        for manifest in (out / "store").glob("*/manifest.json"):  # what is there is whole
            for entry in json.loads(manifest.read_text("utf-8"))["outputs"]:
                assert (manifest.parent / entry["path"]).stat().st_size == entry["size"]
    finally:
        subprocess.run(["umount", str(out)], check=True)
