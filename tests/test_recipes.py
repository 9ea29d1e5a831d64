"""Every shipped recipe loads, means the same after a dump, and makes a graph; base recipes share what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from gristmill.kernels.common.config import result_fields
from gristmill.recipes.runner import graph, loader
from gristmill.recipes.runner.schema import Recipe

FOLDER = Path(__file__).resolve().parents[1] / "recipes"


def load(name: str, *overrides: str) -> loader.Loaded:
    return loader.load(name, overrides, model=Recipe, search=[FOLDER])


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.yaml")))
def test_a_shipped_recipe(name, tmp_path):
    recipe = load(name).config
    (tmp_path / "dumped.yaml").write_text(loader.dump(recipe), "utf-8")
    again = loader.load(tmp_path / "dumped.yaml", model=Recipe, search=[]).config
    assert again == recipe and result_fields(again) == result_fields(recipe)
    nodes = graph.build(recipe, cache=tmp_path, root=FOLDER)
    assert set(graph.VERSIONS) >= {node.stage for node in nodes.values()}
    for key, node in nodes.items():  # inputs come first
        assert all(list(nodes).index(source) < list(nodes).index(key) for source in node.inputs.values())


def test_uniform_differs_from_nano_in_the_order_alone(tmp_path):
    nano, uniform = (graph.build(load(n).config, cache=tmp_path, root=FOLDER) for n in ("nano", "nano-uniform"))
    differ = [k for k in nano if result_fields(nano[k].config) != result_fields(uniform[k].config)]
    assert differ == ["mix"]


def test_phases_are_an_order_and_a_default_is_its_spelling(tmp_path):
    """Two phases swapped are another mix; a default spelled out, as 32 or 32.0, is the same recipe."""
    swapped = "phases={p2: {order: shuffle}, p1: {order: shuffle}, p3: {order: curriculum}, p4: {order: curriculum}, "
    other = load("nano", swapped + "p5: {order: curriculum}}").config
    mix = [
        result_fields(graph.build(r, cache=tmp_path, root=FOLDER)["mix"].config) for r in (load("nano").config, other)
    ]
    assert mix[0] != mix[1]
    spelled = load("nano", "model.rope_theta=1e4", "corpus.part_mb=64").config
    assert result_fields(spelled) == result_fields(load("nano").config)
