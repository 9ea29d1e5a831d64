"""The same contents whatever the folder, the number of partitions and the hash seed; and nothing built twice."""

from __future__ import annotations

import shutil

import mini


def test_another_folder_partitions_and_hash_seed(mini_run, tmp_path):
    """Rebuilt by three workers under a path with spaces, quotes, `$HOME` and letters past ASCII; another hash seed."""
    folder = tmp_path / "a b 'c' \"d\" $HOME ünï 中文"
    folder.mkdir()
    recipe = mini.write(folder)
    out = folder / "runs of mine"
    process = mini_run.start("run", str(recipe), "engine.partitions=3", "--name", "mini", out=out, PYTHONHASHSEED="77")
    assert process.wait(timeout=300) == 0, process.stderr.read()
    theirs, ours = mini.artefacts(mini_run.out), mini.artefacts(out)
    for key in theirs:
        assert ours[key]["outputs"] == theirs[key]["outputs"], f"{key} differs"
        assert ours[key]["content"] == theirs[key]["content"]
    again = mini_run.gristmill("run", str(recipe), "engine.partitions=3", "--name", "mini", out=out)
    assert again.stderr.count("cached") == len(ours) + 2 and "running" not in again.stderr  # + release, report

    moved = tmp_path / "moved"
    shutil.move(out, moved)
    assert "everything is as it was recorded" in mini_run.gristmill("verify", "mini", out=moved).stdout


def test_two_recipes_share_what_they_have_in_common(mini_copy):
    """A run that changes one late field reuses every stage before it."""
    mini_run = mini_copy
    done = mini_run.gristmill("run", str(mini_run.recipe), "merge.shape=cosine")
    lines = [line.split()[:2] for line in done.stderr.splitlines()]
    assert [key for key, word in lines if word == "running"] == ["merge", "eval.merged", "release", "report"]
    names = {p.parent.name for p in mini_run.out.glob("*/run.json")}
    assert len(names) >= 2 and any(name.startswith("mini--") for name in names)
