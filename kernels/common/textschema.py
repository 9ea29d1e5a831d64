"""The schema types the text: a pydantic model's validator for values that are still the words of a YAML file.

A model's core schema is rewritten, at any depth, so that text is turned into what the field is before pydantic
looks at it; hooks of the models themselves (``mode="before"``) run first and see the text as written.

    float     every Python spelling (1e-4, 5E-5, .5, 1., 1_000.5) of a finite number
    int       Python's decimal spellings (017, 1_000), and 1e6 or 2.0, which are exactly whole
    bool      true or false in any case; never yes, no, on, off, 1, 0
    Literal   the text of a choice; numbers and booleans by the rules above
    X | None  null, ~ and nothing, unquoted, are None; anywhere else they are text
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticCustomError, SchemaValidator

from gristmill.kernels.common.errors import nearest

NULLS = ("", "null", "~")  # plain scalars that mean None
BESIDE_FLOAT = "gristmill_beside_float"
NOT_FINITE = "not finite"
MISMATCH, RANGE = "text_mismatch", "text_range"  # error types raised here; ctx["expected"] says what would do
# Schema keys that hold schemas: one, a list (of schemas or of (schema, label)), or a dict.
CHILDREN = (
    "schema",
    "items_schema",
    "keys_schema",
    "values_schema",
    "json_schema",
    "python_schema",
    "lax_schema",
    "strict_schema",
    "extras_schema",
    "choices",
    "steps",
    "fields",
    "definitions",
)


class Quoted(str):
    """A quoted scalar that would otherwise read as null."""


class Removed(str):
    """A null that was put over an inherited value, and so takes the key away."""


def validator(model: type[BaseModel]) -> SchemaValidator:
    """``validate_python(nested text)`` returns an instance of ``model`` or raises pydantic's ValidationError."""
    # Without this flag pydantic-core would reuse each nested model's own validator, which knows no text.
    return SchemaValidator(_typed(model.__pydantic_core_schema__), _use_prebuilt=False)


