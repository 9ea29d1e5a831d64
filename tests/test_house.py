"""The house: who may import whom, what the wheel holds, and that every setting is described."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ["kernels", "data", "train", "eval", "posttrain", "recipes"]
# kernels <- data, train <- eval <- posttrain <- recipes
MAY = {
    "kernels": set(),
    "data": {"kernels"},
    "train": {"kernels"},
    "eval": {"kernels", "data", "train"},
    "posttrain": {"kernels", "data", "train", "eval"},
    "recipes": {"kernels", "data", "train", "eval", "posttrain"},
}
SHARD_FORMAT = "gristmill.data.shards"  # all that train may know of data


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_import_direction(room):
    for path in (ROOT / room).rglob("*.py"):
        for name in imports(path):
            where = f"{path.relative_to(ROOT)} imports {name}"
            if not name.startswith("gristmill."):
                assert name.split(".")[0] not in ROOMS, where
                continue
            target = name.split(".")[1]
            # the module part of `from gristmill.data import shards` is found beside its names, which are what counts
            allowed = room == "train" and (name == "gristmill.data" or f"{name}.".startswith(f"{SHARD_FORMAT}."))
            assert target == room or target in MAY[room] or allowed, where


def test_the_wheel_holds_the_rooms(tmp_path):
    tracked = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {
        f"gristmill/{name}"
        for name in tracked.stdout.split()
        if name.endswith((".py", ".yaml", ".html", ".css", ".js", "py.typed"))
    }
    export = tmp_path / "tree"  # a build leaves traces: build a copy of what is tracked
    for name in [*tracked.stdout.split(), "pyproject.toml", "setup.py", "README.md"]:
        (export / name).parent.mkdir(parents=True, exist_ok=True)
        (export / name).write_bytes((ROOT / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(export),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected


def test_every_field_is_described():
    from gristmill.kernels.common.config import Config
    from gristmill.recipes.runner import graph

    assert graph  # imports every room's models

    def below(cls: type) -> set[type]:
        return {cls}.union(*(below(sub) for sub in cls.__subclasses__()))

    for model in below(Config):
        if model.__module__.startswith("gristmill."):
            for name, field in model.model_fields.items():
                assert field.description, f"{model.__module__}.{model.__name__}.{name} has no description"
