"""Streams in which tasks come back or drift."""

import itertools

import numpy as np
import pytest

import posterity
from posterity.errors import UserError
from posterity.families.base import Family
from posterity.families.pendulum import PendulumGravity, PendulumSettings
from posterity.families.streams import reflected
from posterity.types import Key

KEY = Key.of(3).fold("stream")
FAMILIES = {
    "recurring": PendulumGravity(PendulumSettings(recurring=0.6)),
    "drifting": PendulumGravity(PendulumSettings(drift=0.1)),
    "any environment that drifts": posterity.Family.from_gymnasium(
        "Pendulum-v1", {"g": posterity.drift(5.0, 15.0, step=1.0), "m": posterity.uniform(1, 2)}
    ),
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_longer_stream_begins_with_a_shorter_one(family: Family):
    assert family.tasks(KEY, 12)[:5] == family.tasks(KEY, 5)
    assert family.tasks(KEY, 5) != family.tasks(Key.of(4).fold("stream"), 5)


def test_a_task_that_recurs_is_an_earlier_one_and_never_the_one_just_left():
    gravities = [task.factors["gravity"] for task in FAMILIES["recurring"].tasks(KEY, 400)]
    again = [value in gravities[:place] for place, value in enumerate(gravities)]
    assert abs(np.mean(again) - 0.6) < 0.08  # three standard errors
    assert all(one != next_one for one, next_one in itertools.pairwise(gravities))


def test_drift_goes_by_small_steps_and_stays_within_its_ends():
    values = np.array([task.factors["g"] for task in FAMILIES["any environment that drifts"].tasks(KEY, 600)])
    assert ((values >= 5.0) & (values <= 15.0)).all()
    assert abs(np.diff(values).std() - 1.0) < 0.1
    assert np.ptp(values) > 8.0


@pytest.mark.parametrize(("value", "lands"), [(0.5, 0.5), (1.25, 0.75), (-0.25, 0.25), (2.5, 0.5), (0.0, 0.0)])
def test_a_walk_turns_back_at_its_ends(value: float, lands: float):
    assert reflected(value, 0.0, 1.0) == pytest.approx(lands)


def test_a_drift_without_a_step_is_refused():
    with pytest.raises(UserError, match="the step is above 0"):
        posterity.drift(0.5, 1.5, step=0.0)
