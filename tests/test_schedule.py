"""Schedules at their ends, and what cannot be scheduled is refused."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from gristmill.train.schedule import WSD, WSM, ScheduleConfig, factor


def curve(config, steps):
    return [factor(config, k, steps) for k in range(steps)]


def test_wsm_warms_up_and_stays():
    rates = curve(WSM(warmup=0.1), 100)
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0  # ten steps of warm-up; the first one moves
    assert rates[:10] == sorted(rates[:10]) and set(rates[9:]) == {1.0}
    assert set(curve(WSM(warmup=0), 5)) == {1.0}


@pytest.mark.parametrize("shape", ["linear", "1-sqrt", "cosine"])
def test_wsd_decays_over_its_share_to_its_end(shape):
    rates = curve(WSD(warmup=0.1, decay=0.2, shape=shape, final=0.2), 100)  # Kaiyuan's last phase ends at 0.2 of peak
    assert set(rates[9:80]) == {1.0}
    assert rates[80] < 1 and rates[99] == pytest.approx(0.2)
    assert rates[79:] == sorted(rates[79:], reverse=True)


def test_shapes_are_their_formulas():
    halfway = {
        shape: factor(WSD(warmup=0, decay=0.4, shape=shape), 79, 100) for shape in ("linear", "1-sqrt", "cosine")
    }
    assert halfway == pytest.approx({"linear": 0.5, "1-sqrt": 1 - 0.5**0.5, "cosine": 0.5})


def test_the_boundaries_that_meet():
    rates = curve(WSD(warmup=0.5, decay=0.5, shape="linear"), 10)
    assert max(rates) == 1.0 == rates[4] and rates[-1] == 0
    assert curve(WSD(warmup=0, decay=1, shape="linear"), 4) == pytest.approx([0.75, 0.5, 0.25, 0])
    assert curve(WSD(), 1) == [0.0] and curve(WSM(), 1) == [1.0]


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "wsm", "warmup": 1.0},
        {"kind": "wsm", "warmup": 2000},
        {"kind": "wsm", "decay": 0.1},
        {"kind": "wsd", "warmup": 0.5, "decay": 0.6},
        {"kind": "wsd", "decay": 0},
        {"kind": "wsd", "shape": "sqrt"},
        {"kind": "cosine"},
    ],
)
def test_what_cannot_be_is_refused(bad):
    with pytest.raises(ValidationError):
        TypeAdapter(ScheduleConfig).validate_python(bad)


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_the_run_is_refused(step):
    with pytest.raises(ValueError, match="of 10"):
        factor(WSM(), step, 10)