def to_float(text: str) -> float:
    """Any Python spelling of a finite number. Raises ValueError."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(NOT_FINITE)
    return value


def to_int(text: str) -> int:
    """Base 10, or a float spelling that is exactly whole. Raises ValueError."""
    try:
        return int(text, 10)
    except ValueError:
        to_float(text)  # refuses 1__0 and 1e999999999, which Decimal would take
    value = Decimal(text)  # exact, where a float ends at 2**53
    if value != int(value):
        raise ValueError("not whole")
    return int(value)


def to_bool(text: str) -> bool:
    """true or false, any case. Raises ValueError."""
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("neither true nor false") from None


def choices(expected: list[Any]) -> str:
    """The values of a Literal in words."""
    words = [repr(v) if isinstance(v, str) else str(v).lower() for v in expected]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def nullable(schema: dict | None) -> bool:
    """Whether a field takes None, below its default and its validators."""
    while schema is not None and schema["type"] != "nullable":
        schema = schema.get("schema")
    return schema is not None


def _typed(schema: dict) -> dict:
    """A copy of a core schema with text conversion put in front of what needs it."""
    new = dict(schema)
    if new["type"] == "union":
        new["choices"] = _apart(new["choices"])
    for key in CHILDREN:
        if key in new:
            new[key] = _map(new[key])
    convert = _CONVERTERS.get(new["type"])
    if convert is None:
        return new
    before = {"type": "function-before", "function": {"type": "no-info", "function": convert(new)}, "schema": new}
    if "ref" in new:  # whatever points here must meet the conversion too
        before["ref"] = new.pop("ref")
    return before


def _apart(choices: list) -> list:
    """In ``int | float`` the spelling decides, as in Python: 1 is an int; 1.0 and 1e6 are floats."""
    bare = [choice[0] if isinstance(choice, tuple) else choice for choice in choices]
    if all(choice["type"] != "float" for choice in bare):
        return choices
    return [{**choice, "metadata": {BESIDE_FLOAT: True}} if choice["type"] == "int" else choice for choice in bare]


def _map(value: Any) -> Any:
    if isinstance(value, tuple):  # (schema, label) of a union's choice
        return (_typed(value[0]), *value[1:])
    if isinstance(value, list):
        return [_map(v) for v in value]
    if isinstance(value, dict):
        # a schema names its type; a dict of fields or of tagged choices holds only schemas
        return _typed(value) if isinstance(value.get("type"), str) else {k: _map(v) for k, v in value.items()}
    return value


def _number(to: Callable[[str], Any], words: str) -> Callable[[dict], Callable]:
    def make(schema: dict) -> Callable:
        bounds = [(sign, schema[name]) for name, sign in _SIGNS.items() if name in schema]
        wanted = f"{words} {' and '.join(f'{sign} {bound}' for sign, bound in bounds)}".strip()

        def convert(value: Any) -> Any:
            if isinstance(value, str):
                try:
                    value = to(value)
                except ValueError as error:
                    finite = words.replace("a number", "a finite number") if str(error) == NOT_FINITE else words
                    raise _error(MISMATCH, finite) from None
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                for sign, bound in bounds:
                    if not _HOLDS[sign](value, bound):
                        raise _error(RANGE, wanted)
            return value

        return convert

    return make


def _int(schema: dict) -> Callable:
    strict = schema.get("metadata", {}).get(BESIDE_FLOAT)
    return _number(int if strict else to_int, "a whole number")(schema)


_SIGNS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "above": lambda value, bound: value > bound,
    "at least": lambda value, bound: value >= bound,
    "below": lambda value, bound: value < bound,
    "at most": lambda value, bound: value <= bound,
}


def _bool(schema: dict) -> Callable:
    def convert(value: Any) -> Any:
        try:
            return to_bool(value) if isinstance(value, str) else value
        except ValueError:
            raise _error(MISMATCH, "true or false") from None

    return convert


def _literal(schema: dict) -> Callable:
    expected = schema["expected"]

    def convert(value: Any) -> Any:
        if not isinstance(value, str) or value in expected:
            return value
        for to in (to_bool, to_int):
            try:
                typed = to(value)
            except ValueError:
                continue
            if any(typed == v and type(typed) is type(v) for v in expected):
                return typed
        close = nearest(value, [v for v in expected if isinstance(v, str)])
        raise _error(MISMATCH, choices(expected) + (f" (did you mean {close!r}?)" if close else ""))

    return convert


def _is_null(value: Any) -> bool:
    return isinstance(value, str) and value in NULLS and not isinstance(value, Quoted)


def _nullable(schema: dict) -> Callable:
    return lambda value: None if _is_null(value) else value


def _none(schema: dict) -> Callable:
    return _nullable(schema)


def _fields(schema: dict) -> Callable:
    """Keys that an inheriting file set to null: None where that is a value, otherwise as if never written."""
    optional = set()
    for name, field in schema["fields"].items():
        if nullable(field["schema"]):
            alias = field.get("validation_alias")
            optional |= {name, alias} if isinstance(alias, str) else {name}

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: v for k, v in value.items() if not isinstance(v, Removed) or k in optional}

    return convert


def _entries(schema: dict) -> Callable:
    optional = nullable(schema.get("values_schema"))

    def convert(value: Any) -> Any:
        if not isinstance(value, dict) or optional:
            return value
        return {k: v for k, v in value.items() if not isinstance(v, Removed)}

    return convert


_CONVERTERS: dict[str, Callable[[dict], Callable]] = {
    "float": _number(to_float, "a number"),
    "int": _int,
    "bool": _bool,
    "literal": _literal,
    "nullable": _nullable,
    "none": _none,
    "model-fields": _fields,
    "dict": _entries,
}


def _error(kind: str, expected: str) -> PydanticCustomError:
    return PydanticCustomError(kind, "expected {expected}", {"expected": expected})
