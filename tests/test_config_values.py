"""A recipe's values mean what they say: every spelling of a number, and no YAML 1.1 surprises."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toyrecipe import Files, Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return Write(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """One folder for all examples of a property."""
    return Write(tmp_path_factory.mktemp("property"))


# --- numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1e-4", "1E-4", "1.0e-4", "1.e-4", ".1e-3", "0.0001", "1e-04", "+1e-4", "0.000_1", '"1e-4"', "'1e-4'"]
)
def test_every_spelling_of_a_float_gives_the_same_recipe(write: Write, text: str):
    from_file = write(f"train: {{optimizer: {{learning_rate: {text}}}}}").config
    from_override = write("name: nano", f"train.optimizer.learning_rate={text}").config
    assert from_file == from_override == write("train: {optimizer: {learning_rate: 0.0001}}").config


@pytest.mark.parametrize("text", ["1e4", "1e+4", "1.0e4", "10_000", "1_0000.0", "10000.", "010000"])
def test_floats_that_yaml_takes_for_text_or_octal(write: Write, text: str):
    assert write(f"scores: {{a: {text}}}").config.scores == {"a": 1e4}


def _spellings(value: float) -> list[str]:
    spelled = [repr(value), f"{value:.17e}", f"{value:.17E}", f"{value:+.17e}", f"{value:.17g}"]
    if repr(value).startswith("0."):
        spelled.append(repr(value)[1:])
    if repr(value).endswith(".0"):
        spelled.append(repr(value)[:-1])
        if value:  # int(-0.0) has no sign
            spelled.append(f"{int(value):_}.0")
    return spelled


@settings(max_examples=60, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.data())
def test_file_override_and_python_agree_on_floats(shared: Write, value: float, data: st.DataObject):
    text = data.draw(st.sampled_from(_spellings(value)))
    from_file = shared(f"scores: {{a: {text}}}").config.scores["a"]
    from_override = shared("name: nano", f"scores.a={text}").config.scores["a"]
    assert from_file == from_override == float(text) == value
    assert math.copysign(1, from_file) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("text", "value"), [("017", 17), ("1_000", 1000), ("1e6", 10**6), ("2.0", 2), ("1.5e3", 1500), ("+4", 4)]
)
def test_ints(write: Write, text: str, value: int):
    for got in (write(f"train: {{batch_tokens: {text}}}"), write("name: x", f"train.batch_tokens={text}")):
        assert got.config.train.batch_tokens == value
        assert type(got.config.train.batch_tokens) is int


def test_a_whole_float_is_exact_beyond_a_double(write: Write):
    assert write("train: {batch_tokens: 9007199254740993.0}").config.train.batch_tokens == 2**53 + 1


@pytest.mark.parametrize("text", ["1.5", "1e-4", "0x10", "1:30", "1e999999999", "1__0", "ten", "true", "nan", "inf"])
def test_not_an_int(write: Write, text: str):
    error = write.error(f"train: {{batch_tokens: {text}}}")
    assert error == f"r.yaml:1: train.batch_tokens: wrong value; got '{text}'; expected a whole number"


@pytest.mark.parametrize("text", ["fast", "1:30", "yes", "0x1p-3", "1e", "1,5"])
def test_not_a_float(write: Write, text: str):
    error = write.error(f'train:\n  optimizer:\n    learning_rate: "{text}"')
    assert error == f"r.yaml:3: train.optimizer.learning_rate: wrong value; got '{text}'; expected a number"
    error = write.error("name: x", f"train.optimizer.learning_rate={text}")
    assert error == f"override: train.optimizer.learning_rate: wrong value; got '{text}'; expected a number"


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "Infinity", "1e400", ".nan", ".inf"])
def test_only_finite_floats(write: Write, text: str):
    error = write.error(f"scores: {{a: {text}}}")
    assert error.startswith(f"r.yaml:1: scores.a: wrong value; got '{text}'; expected a")


# --- booleans, nulls, text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("TRUE", True), ("false", False)])
def test_bools(write: Write, text: str, value: bool):
    assert write(f"train: {{amp: {text}}}").config.train.amp is value
    assert write("name: x", f"train.amp={text}").config.train.amp is value


@pytest.mark.parametrize("text", ["no", "on", "yes", "off", "y", "n", "1", "0", "t"])
def test_other_words_are_not_bools(write: Write, text: str):
    error = write.error(f"train: {{amp: {text}}}")
    assert error == f"r.yaml:1: train.amp: wrong value; got '{text}'; expected true or false"


@pytest.mark.parametrize("text", ["no", "on", "yes", "true", "null", "~", "1e-4", "017", "1:30", "2024-01-01", "0x10"])
def test_a_text_field_keeps_the_text(write: Write, text: str):
    assert write(f"free: {text}").config.free == text
    assert write("name: x", f"free={text}").config.free == text


@pytest.mark.parametrize("text", ["null", "~", ""])
def test_null_where_none_is_a_value(write: Write, text: str):
    config = write(f"note: {text}\ntrain:\n  clip: {text}\n").config
    assert config.note is None and config.train.clip is None
    config = write("train: {clip: 2}", f"note={text}", f"train.clip={text}").config
    assert config.note is None and config.train.clip is None


@pytest.mark.parametrize("text", ["none", "None", "NULL", "nil"])
def test_other_words_are_not_null(write: Write, text: str):
    assert write(f"note: {text}").config.note == text
    assert f"got '{text}'" in write.error(f"train: {{clip: {text}}}")


def test_quoted_null_is_text(write: Write):
    assert write("note: 'null'").config.note == "null"
    assert write('note: ""').config.note == ""


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("016", 16), ("auto", "auto")])
def test_literals(write: Write, text: str, value: Any):
    assert write(f"train: {{bits: {text}}}").config.train.bits == value


def test_a_bad_literal_names_the_choices_and_the_nearest(write: Write):
    error = write.error("train:\n  optimizer: {kind: adam}")
    assert error == (
        "r.yaml:2: train.optimizer.kind: wrong value; got 'adam'; expected 'adamw' or 'muon' (did you mean 'adamw'?)"
    )
    assert write.error("train: {bits: 9}").endswith("got '9'; expected 8, 16 or 'auto'")


def test_unions(write: Write):
    config = write("train: {precision: 1e3}\nlimit: [017, 1e3, .5]").config
    assert config.train.precision == 1000.0
    assert config.limit == [17, 1000, 0.5]
    assert write.error("train: {precision: fp8}").endswith("got 'fp8'; expected a number or 'auto'")


def test_typing_reaches_any_depth(write: Write):
    config = write("tree: {kids: [{weight: 1e-4, kids: [{weight: 5E-5}]}]}").config
    assert config.tree.kids[0].weight == 1e-4
    assert config.tree.kids[0].kids[0].weight == 5e-5
    error = write.error("tree:\n  kids:\n  - weight: 1\n  - kids:\n    - weight: x")
    assert error == "r.yaml:5: tree.kids.1.kids.0.weight: wrong value; got 'x'; expected a number"


def test_hooks_see_the_text_as_written(write: Write):
    text = """
