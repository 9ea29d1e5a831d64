"""Golden losses: a change of the model, the loss, the optimizer or the schedule that moves training shows here.

Written by ``python tests/test_golden_losses.py``; new numbers need a reason, in the commit that brings them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import toy

from gristmill.train import pretrain

# fmt: off
GOLDEN = {
    "wsm": [3.899809, 3.788252, 3.723852, 3.66192, 3.575034, 3.468254, 3.353983, 3.304077, 3.071557, 3.129579,
            2.989371, 3.181461, 2.674943, 2.812927, 2.76475, 2.613737, 2.317468, 2.490883, 2.287896, 2.140133,],
    "wsd": [3.899809, 3.788252, 3.723852, 3.66192, 3.575034, 3.468254, 3.353983, 3.304077, 3.071557, 3.129579,
            2.989371, 3.181461, 2.674943, 2.812927, 2.76475, 2.638751, 2.382474, 2.614344, 2.414931, 2.351916,],
}
# fmt: on


def losses(folder: Path, schedule: dict) -> list[float]:
    """Losses of twenty steps (nats per token), FP32, one thread."""
    pretrain.run(toy.config(schedule=schedule), {"pack": toy.packed(folder / "pack")}, folder / "run")
    return [line["loss"] for line in toy.metrics(folder / "run")]


SCHEDULES = {"wsm": {"kind": "wsm", "warmup": 0.1}, "wsd": {"kind": "wsd", "warmup": 0.1, "decay": 0.3, "final": 0.1}}


@pytest.mark.parametrize("name", SCHEDULES)
def test_losses_are_the_golden_ones(tmp_path, name):
    assert losses(tmp_path, SCHEDULES[name]) == pytest.approx(GOLDEN[name], rel=1e-4)


def test_the_schedules_part_where_the_decay_begins():
    same = [a == b for a, b in zip(*GOLDEN.values(), strict=True)]
    assert same == [True] * 15 + [False] * 5  # steps 0-13 run at one rate; step 14's shows in the loss of step 15


if __name__ == "__main__":
    for name, schedule in SCHEDULES.items():
        with tempfile.TemporaryDirectory() as folder:
            print(f'    "{name}": {[round(value, 6) for value in losses(Path(folder), schedule)]},')
