"""Loading a recipe: files, inheritance, overrides, refusals in one line each, and dumping it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from toyrecipe import Optimizer, Recipe, Step, Train, Write

from gristmill.kernels.common.errors import BadInput
from gristmill.recipes.runner import loader


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return Write(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """One folder for all examples of a property."""
    return Write(tmp_path_factory.mktemp("property"))


# --- the file -------------------------------------------------------------------------------------------------


def test_duplicate_keys(write: Write):
    error = write.error("name: a\ntrain:\n  amp: true\n  clip: 1\n  amp: false")
    assert error == "r.yaml:5: train.amp: the key is given twice (first on line 3)"
    assert "given twice" in write.error("sources: {}\n'sources': {}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train:\n\tamp: true", "r.yaml:2:1: not valid YAML: found character '\\t' that cannot start any token"),
        ("limit: [1, 2", "r.yaml:1:13: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("limit: *x", "r.yaml:1:8: not valid YAML: found undefined alias 'x'"),
        ("a: 1\n---\nb: 2", "r.yaml:2:1: not valid YAML: expected a single document"),
        ("name: a\x00b", "r.yaml:1:8: not valid YAML: character 0x0 is not allowed"),
        ("- a\n- b", "r.yaml:1: wrong value; expected a mapping of keys to values at the top level"),
        ("nano", "r.yaml:1: wrong value; expected a mapping of keys to values at the top level"),
        ("", "r.yaml: the file is empty"),
        ("# nothing\n", "r.yaml: the file is empty"),
        ("---\n...\n", "r.yaml: the file is empty"),
        (b"name: a\nnote: caf\xe9\n", "r.yaml:2: not UTF-8 (byte 0xe9 at offset 17)"),
        ("name: a".encode("utf-16"), "r.yaml:1: not UTF-8 (byte 0xff at offset 0)"),
        ("scores: {a: !!float 1}", "r.yaml:1: scores.a: YAML tags are not used in recipes; got 'tag:yaml.org,"),
        ("name: !!python/object/apply:os.getcwd []", "r.yaml:1: name: YAML tags are not used in recipes; got"),
        ("? [a, b]\n: 1", "r.yaml:1: a key must be text"),
        ("train: {<<: {amp: true}}", "r.yaml:1: train: merge keys are not supported; inherit with `base:`; got '<<'"),
        ("limit: &x [*x]", "r.yaml:1: limit.0: an alias that contains itself"),
        ("limit: " + "[" * 2000, "r.yaml: not valid YAML: nested too deeply"),
    ],
)
def test_files_that_are_not_recipes(write: Write, text: str | bytes, message: str):
    assert write.error(text).startswith(message)


def test_aliases_of_aliases_are_bounded(write: Write):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "more than 100000 values" in write.error("\n".join(lines))


def test_anchors_and_block_text_work(write: Write):
    config = write(
        "posttrain:\n- &a {name: x, lr: 1e-4}\n- {name: y}\nscores: {a: &v 1e2, b: *v}\nnote: |\n  two\n  lines"
    )
    assert config.config.scores == {"a": 100.0, "b": 100.0}
    assert config.config.note == "two\nlines"


def test_a_byte_order_mark_is_ignored(write: Write):
    assert write(b"\xef\xbb\xbfname: a").config.name == "a"


# --- finding recipes ------------------------------------------------------------------------------------------


def test_shipped_names(write: Write):
    shipped = write.file("shipped/nano.yaml", "name: shipped")
    loaded = loader.load("nano", model=Recipe, search=[write.folder / "none", write.folder / "shipped"])
    assert (loaded.config.name, loaded.file, loaded.chain, loaded.overrides) == ("shipped", shipped, (shipped,), ())
    with pytest.raises(BadInput, match="no such recipe; got 'nanno'; did you mean 'nano'"):
        loader.load("nanno", model=Recipe, search=[write.folder / "shipped"])


def test_paths_that_are_not_files(write: Write):
    write.file("nano.yaml", "name: a")
    with pytest.raises(BadInput, match="no such file; got .*did you mean 'nano.yaml'"):
        loader.load(write.folder / "nan.yaml", model=Recipe, search=[])
    with pytest.raises(BadInput, match="a folder, not a recipe file"):
        loader.load(write.folder, model=Recipe, search=[])


# --- inheritance ----------------------------------------------------------------------------------------------


def test_base_merges_mappings_and_replaces_the_rest(write: Write):
    write.file("shipped/root.yaml", "name: root\nlimit: [1, 2, 3]\ntrain: {batch_tokens: 7, optimizer: {kind: muon}}")
    middle = write.file("lib/middle.yaml", "base: root\ntrain:\n  optimizer:\n    learning_rate: 1e-4\n")
    loaded = write("base: lib/middle.yaml\nlimit: [9]\ntrain: {amp: true}")
    expected = Train(batch_tokens=7, amp=True, optimizer=Optimizer(kind="muon", learning_rate=1e-4))
    assert loaded.config == Recipe(name="root", limit=[9], train=expected)
    assert loaded.chain == (write.folder / "r.yaml", middle, write.folder / "shipped/root.yaml")
    assert "base" not in loaded.text
    assert loaded.text["train"]["optimizer"] == {"kind": "muon", "learning_rate": "1e-4"}


def test_a_long_chain(write: Write):
    write.file("0.yaml", "name: first\nscores: {a0: 0}")
    for i in range(1, 300):
        write.file(f"{i}.yaml", f"base: {i - 1}.yaml\nscores: {{a{i}: {i}}}")
    loaded = write("base: 299.yaml")
    assert loaded.config.name == "first" and len(loaded.config.scores) == 300


def test_null_takes_an_inherited_value_away(write: Write):
    write.file(
        "base.yaml",
        "name: x\nnote: y\nsources: {a: {from: {kind: files, path: p}, read: lines}, "
        "b: {from: {kind: files, path: p}, read: lines}}\n"
        "train: {batch_tokens: 5, curriculum: {steps: 99}, minhash: {steps: 98}, odd: 1}\nscores: {a: 1, b: 2}",
    )
    config = write(
        "base: base.yaml\nnote: null\nsources: {a: null}\nscores:\n  b:\n"
        "train: {batch_tokens: ~, curriculum: null, minhash: null, odd: null}"
    ).config
    assert config.note is None
    assert list(config.sources) == ["b"]
    assert config.scores == {"a": 1.0}
    assert config.train == Train(minhash=None)  # None is a value there; the others are back at their defaults
    assert write("train: {curriculum: {steps: 99}}", "train.curriculum=null").config.train == Train()


def test_null_over_nothing_is_an_error_where_none_is_no_value(write: Write):
    assert write.error("train:\n  curriculum:\n") == (
        "r.yaml:2: train.curriculum: wrong value; got nothing; expected a mapping"
    )


def test_errors_in_inherited_values_name_their_file(write: Write):
    write.file("base.yaml", "name: x\n\ntrain: {amp: false,\n  clip: many}")
    error = write.error("base: base.yaml\ntrain: {amp: true}")
    assert error == "base.yaml:4: train.clip: wrong value; got 'many'; expected a number"


def test_cycles_and_missing_bases(write: Write):
    write.file("a.yaml", "base: b.yaml")
    write.file("b.yaml", "name: b\nbase: ../" + write.folder.name + "/a.yaml")
    error = write.error("base: a.yaml")
    assert "b.yaml:2: base: a recipe inherits from itself: a.yaml -> b.yaml -> a.yaml" in error
    assert write.error("name: x\nbase: aa.yaml") == (
        "r.yaml:2: base: no such file; got 'aa.yaml'; expected a recipe file (did you mean 'a.yaml'?)"
    )
    write.file("shipped/nano.yaml", "name: nano")
    assert write.error("base: nan") == "r.yaml:1: base: no such recipe; got 'nan'; did you mean 'nano'?"
    assert write.error("base: [a]").startswith("r.yaml:1: base: wrong value")


# --- overrides ------------------------------------------------------------------------------------------------

STEPS = (
    "posttrain:\n- {name: sft, lr: 1}\n- {name: remax}\nsources: {a.b: {from: {kind: files, path: p}, read: lines}}\n"
)


def test_overrides(write: Write):
    loaded = write(
        STEPS,
        "mix={a.b: [all, top .4]}",
        "posttrain.remax.lr=1e-5",
        "posttrain.0.suite=full",
        "sources.a.b.from.path=*.txt",
        "train.optimizer={kind: muon}",
        "train.optimizer.learning_rate=.5",
        "note=a: b # c",
        'free="quoted = text"',
    )
    config = loaded.config
    assert [s.amount for s in config.mix["a.b"]] == [1.0, 0.4]
    assert config.posttrain == (Step(name="sft", lr=1, suite="full"), Step(name="remax", lr=1e-5))
    assert config.sources["a.b"].origin.path == "*.txt"
    assert config.train.optimizer == Optimizer(kind="muon", learning_rate=0.5)
    assert config.note == "a: b # c" and config.free == "quoted = text"
    assert loaded.overrides[1] == "posttrain.remax.lr=1e-5"


def test_an_override_replaces_the_whole_value(write: Write):
    config = write("train: {optimizer: {learning_rate: .1, kind: muon}}", "train.optimizer={kind: adamw}").config
    assert config.train.optimizer == Optimizer()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.optim.lrr=1e-3", "train.optim.lrr: unknown key 'train.optim'; did you mean 'optimizer'?"),
        ("train.num-epochs=3", "train.num-epochs: unknown key 'num-epochs'; did you mean 'num_epochs'?"),
        ("learning_rate=1", "learning_rate: unknown key 'learning_rate'; learning_rate belongs under train.optimizer"),
        ("posttrain.remx.lr=1", "posttrain.remx.lr: no such entry in the list; got 'remx'; did you mean 'remax'?"),
        ("posttrain.2.lr=1", "posttrain.2.lr: no such entry in the list; got '2'; valid: sft, remax, 0, 1"),
        ("train.clip", "an override is written key=value; got 'train.clip'"),
        ("=1", "an override begins with a key, as in a.b.c=value; got '=1'"),
        ("a..b=1", "an override begins with a key, as in a.b.c=value; got 'a..b=1'"),
        ("base=x.yaml", "`base` cannot be overridden; write a recipe that has it; got 'base=x.yaml'"),
        ("limit=[1", "not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("train.amp=no", "train.amp: wrong value; got 'no'; expected true or false"),
        ("train.optimizer={kid: muon}", "train.optimizer.kid: unknown key 'kid'; did you mean 'kind'?"),
    ],
)
def test_bad_overrides(write: Write, override: str, message: str):
    error = write.error(STEPS, override)
    assert error.startswith("override:") and error.endswith(message)


def test_an_override_below_a_scalar(write: Write):
    error = write.error("name: x\n" + STEPS, "sources.a.b.read.format=x")
    assert error == (
        "override: sources.a.b.read.format: sources.a.b.read is 'lines' (r.yaml:5) and has no keys; "
        "override sources.a.b.read as a whole"
    )


def test_ambiguous_overrides(write: Write):
    assert "given twice" in write.error("name: x", "train.clip=1", "train.clip=2")
    assert "given twice (posttrain.sft.lr and posttrain.0.lr)" in write.error(
        STEPS, "posttrain.sft.lr=1", "posttrain.0.lr=2"
    )
    assert "replaces the earlier override of train.clip" in write.error("name: x", "train.clip=1", "train={amp: true}")
    twins = "posttrain: [{name: a}, {name: a}]"
    assert "2 entries are called 'a'; use a number" in write.error(twins, "posttrain.a.lr=1")
    assert write(twins, "posttrain.1.lr=1").config.posttrain[1].lr == 1


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {optmizer: {}}", "r.yaml:1: train.optmizer: unknown key 'optmizer'; did you mean 'optimizer'?"),
        (
            "train:\n  optimizer:\n    learning_rat: 1",
            "r.yaml:3: train.optimizer.learning_rat: unknown key 'learning_rat'; did you mean 'learning_rate'?",
        ),
        ("train: {num-epochs: 3}", "r.yaml:1: train.num-epochs: unknown key 'num-epochs'; did you mean 'num_epochs'?"),
        (
            "name: x\nlearning_rate: 1e-3",
            "r.yaml:2: learning_rate: unknown key 'learning_rate'; learning_rate belongs under train.optimizer",
        ),
        (
            "train: {optimizer: {clip: 1}}",
            "r.yaml:1: train.optimizer.clip: unknown key 'clip'; clip belongs under train",
        ),
        ("train: {note: x}", "r.yaml:1: train.note: unknown key 'note'; note belongs under the top level"),
        (
            "sources: {a: {from: {kind: files, path: x, pin: y}, read: lines}}",
            "r.yaml:1: sources.a.from.pin: unknown key 'pin'; pin belongs under sources.*.from (kind: package)",
        ),
        ("learning_rat: 1", "r.yaml:1: learning_rat: unknown key 'learning_rat'; learning_rate is a key under train."),
        ("zzz: 1", "r.yaml:1: zzz: unknown key 'zzz'; valid here: name, note, free, scores, sources, mix, train, post"),
    ],
)
def test_unknown_keys(write: Write, text: str, message: str):
    error = write.error(text)
    assert error.startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: 3", "train: wrong value; got '3'; expected a mapping"),
        ("train: [1]", "train: wrong value; got a list of 1; expected a mapping"),
        ("mix: {a: all}", "mix.a: wrong value; got 'all'; expected a list"),
        ("train: {amp: {a: 1}}", "train.amp: wrong value; got a mapping of 1; expected true or false"),
        ("free: [a]", "free: wrong value; got a list of 1; expected text"),
        ("train: {minhash: deep}", "train.minhash: wrong value; got 'deep'; expected a mapping"),
        ("train: {optimizer: {betas: [.9]}}", "train.optimizer.betas: too few values; got a list of 1"),
        (
            "train: {optimizer: {learning_rate: 2}}",
            "train.optimizer.learning_rate: out of range; got '2'; expected a number above 0 and at most 1",
        ),
        ("train: {batch_tokens: 0}", "train.batch_tokens: out of range; got '0'; expected a whole number at least 1"),
        ("posttrain: [{lr: 1}]", "posttrain.0.name: a required key is missing"),
        ("sources: {a: {read: lines}}", "sources.a.from: a required key is missing"),
        (
            "sources: {a: {read: lines, from: {path: x}}}",
            "sources.a.from.kind: a required key is missing; expected 'package' or 'files'",
        ),
        (
            "sources: {a: {read: lines, from: {kind: file, path: x}}}",
            "sources.a.from.kind: wrong value; got 'file'; expected 'package' or 'files' (did you mean 'files'?)",
        ),
        ("mix: {a: [all]}", "mix.a: no such source"),
        ("posttrain: [{name: a, lr: 0}]", "posttrain.a.lr: a step of 0 does nothing"),
    ],
)
def test_wrong_values(write: Write, text: str, message: str):
    assert write.error(f"name: x\n{text}") == f"r.yaml:2: {message}"


def test_the_others_are_counted_and_a_misspelt_key_comes_first(write: Write):
    error = write.error("train:\n  amp: maybe\n  clip: x\nposttrain:\n- {nam: sft}\n")
    assert error == "r.yaml:5: posttrain.0.nam: unknown key 'nam'; did you mean 'name'? (+3 more)"


KEYS = (
    "name note scores sources mix train posttrain tree limit filters from read kind files package path pin lines all "
    "optimizer learning_rate betas minhash kids weight lr amp bits auto 1 0 -1e400 1e-4 true null base"
)
WORDS = st.sampled_from(KEYS.split()) | st.just("")
TREES = st.recursive(WORDS, lambda t: st.lists(t, max_size=3) | st.dictionaries(WORDS, t, max_size=4), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(WORDS, TREES, max_size=5),
    st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=3), TREES), max_size=2),
)
def test_no_recipe_ends_in_a_traceback(shared: Write, tree: dict, overrides: list):
    spelled = [f"{'.'.join(keys)}={json.dumps(value)}" for keys, value in overrides]
    try:
        config = shared(json.dumps(tree), *spelled).config
    except BadInput as error:
        assert "\n" not in str(error) and str(error).startswith((str(shared.folder), "override:"))
    else:
        assert shared(loader.dump(config)).config == config


# --- dump and flatten -----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "",
        "null",
        "~",
        "no",
        "1e-4",
        "true",
        "<<",
        "a: b",
        "#",
        "- x",
        "*",
        "&a",
        "{",
        " x ",
        "a\nb",
        "\t",
        "\ufeff",
        "\x85",
    ]
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=80, deadline=None)
@given(
    TEXT,
    st.none() | TEXT,
    st.dictionaries(TEXT, FLOATS, max_size=4),
    st.lists(st.integers(-(10**30), 10**30) | FLOATS, max_size=3),
    st.none() | FLOATS,
    st.booleans(),
)
def test_a_dump_loads_back_equal(shared: Write, name, note, scores, limit, clip, amp):
    train = Train(clip=clip, amp=amp, bits=16, minhash=None, precision=0.5)
    config = Recipe(name=name, note=note, free=name, scores=scores, limit=limit, train=train)
    text = loader.dump(config)
    again = shared(text)
    assert again.config == config
    assert loader.dump(again.config) == text


def test_a_dump_keeps_shorthand_and_python_floats(write: Write):
    config = write(
        "sources: {a: {from: {kind: files, path: x}, read: {jsonl: text}}}\nmix: {a: [all, top .5]}\n"
        "train: {optimizer: {learning_rate: 1e-5}}\ntree: {kids: [{weight: 1e22}]}"
    ).config
    text = loader.dump(config)
    assert "learning_rate: 1e-05" in text and "weight: 1e+22" in text and "read: {jsonl: text}" in text
    assert "a: [all 1.0, top 0.5]" in text
    assert write(text).config == config


def test_flat_keys_are_override_keys(write: Write):
    config = write(STEPS, "limit=[1, 2]").config
    flat = loader.flatten(config)
    assert flat["posttrain.sft.lr"] == 1.0 and flat["limit.1"] == 2 and flat["mix"] == {} and flat["note"] is None
    assert flat["train.optimizer.learning_rate"] == 3e-3 and flat["sources.a.b.from.path"] == "p"
    text = loader.dump(config)
    for key, value in flat.items():
        if key.endswith(".name"):  # the list's own address
            continue
        spelled = "null" if value is None else "''" if value == "" else str(value)
        assert write(text, f"{key}={spelled}").config == config, key


def test_a_model_without_the_text_rules_is_not_changed():
    """Building the text validator leaves the model's own alone."""
    from gristmill.kernels.common.textschema import validator

    class Plain(BaseModel):
        flag: bool = False

    validator(Plain)
    assert Plain.model_validate({"flag": "no"}).flag is False
