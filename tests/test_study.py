"""Studies: paired statistics as computed by hand, arms that are what they say, and a study that resumes for free."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from pathlib import Path
from xml.etree import ElementTree

import mini
import pytest

from gristmill.kernels.common.errors import BadInput
from gristmill.recipes.runner import loader
from gristmill.recipes.study import run, statistics
from gristmill.recipes.study.config import Study
from gristmill.recipes.study.expand import Arm, expand, override, varies

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
TINY = """
name: tiny
recipe: mini.yaml
vary: train.seed
seeds: [1, 2]
set: {train.max_tokens: 16384}
variants: {raw: {eval: raw}, merged: {eval: merged}}
"""
SQUARE = """
name: square
recipe: mini.yaml
seeds: [1, 2]
factors:
  order: {uniform: {set: {phases.p3.order: shuffle}}, curriculum: {}}
  finish: {decay: {set: {train.schedule: {kind: wsd}}, eval: raw}, merge: {eval: merged}}
compare: [baseline, effects, interaction]
"""


def arms_of(file: Path, *overrides: str) -> list[Arm]:
    loaded = loader.load(file, overrides, model=Study, search=[RECIPES / "studies"])
    return expand(loaded, file.parent, [RECIPES])


def written(folder: Path, text: str) -> Path:
    mini.write(folder)
    (folder / "study.yaml").write_text(text, "utf-8")
    return folder / "study.yaml"


# --- statistics -------------------------------------------------------------------------------------------------


def test_a_paired_t_test_by_hand():
    """Two degrees of freedom have closed forms: p = 1 - t / sqrt(t^2 + 2), and t = 4.302653 for 95 %."""
    e = statistics.estimate([0.2, 0.4, 0.3])
    t = 0.3 / (0.1 / math.sqrt(3))
    assert (e.n, e.mean, e.stderr) == (3, pytest.approx(0.3), pytest.approx(0.1 / math.sqrt(3)))
    assert e.p == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert e.high - e.mean == pytest.approx(4.302653 * e.stderr, rel=1e-6)
    assert e.mean - e.low == pytest.approx(e.high - e.mean)
    one = statistics.estimate([1.0, 2.0])  # one degree: p = 1 - 2 / pi atan t
    assert one.p == pytest.approx(1 - 2 / math.pi * math.atan(3.0))


def test_nothing_to_test_with_is_said_not_invented():
    assert statistics.estimate([0.7]) == statistics.Estimate(0.7, 1)
    same = statistics.estimate([0.5, 0.5, 0.5])
    assert (same.stderr, same.p) == (0.0, None)


def test_holm_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03, None]) == [pytest.approx(0.04), *[pytest.approx(0.09)] * 2, None]
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]


def test_two_by_two_contrasts_by_hand():
    names, factors = ["u+d", "u+m", "c+d", "c+m"], {"order": ["u", "c"], "finish": ["d", "m"]}
    values = dict(zip(names, [1.0, 2.0, 3.0, 7.0], strict=True))
    found = [c.of(values) for c in statistics.contrasts(("baseline", "effects", "interaction"), names, factors)]
    assert found == [1.0, 2.0, 6.0, 3.5, 2.5, 3.0]


# --- expansion --------------------------------------------------------------------------------------------------


def test_factors_make_every_combination_once(tmp_path):
    arms = arms_of(written(tmp_path, SQUARE))
    names = ["uniform+decay", "uniform+merge", "curriculum+decay", "curriculum+merge"]
    assert [arm.variant for arm in arms] == names * 2 and [arm.seed for arm in arms] == [1] * 4 + [2] * 4
    assert len({arm.run for arm in arms}) == len({arm.prints["pretrain"] for arm in arms}) == 8
    first = arms[0].loaded.config
    assert (first.seed, first.train.schedule.kind, first.phases["p3"].order) == (1, "wsd", "shuffle")
    assert arms[3].eval == "merged" and "merge" in arms[3].nodes and "merge" not in arms[0].nodes
    for seed in (arms[:4], arms[4:]):  # what a seed decides is shared by its variants, and by no other seed's
        assert len({arm.prints["tokens"] for arm in seed}) == 1
    assert arms[0].prints["tokens"] != arms[4].prints["tokens"]
    assert {"split", "mix", "pretrain"} <= set(varies(arms)) and "clean" not in varies(arms)
    assert varies(arms_of(tmp_path / "study.yaml", "vary=train.seed")) == ["pretrain"]


def test_the_shipped_study_is_what_it_says():
    loaded = loader.load("curriculum", model=Study, search=[RECIPES / "studies"])
    arms = expand(loaded, Path("runs"), [RECIPES])
    assert len(arms) == len({arm.prints["pretrain"] for arm in arms}) == 12
    for arm in arms:
        recipe = arm.loaded.config
        assert (recipe.train.schedule.kind, arm.eval) == (
            ("wsd", "raw") if arm.variant.endswith("decay") else ("wsm", "merged")
        )
        orders = {phase.order for phase in recipe.phases.values()}
        assert orders == ({"shuffle"} if arm.variant.startswith("uniform") else {"shuffle", "curriculum"})
        assert not any(key.startswith("posttrain") for key in arm.nodes)


def test_values_reach_the_recipe_as_the_file_spells_them():
    assert override("a.b", "1e-3") == "a.b=1e-3" and override("a", "null") == "a=null"
    nested = {"kind": "wsd", "decay": "0.2", "list": ["top .5", "x: y", "null"]}
    assert override("a", nested) == 'a={kind: wsd, decay: 0.2, list: [top .5, "x: y", null]}'
    assert override("a", "[not a list") == 'a="[not a list"'


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        (TINY.replace("mini.yaml", "minni"), ("recipe", "minni", "nano")),
        (TINY.replace("eval: merged", "eval: mergd"), ("merged", "eval", "mergd")),
        (TINY + "metric: {task: bbp}\n", ("metric.task", "bbp", "bpb")),
        (TINY + "metric: {part: englsh}\n", ("metric.part", "englsh", "english")),
        (TINY.replace("eval: raw", "eval: raw, set: {train.optimzer.lr: 1}"), ("raw", "train.optimzer", "optimizer")),
        (TINY.replace("eval: raw", "set: {train.threads: 2}"), ("threads",)),
        (TINY.replace("eval: merged", "eval: raw"), ("the same run twice", "raw, seed 1", "merged, seed 1")),
        (TINY.replace("vary: train.seed", "vary: merge.last"), ("vary", "merge.last", "train.seed")),
        (TINY.replace("variants", "varients"), ("varients", "variants")),
        (SQUARE.replace("curriculum: {}", "curriculum: {sets: {}}"), ("factors.order.curriculum", "sets", "'set'")),
        (SQUARE.replace("factors:", "factors:\n  size: {a: {}, b: {}}"), ("compare", "effects", "two factors")),
        (SQUARE.replace("{phases.p3.order: shuffle}", "{train.schedule: {kind: wsm}}"), ("train.schedule", "two")),
        (TINY + "compare: [interaction]\n", ("compare", "interaction", "two factors")),
        (TINY.replace("[1, 2]", "[1, 1]"), ("seeds", "twice")),
    ],
)
def test_bad_input_is_one_line(tmp_path, text, needs):
    with pytest.raises(BadInput) as caught:
        arms_of(written(tmp_path, text))
    line = str(caught.value)
    assert "\n" not in line and all(need in line for need in needs), line


# --- carrying out -----------------------------------------------------------------------------------------------


def test_arms_that_share_an_unbuilt_stage_do_not_start_together():
    def arm(name: str, **prints: str) -> Arm:
        return Arm(name, 1, name, "e", (), None, {}, prints)

    a, b, c = arm("a", tokens="t1", pretrain="p1"), arm("b", tokens="t1", pretrain="p2"), arm("c", tokens="t2")
    nothing = {"a": {}, "b": {}, "c": {}}
    assert run._startable([a, b, c], [], nothing) == [a, c]
    assert run._startable([b], [a_running(a)], nothing) == []
    shared = {**nothing, "a": {"tokens": None}, "b": {"tokens": None}}
    assert run._startable([b], [a_running(a)], shared) == [b]


def a_running(arm: Arm):
    return type("Running", (), {"arm": arm})


@pytest.fixture(scope="module")
def tiny(mini_run, tmp_path_factory):
    """(study file, runs folder): the miniature's data stages are built there already, and so are, by the ordinary
    command, the two runs of ``raw``."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copytree(mini_run.out / "store", folder / "runs" / "store")
    for left in (folder / "runs" / "store").glob("*.lock"):
        left.unlink()
    file, out = written(folder, TINY), folder / "runs"
    for arm in arms_of(file):
        if arm.variant == "raw":
            options = ["--name", arm.run, "--until", arm.target]
            mini_run.gristmill("run", str(folder / "mini.yaml"), *arm.overrides, *options, out=out)
    return file, out