sources:
  a: {from: {kind: files, path: x, depth: 1e1}, read: lines, lang: no}
  b: {from: {kind: package, pin: p==1}, read: {jsonl: text}}
mix:
  a: [all, top .50, top 5e-1]
"""
    config = write(text).config
    assert (config.sources["a"].read.format, config.sources["a"].read.field) == ("lines", None)
    assert config.sources["a"].origin == Files(kind="files", path="x", depth=10)
    assert config.sources["a"].lang == "no"
    assert (config.sources["b"].read.format, config.sources["b"].read.field) == ("jsonl", "text")
    assert [s.amount for s in config.mix["a"]] == [1.0, 0.5, 0.5]
    error = write.error(text.replace("top .50", "pot .50"))
    assert error == "r.yaml:6: mix.a.1: 'pot .50' is not a selector"


def test_a_refusal_inside_a_hook_is_located(write: Write):
    assert write("filters:\n- gopher: {min_words: 3}").config.filters[0].settings.min_words == 3
    error = write.error("filters:\n- gopher: {}\n- gopher:\n    min_word: 3")
    assert error == "r.yaml:4: filters.1.gopher.min_word: unknown key 'min_word'"
    error = write.error("filters:\n- gopher:\n    min_words: x")
    assert error == "r.yaml:3: filters.0.gopher.min_words: wrong value; got 'x'; expected a whole number"
