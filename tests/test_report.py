"""The report: one file that needs nothing else, shows what the store holds and no other number, and draws."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path

import mini
import pytest

from gristmill.kernels.common.config import Config
from gristmill.kernels.common.files import read_json, write_json
from gristmill.recipes.report import curriculum, page, posttraining, provenance, samples, words
from gristmill.recipes.report.views import open_views
from gristmill.recipes.runner.runs import RUN_FILE, open_run
from gristmill.recipes.runner.store import Node, Store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(html.parser.HTMLParser):
    """What a browser would find in a report: elements, text by section, and the charts' figures by title."""

    def __init__(self, path: Path):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.figures: dict[tuple[str, str], dict] = {}
        self.text: dict[str, str] = {}
        self._section, self._title, self._data, self._style, self._inside = "", "", "", "", ""
        self.styles = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if tag == "section":
            self._section = attributes["id"]
        if tag in ("figure", "h3"):
            self._title = ""
        self._inside = "figure" if attributes.get("type") == "application/json" else tag
        self._data = ""

    def handle_data(self, data):
        if self._inside == "figure":
            self._data += data
        elif self._inside == "style":
            self.styles += data
        elif self._inside != "script":
            self.text[self._section] = self.text.get(self._section, "") + data
            self._title += data if self._inside == "h3" else ""

    def handle_endtag(self, tag):
        if tag == "script" and self._inside == "figure":
            self.figures[self._section, self._title] = json.loads(self._data)
        self._inside = ""

    def traces(self, section: str, title: str) -> dict[str, dict]:
        return {trace["name"]: trace for trace in self.figures[section, title]["data"]}


@pytest.fixture(scope="module")
def report(mini_run) -> Page:
    return Page(mini_run.out / "mini" / "report.html")  # `run` wrote it


@pytest.fixture
def copy(mini_run, tmp_path) -> Path:
    """A copy of the runs' folder that a test may change."""
    return Path(shutil.copytree(mini_run.out, tmp_path / "runs"))


def views(out: Path, *names: str):
    return open_views([open_run(name, out) for name in names or ("mini",)])