def alive(out: Path) -> list[int]:
    """Processes whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if str(out).encode() in command and b"gristmill.recipes.study.arm" in command:
            found.append(int(path.parent.name))
    return found


def test_a_study_is_interrupted_resumed_and_then_free(mini_run, tiny):
    file, out = tiny
    process = mini_run.start("study", str(file), out=out, OMP_NUM_THREADS="1")
    logs, end = out / "studies" / "tiny" / "logs", time.time() + 90
    while not any("running" in log.read_text() for log in logs.glob("*.log")) and time.time() < end:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    assert alive(out) or not Path("/proc/self").exists()
    process.send_signal(signal.SIGINT)
    assert {log.name for log in logs.glob("*.log")} <= {"merged--1.log", "merged--2.log"}, "a finished run ran again"
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in stderr, stderr
    assert not alive(out), "an arm outlived its study"

    done = mini_run.gristmill("study", str(file), "--json", out=out)
    results = json.loads(done.stdout)
    written_at = {p: p.stat().st_mtime_ns for p in [*out.glob("store/*/manifest.json"), *logs.glob("*.log")]}
    again = mini_run.gristmill("study", str(file), "jobs=1", "--json", out=out)
    assert "4 runs, 4 of them done" in again.stderr
    assert {p: p.stat().st_mtime_ns for p in written_at} == written_at and len(list(logs.glob("*.log"))) == 2
    assert without_machine(json.loads(again.stdout)) == without_machine(results)

    assert results["compute"]["runs"] == 4 and results["compute"]["trainings"] == 2
    assert results["seed_varies"] == ["pretrain"]
    by = {(arm["variant"], arm["seed"]): arm["value"] for arm in results["arms"]}
    (comparison,) = results["comparisons"]
    assert comparison["by_seed"] == {str(s): by["merged", s] - by["raw", s] for s in (1, 2)}
    assert comparison["mean"] == pytest.approx(sum(comparison["by_seed"].values()) / 2)
    folder = out / "studies" / "tiny"
    assert comparison["sentence"] in (folder / "study.md").read_text("utf-8")
    drawn = ElementTree.parse(folder / "study.svg").getroot()
    dots = [e for e in drawn.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(dots) == 4 + 2  # every score and every difference


def without_machine(results: dict) -> dict:
    return {key: value for key, value in results.items() if key != "provenance"}


def test_an_arm_is_the_ordinary_run_whatever_runs_beside_it(mini_run, tiny, tmp_path):
    """The same recipe and overrides alone, elsewhere, in one process: the very bits the study's child made."""
    file, out = tiny
    mini_run.gristmill("study", str(file), out=out)
    arm = json.loads((out / "studies" / "tiny" / "results.json").read_text())["arms"][1]
    assert (arm["variant"], arm["seed"]) == ("merged", 1)
    recipe = str(file.parent / "mini.yaml")
    shutil.copytree(mini_run.out / "store", tmp_path / "store", ignore=shutil.ignore_patterns("*.lock"))
    mini_run.gristmill("run", recipe, *arm["overrides"], "--name", "x", "--until", "eval.merged", out=tmp_path)
    alone = json.loads((tmp_path / "x" / "run.json").read_text())["stages"]
    assert alone == arm["artefacts"] and "eval.raw" not in alone
    for name in (alone["pretrain"], alone["eval.merged"]):
        a, b = (json.loads((root / "store" / name / "manifest.json").read_text()) for root in (out, tmp_path))
        assert a["content"] == b["content"]


def test_a_failed_arm_is_one_line_that_names_its_log(mini_run, tiny):
    file, out = tiny
    bad = "variants={bad: {eval: raw, set: {train.checkpoints: 5000}}, worse: {eval: raw, set: {merge.last: 1}}}"
    done = mini_run.gristmill("study", str(file), bad, "seeds=[1]", out=out, code=2)
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("gristmill: ")]
    assert "bad, seed 1" in line and "train.checkpoints" in line and "5000" in line
    log = Path(line.removeprefix("gristmill: ").split(".log")[0] + ".log")
    assert "more checkpoints than steps" in log.read_text()
    assert not (log.parents[1] / "results.json").exists()
