"""Raw files are what the index promised, come without a build or a second download, and stay inside the cache."""

import hashlib
import http.server
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from gristmill.data import package_index
from gristmill.data.fetch import Fetched, fetch
from gristmill.data.sources import FilesOrigin, Origin, PypiOrigin, SourceConfig, StdlibOrigin
from gristmill.kernels.common.errors import BadInput

WHEEL, SDIST = "corpus_pack-1.2-py3-none-any.whl", "corpus-pack-1.2.tar.gz"
BOTH = {
    "corpus_pack/data/poems.txt": b"one\ntwo\n",
    "corpus_pack/data/notes.txt": b"three\n",
    "corpus_pack/__init__.py": b"",
}


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in members.items():
            z.writestr(name, data)
    return path


def sdist(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    mode = {".gz": "w:gz", ".bz2": "w:bz2"}[path.suffix]
    with tarfile.open(path, mode) as t:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            t.addfile(info)
    return path


class Index:
    """A PEP 503 index in a folder, served on this machine; ``asked`` lists the paths requested."""

    def __init__(self, folder: Path):
        self.folder, self.asked = folder, []
        (folder / "files").mkdir(parents=True)
        index = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, directory=str(folder), **kwargs)

            def log_message(self, *_):
                index.asked.append(self.path)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/simple/"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def publish(self, *archives: Path, sha256: str | None = None, hashes: bool = True) -> None:
        page = self.folder / "simple" / "corpus-pack" / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        links = []
        for path in archives:
            found = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
            links.append(f'<a href="../../files/{path.name}{f"#sha256={found}" if hashes else ""}">{path.name}</a>')
        page.write_text("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>")

    def downloads(self, name: str) -> int:
        return self.asked.count(f"/files/{name}")

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def index(tmp_path, monkeypatch):
    index = Index(tmp_path / "index")
    monkeypatch.setattr(package_index, "pip_settings", lambda: {"index-url": index.url})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield index
    index.stop()


@pytest.fixture
def published(index):
    files = index.folder / "files"
    archives = [
        wheel(files / WHEEL, BOTH),
        sdist(
            files / SDIST, {f"corpus-pack-1.2/{n}": d for n, d in {**BOTH, "extra/more.txt": b"only here\n"}.items()}
        ),
        sdist(files / "corpus-pack-1.0.tar.gz", {"a": b"a"}),
    ]
    index.publish(*archives)
    return index


def origin(member="*/poems.txt", version="1.2", **more) -> PypiOrigin:
    return PypiOrigin(package=f"corpus-pack=={version}", member=member, **more)


def test_members_come_from_the_wheel_with_their_hashes(published, tmp_path):
    got = fetch(origin(["*/notes.txt", "*/poems.txt"]), tmp_path / "cache")
    assert [raw.name for raw in got.files] == ["corpus_pack/data/notes.txt", "corpus_pack/data/poems.txt"]
    for raw in got.files:
        assert raw.path.read_bytes() == BOTH[raw.name] and raw.bytes == len(BOTH[raw.name])
        assert raw.sha256 == hashlib.sha256(BOTH[raw.name]).hexdigest()
    archive = published.folder / "files" / WHEEL
    assert got.provenance == {
        "kind": "pypi",
        "package": "corpus-pack",
        "version": "1.2",
        "filename": WHEEL,
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bytes": archive.stat().st_size,
        "from_index": True,
    }
    assert published.url not in str(got.record()) and str(tmp_path) not in str(got.record())
    assert Fetched.load(got.dump()) == got
    assert got.subset([1]).files == got.files[1:]


def test_the_sdist_is_read_where_the_wheel_lacks_a_member(published, tmp_path):
    got = fetch(origin(["*/poems.txt", "*/more.txt"]), tmp_path)
    assert got.provenance["filename"] == SDIST
    assert [raw.name for raw in got.files] == [
        "corpus-pack-1.2/corpus_pack/data/poems.txt",
        "corpus-pack-1.2/extra/more.txt",
    ]


def test_exclude_takes_members_away(published, tmp_path):
    got = fetch(origin("*.txt", exclude="*/notes.*"), tmp_path)
    assert [raw.name for raw in got.files] == ["corpus_pack/data/poems.txt"]


@pytest.mark.parametrize("name", ["corpus-pack-1.2.tar.bz2", "corpus-pack-1.2.zip"])
def test_other_sdist_formats(index, tmp_path, name):
    make = sdist if name.endswith(".bz2") else wheel
    index.publish(make(index.folder / "files" / name, {"corpus-pack-1.2/poems.txt": b"x"}))
    assert fetch(origin(), tmp_path).files[0].path.read_bytes() == b"x"


@pytest.mark.parametrize("hashes", [True, False])
def test_second_call_needs_no_network(published, tmp_path, monkeypatch, hashes):
    published.publish(published.folder / "files" / WHEEL, published.folder / "files" / SDIST, hashes=hashes)
    first = fetch(origin("*/more.txt"), tmp_path)
    assert first.provenance["from_index"] is hashes
    published.stop()
    monkeypatch.setattr(package_index, "pip_settings", lambda: pytest.fail("the index was asked"))
    assert fetch(origin("*/more.txt"), tmp_path) == first
    assert fetch(origin("*/poems.txt"), tmp_path).files  # another member of what is cached


