"""The base of every configuration model, and the line between what decides a result and what does not.

A field is a ``result`` field by default: it enters the fingerprint of every artefact it touches. A field
declared with :func:`execution` (workers, device, log cadence ...) changes how a result is computed, never
what it is, and is left out.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """Frozen, and strict about names."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        protected_namespaces=(),
        validate_default=True,  # a float field's default 32 must hash as the 32.0 a recipe would spell out
    )


def execution(default: Any = ..., **kwargs: Any) -> Any:
    """A field that must not change any output; it is not hashed."""
    return Field(default, json_schema_extra={"execution": True}, **kwargs)


def is_execution(field: Any) -> bool:
    return bool(isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("execution"))


def result_fields(value: Any) -> Any:
    """Plain JSON data of ``value`` with every execution field removed, at any depth."""
    if isinstance(value, BaseModel):
        return {
            name: result_fields(getattr(value, name))
            for name, field in type(value).model_fields.items()
            if not is_execution(field)
        }
    if isinstance(value, dict):
        return {str(k): result_fields(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [result_fields(v) for v in value]
    return value
