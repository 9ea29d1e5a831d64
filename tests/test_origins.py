"""Sources that are no local files: the same text another day, known by its content or its pin, or one line that says
why not; and worked problems that no evaluation asks."""

from __future__ import annotations

import json

import fsspec
import mini
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gristmill.data import corpus, fetch, hub, problems, remote
from gristmill.data.readers import read
from gristmill.data.sources import FilesOrigin, HubOrigin, ProblemsOrigin, SourceConfig
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.textschema import validator

FACTS = {"domain": "math", "lang": "en", "licence": "MIT"}
SUMS = {"task": "chain_sum", "options": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def source(origin: dict, how, **more) -> SourceConfig:
    """As a recipe says it: every value still the text of a YAML file."""
    return validator(SourceConfig).validate_python({"from": origin, "read": how, **FACTS, **more})


def texts(config: SourceConfig, cache, root=None, dropped=None):
    return list(read(config, fetch.fetch(config.origin, cache, root or cache), "skip", dropped))


# --- worked problems --------------------------------------------------------------------------------------------


def made(cache, **changes):
    origin = {"kind": "reasoning_gym", "generators": [SUMS], "problems": "100", "per_document": "8", **changes}
    return texts(source(origin, {"jsonl": "text"}), cache)


def test_problems_are_the_same_in_every_cache_and_differ_by_seed(tmp_path):
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    assert first == second and made(tmp_path / "a") == first
    assert made(tmp_path / "a", seed="1") != first
    origin = ProblemsOrigin(generators=(SUMS,), problems=100)
    records = [fetch.fetch(origin, tmp_path / c).record() for c in "ab"]
    assert records[0] == records[1] and records[0]["from"]["library"] == problems.library_version()


def test_a_document_is_solved_problems_in_the_layout_evaluation_asks_in(tmp_path):
    from gristmill.eval.arithmetic import layout

    documents = [d["text"] for d in made(tmp_path)]
    assert len(documents) == 13  # 12 of 8 problems, and one of 4
    solved = problems.generate((problems.Generator(**SUMS),), 100, 0, "train")
    assert documents[0] == layout(solved[:7], solved[7]) + solved[7].answer
    assert documents[-1].count("\n\n") == 3


def test_no_test_question_is_in_the_text(tmp_path):
    documents = [d["text"] for d in made(tmp_path, problems="3000")]
    questions = [block.rpartition("\n")[0] for text in documents for block in text.split("\n\n")]
    assert len(set(questions)) == 3000 and not any(map(problems.is_test, questions))


def test_another_version_of_the_generators_is_another_source(tmp_path, monkeypatch):
    sources = {"sums": source({"kind": "reasoning_gym", "generators": [SUMS], "problems": "10"}, {"jsonl": "text"})}
    now = corpus.external(sources, tmp_path, tmp_path)
    assert now == {"sums": f"reasoning-gym=={problems.library_version()}"}
    monkeypatch.setattr(problems, "library_version", lambda: "9.9")
    assert corpus.external(sources, tmp_path, tmp_path) != now
    assert fetch.fetch(sources["sums"].origin, tmp_path).provenance["library"] == "9.9"


def test_a_damaged_spool_is_made_again(tmp_path):
    first = made(tmp_path)
    (path,) = tmp_path.rglob("problems.jsonl")
    path.write_text('{"text": "altered"}\n')
    assert made(tmp_path) == first


def test_sums_survive_a_run_and_mistakes_in_them_name_the_source(mini_run, tmp_path):
    """Numbers are all one to MinHash: without `skip` two thirds of these documents would go as duplicates."""
    sums = {
        "from": {"kind": "reasoning_gym", "generators": [SUMS], "problems": 400},
        "read": {"jsonl": "text"},
        **FACTS,
    }
    mix = {**mini.RECIPE["mix"], "sums": ["all"] * 5}

    def recipe(name, skip):
        dedup = {"minhash": {"skip": skip}}
        return mini.write(tmp_path, name=name, sources={**mini.RECIPE["sources"], "sums": sums}, mix=mix, dedup=dedup)

    path, out = recipe("sums", ["sums"]), tmp_path / "runs"
    mini_run.gristmill("run", str(path), "--until", "dedup", out=out)
    assert mini.artefacts(out, "sums")["dedup"]["ledger"]["sums"]["kept"][0] == 50
    assert "reasoning-gym==" in mini.artefacts(out, "sums")["corpus"]["external"]["sums"]
    mini_run.gristmill("run", str(recipe("eaten", [])), "--until", "dedup", out=out)
    assert mini.artefacts(out, "eaten")["dedup"]["ledger"]["sums"]["kept"][0] < 20
    said = mini_run.gristmill("plan", str(recipe("typo", ["sumz"])), out=out, code=2).stderr
    assert "dedup.minhash.skip: no such source; got 'sumz'; did you mean 'sums'" in said
    sums["from"]["generators"] = [{**SUMS, "options": {"min_trms": 2}}]
    said = mini_run.gristmill("run", str(recipe("option", ["sums"])), "--until", "corpus", out=out, code=2).stderr
    assert "sources.sums: options: reasoning-gym's chain_sum refuses its options" in said
    assert said.strip().count("\n") <= 1  # the stage's own line, and the mistake's


# --- Hugging Face datasets --------------------------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path):
    """A dataset as the hub lays one out: two configurations, two splits."""
    folder = tmp_path / "data sets" / "tiny"
    (folder / "plain").mkdir(parents=True)
    rows = [{"text": f"row {k}", "score": k / 8, "note": None if k % 25 < 20 else "late"} for k in range(50)]
    for name, part in (("train-0", rows[:25]), ("train-1", rows[25:]), ("test-0", rows[:3])):
        (folder / "plain" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    configs = [
        {
            "config_name": "plain",
            "data_files": [
                {"split": "train", "path": "plain/train-*.jsonl"},
                {"split": "test", "path": "plain/test-*.jsonl"},
            ],
        },
        {"config_name": "more", "data_files": "plain/test-*.jsonl"},
    ]
    (folder / "README.md").write_text("---\n" + yaml.safe_dump({"configs": configs}) + "---\n")
    return folder


def rows_of(dataset, how="text", columns=(), **more):
    config = source({"kind": "hf", "path": "tiny", **more}, {"parquet": how}, columns=list(columns))
    return texts(config, dataset.parent / "cache", dataset.parent)


def test_a_local_dataset_is_read_by_configuration_split_and_limit(dataset, monkeypatch):
    assert rows_of(dataset, config="plain", columns=["score"]) == [
        {"text": f"row {k}", "score": k / 8} for k in range(50)
    ]
    assert [d["text"] for d in rows_of(dataset, config="plain", split="test")] == ["row 0", "row 1", "row 2"]
    assert len(rows_of(dataset, config="plain", limit="7")) == 7
    assert len(rows_of(dataset, config="more")) == 3
    # a spool of several files, and a column that is empty in the first of them
    monkeypatch.setattr(hub, "ROWS", 20)
    monkeypatch.setattr(hub, "_BATCH", 10)
    late = rows_of(dataset, config="plain", columns=["note"], limit="45")
    assert [d["text"] for d in late] == [f"row {k}" for k in range(20, 25)]


def test_a_folder_of_parquet_is_a_dataset_too(tmp_path):
    (tmp_path / "tiny").mkdir()
    table = pa.table({"body": ["a", "b", "c"], "more": [{"score": 1.5}] * 3})
    pq.write_table(table, tmp_path / "tiny" / "train-00000-of-00001.parquet", row_group_size=2)
    assert rows_of(tmp_path / "tiny", "body", ["more.score"])[2] == {"text": "c", "more.score": 1.5}


def test_a_local_dataset_is_known_by_its_content(dataset):
    def identity(root):
        return fetch.identity(HubOrigin(path="tiny", config="plain"), root, root)

    before = identity(dataset.parent)
    moved = dataset.parent.rename(dataset.parent.with_name("moved"))
    assert identity(moved) == before
    file = moved / "tiny" / "plain" / "train-0.jsonl"
    file.write_text(file.read_text().replace("row 3", "row X"))
    assert identity(moved) != before
    assert rows_of(moved / "tiny", config="plain")[3]["text"] == "row X"  # not the spool of what it was


@pytest.mark.parametrize(
    "origin, message",
    [
        ({"path": "tiny"}, "tiny: the dataset cannot be read: .*plain"),  # which configuration?
        ({"path": "tiny", "config": "plan"}, "the dataset cannot be read: .*'plan' not found.*plain"),
        ({"path": "tiny", "config": "plain", "split": "tset"}, "Bad split: tset.*train"),
        ({"path": "tinny"}, "tinny: no such folder; a dataset on the hub is named by `name`"),
    ],
)
def test_what_a_dataset_lacks_is_one_line(dataset, origin, message):
    with pytest.raises(BadInput, match=message) as error:
        rows_of(dataset, **origin)
    assert "\n" not in str(error.value)


class Hub:
    """Stands for the hub's client: one dataset, whose main branch is at COMMIT."""

    def dataset_info(self, name, revision=None, timeout=None):
        if name != "owner/tiny":
            raise ConnectionError("Name or service not known\n" + "and a page of advice " * 99)
        return type("Info", (), {"sha": COMMIT})


def test_a_hub_dataset_is_pinned_to_a_commit_or_refused(monkeypatch, tmp_path):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    for revision in (None, "main", COMMIT[:7]):
        with pytest.raises(BadInput, match=rf"owner/tiny: from.revision: .*must be a commit.*now {COMMIT}"):
            fetch.identity(HubOrigin(name="owner/tiny", revision=revision), tmp_path, tmp_path)
    assert fetch.identity(HubOrigin(name="owner/tiny", revision=COMMIT), tmp_path, tmp_path) is None


def test_a_hub_out_of_reach_is_one_line(monkeypatch, tmp_path):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    for revision in (None, COMMIT):
        with pytest.raises(BadInput, match="owner/other.*Name or service not known") as error:
            fetch.fetch(HubOrigin(name="owner/other", revision=revision), tmp_path)
        assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_a_hub_datasets_rows_come_from_its_commit(monkeypatch, tmp_path, dataset):
    """The library is asked for exactly the pinned commit, once: the second time the spool answers."""
    import datasets
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    asked, load = [], datasets.load_dataset

    def stand_in(where, **given):
        asked.append((where, given.pop("revision")))
        return load(str(dataset), **given)

    monkeypatch.setattr(datasets, "load_dataset", stand_in)
    origin = HubOrigin(name="owner/tiny", config="plain", revision=COMMIT)
    first = fetch.fetch(origin, tmp_path / "cache")
    assert first.provenance["revision"] == COMMIT
    assert fetch.fetch(origin, tmp_path / "cache") == first and asked == [("owner/tiny", COMMIT)]


@pytest.mark.parametrize(
    "origin, how, message",
    [
        ({"kind": "hf"}, {"parquet": "text"}, "give `name`.*or `path`"),
        ({"kind": "hf", "name": "a/b", "path": "c"}, {"parquet": "text"}, "one of them"),
        ({"kind": "hf", "path": "c", "revision": COMMIT}, {"parquet": "text"}, "a local folder has none"),
        ({"kind": "hf", "name": "a/b/c"}, {"parquet": "text"}, "pattern"),
        ({"kind": "hf", "path": "c"}, {"jsonl": "text"}, "kind hf is read as {parquet: TEXT_COLUMN}, not jsonl"),
        ({"kind": "reasoning_gym", "generators": [SUMS], "problems": "9"}, "lines", "read as {jsonl: text}, not lines"),
        ({"kind": "reasoning_gym", "generators": [], "problems": "9"}, {"jsonl": "text"}, "at least 1"),
    ],
)
def test_an_origin_that_cannot_work_is_refused(origin, how, message):
    with pytest.raises(ValueError, match=message):
        source(origin, how)


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket():
    """An object store in memory, empty at the end."""
    storage = fsspec.filesystem("memory")
    for name, text in (
        ("in/b.txt", "b"),
        ("in/a.txt", "a"),
        ("in/deep/c.jsonl", '{"text": "c"}'),
        ("in/.hidden", "no"),
    ):
        storage.pipe(f"/{name}", text.encode())
    yield storage
    storage.rm("/in", recursive=True)


def names(url, cache):
    return [raw.name for raw in fetch.fetch(FilesOrigin(path=url), cache).files]


def test_addresses_name_files_as_local_paths_do(bucket, tmp_path):
    assert names("memory://in/b.txt", tmp_path) == ["b.txt"]
    assert names("memory://in", tmp_path) == names("memory://in/", tmp_path) == ["a.txt", "b.txt", "deep/c.jsonl"]
    assert names("memory://in/*.txt", tmp_path) == names("memory://in/[ab].txt", tmp_path) == ["a.txt", "b.txt"]
    assert names("memory://in/**/*.jsonl", tmp_path) == ["deep/c.jsonl"]
    assert texts(source({"kind": "files", "path": "memory://in/*.txt"}, "lines"), tmp_path) == [
        {"text": "a"},
        {"text": "b"},
    ]


def test_the_same_files_anywhere_are_the_same_source(bucket, tmp_path):
    for name in ("a.txt", "deep/c.jsonl", "b.txt"):
        path = tmp_path / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.cat(f"/in/{name}"))
    origins = [FilesOrigin(path=p) for p in ("memory://in", "local", (tmp_path / "local").as_uri())]
    assert len({fetch.identity(origin, tmp_path / "cache", tmp_path) for origin in origins}) == 1


def test_only_what_changed_is_copied_again(bucket, tmp_path, monkeypatch):
    copied = []
    get = type(bucket).get_file
    monkeypatch.setattr(
        type(bucket), "get_file", lambda fs, path, *a, **k: (copied.append(path), get(fs, path, *a, **k))
    )
    origin = FilesOrigin(path="memory://in/*.txt")
    before = fetch.identity(origin, tmp_path, tmp_path)
    assert fetch.identity(origin, tmp_path, tmp_path) == before and copied == ["/in/a.txt", "/in/b.txt"]
    bucket.pipe("/in/a.txt", b"z")  # as long as it was
    assert fetch.identity(origin, tmp_path, tmp_path) != before and copied[2:] == ["/in/a.txt"]


def test_a_damaged_copy_is_noticed_and_mended(bucket, tmp_path):
    origin = FilesOrigin(path="memory://in/a.txt")
    first = fetch.fetch(origin, tmp_path)
    first.files[0].path.write_bytes(b"y")
    with pytest.raises(BadInput, match="cached copy is damaged"):
        fetch.fetch(origin, tmp_path)
    assert fetch.fetch(origin, tmp_path) == first and first.files[0].path.read_bytes() == b"a"


def test_a_storage_out_of_reach_is_one_line_or_the_files_copied_before(bucket, tmp_path, monkeypatch, capsys):
    origin = FilesOrigin(path="memory://in/*.txt")

    def down(*_, **__):
        raise OSError("the network is down\nand more")

    first = fetch.fetch(origin, tmp_path / "a")
    monkeypatch.setattr(type(bucket), "glob", down)
    assert fetch.fetch(origin, tmp_path / "a") == first
    assert "memory://in/*.txt: out of reach (OSError: the network is down); using the files" in capsys.readouterr().err
    with pytest.raises(BadInput, match=r"in/\*.txt: out of reach \(OSError: the network is down\)$"):
        fetch.fetch(origin, tmp_path / "b")


@pytest.mark.parametrize(
    "url, message",
    [
        ("memory://in/none.txt", "memory://in/none.txt: no such file, or no file matches"),
        ("memory://in/*.parquet", "no such file, or no file matches"),
        ("memroy://in/a.txt", "no such protocol 'memroy'; did you mean 'memory'"),
        ("https://127.0.0.1:9/a.txt", r"https://127.0.0.1:9/a.txt: out of reach \(ClientConnectorError"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_line(bucket, tmp_path, url, message):
    with pytest.raises(BadInput, match=message) as error:
        fetch.fetch(FilesOrigin(path=url), tmp_path)
    assert "\n" not in str(error.value)


def test_a_protocol_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    entry = {"class": "nosuchpackage.core.FileSystem", "err": "Install it to reach it"}
    monkeypatch.setitem(remote.known_implementations, "store", entry)
    with pytest.raises(BadInput, match="store:// needs a package that is not installed; `pip install nosuchpackage`"):
        fetch.fetch(FilesOrigin(path="store://bucket/a.txt"), tmp_path)


def test_no_credentials_are_shown_or_recorded(tmp_path):
    with pytest.raises(ValueError, match="leave the password to fsspec's own settings"):
        source({"kind": "files", "path": "https://user:hunter2@127.0.0.1:9/a.txt"}, "lines")
    url = "https://user@127.0.0.1:9/a.txt?sig=secret"
    assert remote.address(url) == "https://127.0.0.1:9/a.txt"
    with pytest.raises(BadInput, match="out of reach") as error:
        fetch.fetch(FilesOrigin(path=url), tmp_path)
    assert "user" not in str(error.value) and "secret" not in str(error.value)


def test_files_over_http_are_named_without_their_query(tmp_path, monkeypatch):
    import functools
    import http.server
    import threading

    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.jsonl").write_text('{"text": "over http, [[see](x.html) <a href=y>"}\n')
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"http://127.0.0.1:{server.server_address[1]}/a.jsonl?version=2"
    try:
        got = fetch.fetch(FilesOrigin(path=url), tmp_path / "cache")
        assert [raw.name for raw in got.files] == ["a.jsonl"] and "version" not in str(got.record())
        (document,) = texts(source({"kind": "files", "path": url}, {"jsonl": "text"}), tmp_path / "cache")
        assert document["text"].startswith("over http")
        with pytest.raises(BadInput, match="b.jsonl: no such file"):
            fetch.fetch(FilesOrigin(path=url.replace("/a.", "/b.")), tmp_path / "cache")
    finally:
        server.shutdown()
        server.server_close()