def test_two_processes_share_one_cache_and_download_once(published, tmp_path):
    code = (
        "import sys; from pathlib import Path; from gristmill.data.fetch import fetch\n"
        "from gristmill.data.sources import PypiOrigin\n"
        "f = fetch(PypiOrigin(package='corpus-pack==1.2', member='*/more.txt'), Path(sys.argv[1]))\n"
        "assert f.files[0].path.read_bytes() == b'only here\\n'"
    )
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": published.url}
    environment.pop("PIP_EXTRA_INDEX_URL", None)
    command = [sys.executable, "-c", code, str(tmp_path / "cache")]
    running = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    assert published.downloads(WHEEL) == published.downloads(SDIST) == 1


def test_download_that_is_not_what_the_index_announced(published, tmp_path):
    published.publish(published.folder / "files" / WHEEL, sha256="0" * 64)
    found = hashlib.sha256((published.folder / "files" / WHEEL).read_bytes()).hexdigest()
    with pytest.raises(BadInput, match=f"{WHEEL}: download is not.*{found}.*{'0' * 64}"):
        fetch(origin(), tmp_path)
    assert not [p for p in tmp_path.joinpath("pypi").rglob("*") if p.is_file() and WHEEL in p.name]


@pytest.mark.parametrize("hashes", [True, False])
def test_damaged_cache_is_noticed_and_mended(published, tmp_path, hashes):
    published.publish(published.folder / "files" / WHEEL, hashes=hashes)
    first = fetch(origin(), tmp_path)
    cached = tmp_path / "pypi" / "corpus-pack" / "1.2" / WHEEL
    good = cached.read_bytes()
    cached.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))  # same size, one bit off
    with pytest.raises(BadInput, match="damaged.*sha256"):
        fetch(origin(), tmp_path)
    assert not cached.exists()
    assert fetch(origin(), tmp_path) == first and cached.read_bytes() == good


def test_extracted_member_that_was_altered_is_not_trusted(published, tmp_path):
    first = fetch(origin(), tmp_path)
    first.files[0].path.write_bytes(b"altered")
    assert fetch(origin(), tmp_path).files[0].path.read_bytes() == BOTH["corpus_pack/data/poems.txt"]


def test_wrong_names_are_answered_with_the_nearest_right_one(published, tmp_path):
    with pytest.raises(BadInput, match=r"no such version; got 'corpus-pack==1.1'.*nearest are 1.0, 1.2"):
        fetch(origin(version="1.1"), tmp_path)
    with pytest.raises(BadInput, match="no such package on the index; got 'corpus-pick'"):
        fetch(PypiOrigin(package="corpus-pick==1.2", member="*"), tmp_path)
    with pytest.raises(BadInput, match=rf"{WHEEL} has no.*{SDIST} has no.*did you mean 'corpus_pack/data/poems.txt'"):
        fetch(origin("*/poem.txt"), tmp_path)
    with pytest.raises(BadInput, match="and is not excluded"):
        fetch(origin("*/poems.txt", exclude="*/data/*"), tmp_path)


def test_network_down_is_one_line_that_says_what_was_tried(published, tmp_path, monkeypatch):
    published.stop()
    secret = published.url.replace("//", "//user:hunter2@")
    monkeypatch.setattr(package_index, "pip_settings", lambda: {"index-url": secret})
    with pytest.raises(BadInput, match=f"out of reach.*corpus-pack==1.2; tried {published.url}.*refused") as error:
        fetch(origin(), tmp_path)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "member", ["../evil.txt", "/tmp/evil.txt", "a/../../evil.txt", "a\\..\\evil.txt", "C:evil.txt"]
)
@pytest.mark.parametrize("make", [wheel, sdist])
def test_member_that_leads_out_of_the_archive_is_refused(index, tmp_path, member, make):
    name = WHEEL if make is wheel else SDIST
    index.publish(make(index.folder / "files" / name, {member: b"evil", "fine.txt": b"fine"}))
    with pytest.raises(BadInput, match="leads out of the archive"):
        fetch(origin("*evil.txt"), tmp_path / "cache")
    assert not list(tmp_path.joinpath("cache").rglob("evil.txt")) and not (tmp_path / "evil.txt").exists()
    assert fetch(origin("fine.txt"), tmp_path / "cache").files


def test_links_in_an_archive_are_not_members(index, tmp_path):
    index.publish(sdist(index.folder / "files" / SDIST, {"p/real.txt": b"x"}, {"p/link.txt": "/etc/passwd"}))
    assert [raw.name for raw in fetch(origin("*.txt"), tmp_path).files] == ["p/real.txt"]


@pytest.mark.parametrize("name", [WHEEL, SDIST])
@pytest.mark.parametrize("cut", [5, 60])  # in the trailer, where every member is still whole; in the data
def test_half_an_archive_is_named(published, tmp_path, name, cut):
    path = published.folder / "files" / name
    path.write_bytes(path.read_bytes()[:-cut])
    published.publish(path)
    with pytest.raises(BadInput, match=f"{name}: archive cannot be read"):
        fetch(origin(), tmp_path)