def test_the_page_needs_nothing_else(report):
    for tag, attributes in report.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            link = attributes.get(name) or "#"
            assert link.startswith(("#", "data:")), f"<{tag} {name}={link}>"
    assert not re.search(r"@import|url\(", report.styles)
    policy = next(a["content"] for tag, a in report.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "http" not in policy
    ids = [attributes["id"] for _, attributes in report.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for tag, a in report.elements if tag == "a"} <= set(ids)


def test_every_chart_has_a_text_and_a_caption(report):
    charts = [attributes for _, attributes in report.elements if attributes.get("class") == "chart"]
    ids = {attributes.get("id") for tag, attributes in report.elements if tag == "figcaption"}
    assert len(charts) == len(report.figures) >= 7
    assert all(len(c["aria-label"]) > 20 and c["aria-describedby"] in ids for c in charts)


def test_the_funnel_is_the_ledgers(mini_run, report):
    manifests = mini.artefacts(mini_run.out)
    kept = report.traces("funnel", "Documents kept")
    stages = ["corpus", "clean", "dedup", "score", "split"]
    for source in mini.RECIPE["sources"]:
        ledgers = [manifests[stage]["ledger"][source] for stage in stages]
        assert kept[source]["y"] == ["read", *stages]
        assert kept[source]["x"] == [ledgers[0]["in"][0], *(ledger["kept"][0] for ledger in ledgers)]
    reasons = report.traces("funnel", "Reasons")
    for source in mini.RECIPE["sources"]:
        lost = sum(reasons[source]["customdata"]) if source in reasons else 0
        first, last = kept[source]["x"][0], kept[source]["x"][-1]
        assert lost == first - last
    assert "length: too short (1.1 %)" in report.text["funnel"]


def test_the_mixture_is_the_ledgers(mini_run, report):
    manifests = mini.artefacts(mini_run.out)
    mix, own = manifests["mix"]["ledger"], manifests["tokens"]["ledger"]
    shares = report.traces("mixture", "Shares")
    for k, (phase, entries) in enumerate(mix.items()):
        total = sum(entry["tokens"] for entry in entries.values())
        assert sum(shares[source]["x"][k] for source in shares) == pytest.approx(100)
        assert sum(shares[source]["customdata"][k][0] for source in shares) == total
        assert shares["english"]["y"][k] == f"{phase} · {words.count(total)}"
    (bars,) = report.figures["mixture", "Passes"]["data"]
    for source, passes in zip(bars["y"], bars["x"], strict=True):
        trained = sum(entries.get(source, {"tokens": 0})["tokens"] for entries in mix.values())
        assert passes == trained / own[source]["tokens"]


def test_the_token_ledger_adds_up_and_says_so(mini_run, report):
    from gristmill.recipes.report import ledger

    (view,) = views(mini_run.out)
    lines = ledger.entries(view)
    assert [total for _, total, _ in lines] == [sum(n for _, n in parts) for _, _, parts in lines]
    assert len(lines) == 5 and all(f"{total:,}" in report.text["ledger"] for _, total, _ in lines)
    assert "NO" not in report.text["ledger"]


def test_scores_stand_with_their_errors(mini_run, report):
    for name in ("raw", "merged"):
        scores = read_json(mini_run.artefact(f"eval.{name}") / "scores.json")
        trace = report.traces("scores", "bpb: bits per byte")[name]
        domains = scores["domains"].values()
        assert trace["x"] == [scores["tasks"]["bpb"]["value"], *(d["bits_per_byte"] for d in domains)]
        assert trace["error_x"]["array"] == [scores["tasks"]["bpb"]["stderr"], *(d["stderr"] for d in domains)]
        assert f"{trace['x'][0]:.4f} ±{trace['error_x']['array'][0]:.4f}" in report.text["scores"]


def test_the_training_chart_is_the_log(mini_run, report):
    lines = [json.loads(line) for line in (mini_run.artefact("pretrain") / "metrics.jsonl").read_text().splitlines()]
    traces = report.traces("training", "")
    assert traces["loss, each step"]["y"] == [round(line["loss"], 4) for line in lines]
    assert traces["learning rate"]["y"] == [line["lr"] for line in lines]
    assert len(traces["checkpoints"]["x"]) == mini.RECIPE["train"]["checkpoints"]
    used = read_json(mini_run.artefact("merge") / "merge.json")["checkpoints"]
    merged = next(trace for name, trace in traces.items() if name.startswith("merged"))
    assert merged["x"] == [pytest.approx(sum(c["step"] * c["weight"] for c in used))]
    assert merged["x"][0] - merged["error_x"]["arrayminus"][0] == used[0]["step"]


def test_a_shuffle_is_flat_and_a_curriculum_rises(mini_run):
    (view,) = views(mini_run.out)
    phases = curriculum.phases(view)
    mix = view.ledger("mix")
    assert [phase.name for phase in phases] == list(mix)
    for phase in phases:
        assert phase.documents.sum() == sum(entry["documents"] for entry in mix[phase.name].values())
        assert phase.stop - phase.start == sum(entry["tokens"] for entry in mix[phase.name].values())
        assert (phase.start < phase.x).all() and (phase.x < phase.stop).all()
        third = len(phase.mean) // 3
        rise = phase.mean[-third:].mean() - phase.mean[:third].mean() if third else None
        if phase.order == "shuffle":
            assert abs(rise) < 0.15
        elif third:
            assert rise > 0.15 and (phase.mean[1:] > phase.mean[:-1] - 0.02).all()
    assert phases[0].mean.mean() == pytest.approx(0.5, abs=0.05)  # all of english: every quantile once


def test_hostile_text_stays_text(copy):
    evil = "</script></dd><img src=x onerror=alert(1)>&amp;<script>alert(2)</script>"
    folder = copy / "mini"
    kept = read_json(folder / samples.FILE)
    kept["samples"][0]["lines"][0]["text"] = evil
    kept["samples"][0]["prompt"] = evil
    write_json(folder / samples.FILE, kept)
    (folder / "report.html").unlink()
    # names come from a recipe; Plotly reads a subset of HTML
    record = read_json(folder / RUN_FILE)
    record["recipe"]["name"] = evil
    write_json(folder / RUN_FILE, record)
    found = Page(page.report([open_run("mini", copy)]))
    assert not [tag for tag, _ in found.elements if tag == "img"]
    assert found.text["samples"].count(evil) == 2 and evil in found.text[""]
    assert words.plain("<b>a</b> & b") == "&lt;b&gt;a&lt;/b&gt; &amp; b"
    assert "<" not in page.figure_json({"name": evil})


def test_a_second_report_is_the_same_and_draws_no_samples(copy, monkeypatch):
    path = copy / "mini" / "report.html"
    before, written = path.read_bytes(), path.stat().st_mtime_ns
    monkeypatch.setattr(samples, "_draw", lambda *a: pytest.fail("drew samples again"))
    assert page.report([open_run("mini", copy)]) == path.resolve()
    assert path.stat().st_mtime_ns == written  # nothing changed: not even written
    path.unlink()
    page.report([open_run("mini", copy)])
    assert path.read_bytes() == before


def test_samples_follow_from_the_artefacts(copy):
    (view,) = views(copy)
    kept = samples.samples(view)
    assert {sample["domain"] for sample in kept} == {"english", "chinese", "code"}
    steps = samples.checkpoints(view)
    for sample in kept:
        assert [line["step"] for line in sample["lines"]] == [*samples.spread(steps, samples.RAW), "merged"]
        assert len({line["text"] for line in sample["lines"]}) > 1
    (copy / "mini" / samples.FILE).write_text("{", "utf-8")  # a damaged file is no reason to stop
    assert samples.samples(view) == kept


def test_prompts_end_with_a_word():
    text = "The quick brown fox jumps over the lazy dog and runs away from everything that follows."
    prompt = samples.cut(text)
    assert text.startswith(prompt) and text[len(prompt)] == " " and len(prompt) <= samples.CUT
    assert samples.cut("的一是在不了有和人这中大为上个国我以要他" * 5) == "的一是在不了有和人这中大为上"
    assert samples.spread(list(range(10)), 4) == [0, 3, 6, 9] and samples.spread([1, 2], 4) == [1, 2]


def test_the_tree_reaches_every_stage_from_its_inputs(mini_run, report):
    (view,) = views(mini_run.out)
    made_from = provenance.inputs(view)
    assert made_from["pack"] == ["tokens", "mix"] and made_from["corpus"] == []
    paths, lanes = provenance.rails(list(made_from), made_from)
    ends = {(int(a), int(b)) for p in paths for a, b in re.findall(r"^M0 (\d+) .*[V ](\d+)$", p)}
    row = {key: k for k, key in enumerate(made_from)}
    assert ends == {(row[source], row[key]) for key, sources in made_from.items() for source in sources}
    assert 1 <= lanes <= 5
    for key, artefact in view.artefacts.items():
        assert key in report.text["provenance"] and artefact.name in report.text["provenance"]
        assert any(artefact.content in (a.get("title") or "") for _, a in report.elements)


def test_no_two_rails_share_a_lane_at_once():
    made_from = {"a": [], "b": ["a"], "c": ["a"], "d": ["b"], "e": ["a", "c"], "f": ["c"]}
    paths, _ = provenance.rails(list(made_from), made_from)
    taken: dict[int, list[tuple[int, int]]] = {}
    for path in paths:
        found = re.match(r"M0 (\d+) C\S+ \d+ -(\d+) .* 0 (\d+)$", path)
        if found:
            start, lane, stop = map(int, found.groups())
            taken.setdefault(lane, []).append((start, stop))
    assert len(taken) > 1
    for spans in taken.values():
        for a, b in ((a, b) for a in spans for b in spans if a[0] < b[0]):
            assert a[1] <= b[0], f"{a} and {b} share a lane"


def test_a_run_that_has_not_got_far_is_drawn_as_far_as_it_got(copy, monkeypatch):
    monkeypatch.setattr(samples, "_draw", lambda view, models, prompts: [{**p, "lines": []} for p in prompts])
    run = open_run("mini", copy)
    stages = run.record["stages"]
    for last, absent in (
        ("corpus", "no split stage"),
        ("split", "no tokens"),
        ("mix", "no pretrain"),
        ("pretrain", ""),
    ):
        keys = list(stages)[: list(stages).index(last) + 1]
        write_json(run.folder / RUN_FILE, {**run.record, "stages": {key: stages[key] for key in keys}})
        found = Page(page.report([open_run("mini", copy)]))
        said = " ".join(found.text.values())
        assert absent in said and "no finished evaluation" in said
        assert ("training", "") in found.figures or last != "pretrain"


def test_bad_runs_are_one_line(mini_run, copy):
    done = mini_run.gristmill("report", "mimi", code=2)
    assert done.stderr.count("\n") == 1 and "did you mean 'mini'" in done.stderr
    done = mini_run.gristmill("report", "mini", "mini", code=2)
    assert done.stderr.count("\n") == 1 and "itself" in done.stderr
    record = read_json(copy / "mini" / RUN_FILE)
    write_json(copy / "mini" / RUN_FILE, {**record, "stages": {}})
    done = mini_run.gristmill("report", "mini", out=copy, code=2)
    assert done.stderr.count("\n") == 1 and "no finished stage" in done.stderr


class LogConfig(Config):
    """A stage that logs."""


def test_what_follows_pretraining_is_drawn_number_by_number(copy):
    def log(config, inputs, out):
        lines = [{"step": k, "loss": 2 - k / 10, "kind": "sft", "done": k == 4} for k in range(5)]
        lines[2]["greedy_reward"], lines[3]["greedy_reward"] = 0.25, 0.5  # logged now and then
        lines[1]["lr"] = 0.01
        (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return {"steps": 5}

    node = Node("posttrain.sft", "posttrain", 1, LogConfig(), log)
    made = Store(copy).build(node, {})
    record = read_json(copy / "mini" / RUN_FILE)
    record["stages"]["posttrain.sft"] = made.name
    write_json(copy / "mini" / RUN_FILE, record)
    found = Page(page.report([open_run("mini", copy)]))
    assert found.figures["posttraining", "sft: loss"]["data"][0]["y"] == [2, 1.9, 1.8, 1.7, 1.6]
    assert found.figures["posttraining", "sft: greedy reward"]["data"][0]["x"] == [2, 3]
    assert "the same throughout: lr 0.01." in found.text["posttraining"]
    assert ("posttraining", "sft: done") not in found.figures and ("posttraining", "sft: kind") not in found.figures
    assert posttraining.series([{"a": float("nan")}, {"a": 1}]) == {"a": [(1, 1)]}


@pytest.fixture(scope="module")
def other(mini_copy) -> Page:
    """The report of the miniature beside a run that merges fewer checkpoints and stops at its score."""
    mini_copy.gristmill("run", str(mini_copy.recipe), "merge.last=2", "--name", "other", "--until", "eval.merged")
    done = mini_copy.gristmill("report", "mini", "other")
    path = mini_copy.out / "mini" / "report-vs-other.html"
    assert done.stdout.strip() == str(path.resolve())
    return Page(path)


def test_two_runs_side_by_side(mini_copy, other):
    assert "merge.last32" in re.sub(r"\s", "", other.text["difference"])
    assert "Different: merge, eval.merged. Only mini has: eval.raw." in other.text["difference"]
    traces = other.traces("scores", "bpb: bits per byte")
    assert set(traces) == {"mini: raw", "mini: merged", "other: merged"}
    assert traces["mini: merged"]["x"] != traces["other: merged"]["x"]
    training = other.traces("training", "")
    assert training["mini: loss"]["y"] == training["other: loss"]["y"]
    assert ("mixture", "mini: shares") in other.figures and ("mixture", "other: shares") in other.figures
    stages = [set(view.run.record["stages"].items()) for view in views(mini_copy.out, "mini", "other")]
    shared = [a for tag, a in other.elements if tag == "li" and a.get("class") == "shared"]
    assert len(shared) == 2 * len(stages[0] & stages[1]) > 0


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("name", ["report.html", "report-vs-other.html"])
def test_a_browser_draws_every_chart_without_complaint(mini_copy, other, name, tmp_path):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += ["--enable-logging=stderr", "--v=0", "--window-size=500,900", "--virtual-time-budget=20000"]
    path = mini_copy.out / "mini" / name
    done = subprocess.run(
        [*command, f"--user-data-dir={tmp_path}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    expected = len(Page(path).figures)
    drawn = re.findall(r"<div[^>]*class=\"[^\"]*js-plotly-plot[^\"]*\"", done.stdout)
    assert f'data-drawn="{expected}"' in done.stdout and len(drawn) == expected
    assert done.stdout.count('class="main-svg"') >= expected
