"""Verify, replay and gc on a finished run."""

from __future__ import annotations

import json
import shutil

import mini
import pytest


@pytest.fixture
def copy(mini_run, tmp_path):
    """A copy of the finished run that a test may damage."""
    out = tmp_path / "runs"
    shutil.copytree(mini_run.out, out)
    return out


def test_a_clean_run_and_its_bundle_verify(mini_run):
    for target in ("mini", str(mini_run.out / "mini" / "release")):
        done = mini_run.gristmill("verify", target)
        assert done.stdout.strip().endswith("everything is as it was recorded")


@pytest.mark.parametrize("stage", ["corpus", "mix", "pack", "pretrain", "merge"])
def test_a_flipped_byte_is_named(mini_run, copy, stage):
    folder = copy / "store" / json.loads((copy / "mini" / "run.json").read_text())["stages"][stage]
    name = json.loads((folder / "manifest.json").read_text())["outputs"][-1]["path"]
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    done = mini_run.gristmill("verify", "mini", out=copy, code=1)
    assert f"{folder.name}/{name}: sha256 differs from the manifest" in done.stdout


def test_an_edited_recipe_is_named(mini_run, copy):
    path = copy / "mini" / "run.json"
    path.write_text(path.read_text().replace('"lr": 0.003', '"lr": 0.004'))
    done = mini_run.gristmill("verify", "mini", out=copy, code=1)
    assert "run.json: the recipe is not the one that was run" in done.stdout
    assert "pretrain: made with another configuration" in done.stdout and "lr: 0.003 against 0.004" in done.stdout


def test_two_swapped_shards_are_named(mini_run, copy):
    folder = copy / "store" / json.loads((copy / "mini" / "run.json").read_text())["stages"]["pack"]
    a, b = folder / "shard-00000.tokens", folder / "shard-00001.tokens"
    data = a.read_bytes(), b.read_bytes()
    a.write_bytes(data[1])
    b.write_bytes(data[0])
    done = mini_run.gristmill("verify", "mini", out=copy, code=1)
    assert "shard-00000.tokens" in done.stdout and "shard-00001.tokens" in done.stdout


@pytest.mark.parametrize("damage", ["edit", "delete", "add", "recipe"])
def test_a_damaged_bundle_is_named(mini_run, copy, damage):
    bundle = copy / "mini" / "release"
    name = {
        "edit": "README.md",
        "delete": "gristmill/scores.json",
        "add": "extra.bin",
        "recipe": "gristmill/recipe.yaml",
    }
    path = bundle / name[damage]
    if damage == "delete":
        path.unlink()
    elif damage == "recipe":
        text = path.read_text()
        assert "0.003" in text
        path.write_text(text.replace("0.003", "0.004"))
    else:
        path.write_text("changed")
    done = mini_run.gristmill("verify", str(bundle), code=1)
    assert name[damage] in done.stdout
    if damage == "recipe":
        assert "pretrain: made with another configuration" in done.stdout


def test_replay_by_step_and_by_document(mini_run):
    """Every step's documents, and for one of them the very same steps back."""
    seen: dict[str, set[int]] = {}
    last = mini.artefacts(mini_run.out)["pretrain"]["ledger"]["steps"] - 1
    for step in (0, last):
        answer = json.loads(mini_run.gristmill("replay", "mini", "--step", str(step), "--json").stdout)
        assert answer["phases"][-1] == ("p1" if step == 0 else "p5") and answer["pieces"]
        for piece in answer["pieces"]:
            seen.setdefault(piece["id"], set()).add(step)
    doc = next(iter(seen))
    back = json.loads(mini_run.gristmill("replay", "mini", "--doc", doc, "--json").stdout)
    assert seen[doc] <= {piece["step"] for piece in back}
    passes = [piece["pass"] for piece in back if piece["offset"] == 0]
    assert sorted(passes) == list(range(len(passes)))
    rows = [json.loads(line)["rows"] for line in (mini_run.artefact("pretrain") / "metrics.jsonl").open()]
    assert rows[0][0] == 0 and all(a[1] == b[0] for a, b in zip(rows, rows[1:], strict=False))
    mini_run.gristmill("replay", "mini", "--step", str(last + 1), code=2)
    mini_run.gristmill("replay", "mini", "--doc", "zz", code=2)


def test_gc_keeps_what_a_run_reaches(mini_run, copy):
    (copy / "store" / "mix-0123456789abcdef").mkdir()
    (copy / "store" / "pack-0123456789abcdef.partial").mkdir()
    reached = set(json.loads((copy / "mini" / "run.json").read_text())["stages"].values())
    for folder in copy.glob("mini--*"):
        shutil.rmtree(folder)
    done = mini_run.gristmill("gc", out=copy)
    assert "mix-0123456789abcdef" in done.stdout and "pack-0123456789abcdef.partial" in done.stdout
    assert {p.name for p in (copy / "store").iterdir() if p.is_dir()} == reached
    assert "everything is as it was recorded" in mini_run.gristmill("verify", "mini", out=copy).stdout