def test_pip_settings_are_obeyed(published, tmp_path, monkeypatch):
    """The main index lacks the package; the extra one is a folder, and holds it."""
    monkeypatch.undo()
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    published.stop()
    (tmp_path / "empty").mkdir()
    extra = (published.folder / "simple").as_uri()
    (tmp_path / "pip.conf").write_text(
        f"[global]\nindex-url = {(tmp_path / 'empty').as_uri()}\nextra-index-url = {extra}\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert package_index.pip_settings()["extra-index-url"] == extra
    assert fetch(origin(), tmp_path / "cache").provenance["filename"] == WHEEL
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://elsewhere.invalid/")
    assert package_index.pip_settings()["extra-index-url"] == "http://elsewhere.invalid/"


def test_stdlib_is_the_interpreters_own_without_tests_and_packages():
    got = fetch(StdlibOrigin(), Path("unused"))
    names = [raw.name for raw in got.files]
    assert names == sorted(names) and got.provenance["version"] == ".".join(map(str, sys.version_info[:3]))
    assert f"python{sysconfig.get_python_version()}/json/decoder.py" in names
    assert not [n for n in names if "site-packages" in n or "/test/" in n or "/tests/" in n or "/idlelib/" in n]
    assert len(fetch(StdlibOrigin(exclude="*/json/*"), Path("unused")).files) > len(names)  # a list of one's own


def test_local_files_by_file_folder_and_glob(tmp_path):
    root = tmp_path / "a [b] dir"  # the recipe's folder may look like a pattern
    for name in ("in/b.txt", "in/a.txt", "in/deep/c.jsonl", "in/.hidden", "in/.git/x.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)

    def names(path, root=root):
        return [raw.name for raw in fetch(FilesOrigin(path=path), tmp_path, root).files]

    assert names("in/b.txt") == ["b.txt"]
    assert names("in") == ["a.txt", "b.txt", "deep/c.jsonl"]
    assert names("in/*.txt") == names("in/[ab].txt") == ["a.txt", "b.txt"]
    assert names("in/**/*.jsonl") == ["deep/c.jsonl"]
    assert names(str(root / "in" / "b.txt"), Path("/nowhere")) == ["b.txt"]
    record = fetch(FilesOrigin(path="in"), tmp_path, root).record()
    moved = root.rename(tmp_path / "moved")
    assert fetch(FilesOrigin(path="in"), tmp_path, moved).record() == record
    with pytest.raises(BadInput, match=r"no such file or folder; did you mean 'a.txt'"):
        fetch(FilesOrigin(path="in/a.tx"), tmp_path, moved)
    with pytest.raises(BadInput, match="no file matches"):
        fetch(FilesOrigin(path="in/*.parquet"), tmp_path, moved)
    (moved / "none").mkdir()
    with pytest.raises(BadInput, match="holds no file"):
        fetch(FilesOrigin(path="none"), tmp_path, moved)


FACTS = {"domain": "english", "lang": "en", "licence": "MIT"}


@pytest.mark.parametrize(
    "given",
    [
        {"from": {"kind": "pypi", "package": "a==1", "member": "*/x"}, "read": "wiki_leads"},
        {"from": {"kind": "stdlib"}, "read": "files"},
        {"from": {"kind": "files", "path": "x"}, "read": {"jsonl": "a.b"}, "columns": ["score"], "score": "edu"},
    ],
)
def test_a_source_survives_its_dump_in_the_recipes_own_spelling(given):
    source = SourceConfig.model_validate(given | FACTS)
    dump = source.model_dump(mode="json")
    assert dump["read"] == given["read"] and dump["from"]["kind"] == given["from"]["kind"]
    assert SourceConfig.model_validate(dump) == source
    assert SourceConfig.model_validate_json(source.model_dump_json()) == source


@pytest.mark.parametrize(
    "change, message",
    [
        ({"read": "line"}, "did you mean 'lines'"),
        ({"read": "jsonl"}, "needs the name of its text field"),
        ({"read": {"lines": "text"}}, "no fields to choose from"),
        ({"columns": ["a"]}, "no fields to carry"),
        ({"read": {"jsonl": "t"}, "columns": ["id"]}, "set by the stage itself"),
        ({"read": {"jsonl": "t"}, "columns": ["a", "a"]}, "twice"),
        ({"from": {"kind": "ftp"}}, "stdlib"),
    ],
)
def test_a_source_that_cannot_work_is_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        SourceConfig.model_validate({"from": {"kind": "stdlib"}, "read": "files"} | FACTS | change)


@pytest.mark.parametrize("package", ["a", "a>=1", "a==1.*", "a==1,==2", "a[x]==1", "../a==1", "a==../1"])
def test_only_an_exact_pin_names_a_package(package):
    with pytest.raises(ValidationError, match="exact pin"):
        TypeAdapter(Origin).validate_python({"kind": "pypi", "package": package, "member": "*"})
