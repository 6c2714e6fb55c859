"""Shiryaev's odds: by hand, on steps whose densities are known, and how wide a forecast is held to be."""

import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import change
from posterity.models.change import Odds, Told

PRESENT, OTHER, NEW = 0, 1, 2


def told(**favoured: float) -> np.ndarray:
    """[1, 3] nats of one step: for the present task, for another and for a new one."""
    return np.array([[0.0, favoured.get("other", -1.0), favoured.get("new", -1.0)]])


def met(*densities: np.ndarray, odds: Odds | None = None, room: bool = True) -> Odds:
    return change.after(odds or change.no_odds(2), np.concatenate(densities), PRESENT, 2, room)


def test_one_step_by_hand():
    """(0 + hazard pi) / (1 - hazard) times the ratio of densities."""
    odds = met(told(other=0.7))
    prior = np.array([1.0, 1.0 - change.NEW, change.NEW])
    expected = np.log(change.HAZARD * prior / (1 - change.HAZARD)) + np.array([-np.inf, 0.7, -1.0])
    np.testing.assert_allclose(odds.log, expected)


def test_a_change_is_told_after_as_many_steps_as_the_evidence_takes():
    """Each counts one nat at most: log(99 / (0.9 hazard)) = 11.6 of them, a little fewer as each step could be it."""
    assert change.decided(met(*[told(other=50.0)] * 11)) is None
    odds = met(*[told(other=50.0)] * 12)
    assert change.decided(odds) == OTHER
    assert odds.since[OTHER] == 12


def test_a_burst_of_odd_steps_is_no_change():
    odds = met(*[told(new=9.0)] * 8)
    assert change.decided(odds) is None
    odds = met(*[told()] * 20, odds=odds)
    assert np.logaddexp.reduce(odds.log) < np.log(change.HAZARD)


def test_what_came_before_the_change_does_not_count_as_part_of_it():
    odds = met(*[told()] * 30, *[told(other=5.0)] * 13)
    assert change.decided(odds) == OTHER
    assert odds.since[OTHER] == 13


def test_where_there_is_no_room_a_task_is_never_new():
    odds = met(*[told(new=9.0)] * 50, room=False)
    assert change.decided(odds) is None
    assert odds.log[NEW] == -np.inf


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_the_usual_error_is_learned_and_outliers_hardly_move_it(scale: float):
    generator = np.random.default_rng(0)
    errors = scale * generator.standard_t(change.FREEDOM, (4000, 1)) ** 2
    learned = change.learned_scale(np.ones(1), errors)
    assert abs(np.log(learned[0] / scale)) < 0.5  # a running mean over 50 steps
    jumped = change.learned_scale(learned, np.full((1, 1), 1e6 * scale))
    assert jumped[0] < 1.15 * learned[0]


def nats(present: float, other: float, scales: tuple[float, float] = (1.0, 1.0), near: float = 1.0) -> np.ndarray:
    """[K + 1] of one step of two dimensions, both tasks foretelling a variance of 1."""
    squares = np.array([present, other])[:, None, None] * np.ones((1, 1, 2))
    told = Told(squares, np.ones((2, 1, 2)), np.full(1, near))
    return change.evidence(told, np.array(scales)[:, None] * np.ones((1, 2)), PRESENT)[0]


def test_where_two_tasks_do_the_same_nothing_speaks_for_either():
    """Not even for the one that is the surer of it."""
    assert abs(nats(1e-4, 1e-4, (1.0, 0.01))[OTHER]) < 1e-3


def test_errors_beyond_the_usual_speak_for_a_new_task_and_usual_ones_against_it():
    assert nats(30.0, 30.0)[NEW] > 1.0
    assert nats(0.5, 0.5)[NEW] < -0.5
    assert nats(30.0, 30.0, (30.0, 30.0))[NEW] < 0.0


def test_a_known_task_that_is_less_wrong_but_not_right_is_not_gone_back_to_on_that_account_alone():
    right, less_wrong = nats(100.0, 1.0), nats(100.0, 60.0)
    assert right[OTHER] > 1.0
    assert less_wrong[OTHER] < 0.0 < less_wrong[NEW]


def test_errors_where_the_task_has_not_been_do_not_speak_for_a_new_one():
    assert nats(30.0, 30.0, near=0.01)[NEW] < 0.1
    assert nats(0.5, 0.5, near=0.01)[NEW] == nats(0.5, 0.5)[NEW]


def test_a_known_task_that_has_been_where_the_present_one_has_not_is_not_gone_back_to_for_knowing_better_there():
    assert nats(100.0, 1.0, near=0.01)[OTHER] == pytest.approx(0.01 * nats(100.0, 1.0)[OTHER])
    assert nats(1.0, 100.0, near=0.01)[OTHER] == nats(1.0, 100.0)[OTHER] < 0.0


def moved(steps: int, inputs: int, apart: float) -> jnp.ndarray:
    """[steps, inputs] places that come back, each time so far from where they were before."""
    lap = np.random.default_rng(0).normal(size=(50, inputs))
    return jnp.asarray(np.concatenate([lap + apart * number for number in range(steps // 50)]), jnp.float32)


@pytest.mark.parametrize("apart", [0.05, 0.3])
def test_the_usual_distance_is_that_to_the_nearest_earlier_step(apart: float):
    assert change.usual_distance(moved(600, 14, apart), jnp.int32(600)) == pytest.approx(apart, rel=1e-3)


def test_the_usual_distance_leaves_out_steps_of_the_same_moment_and_what_is_not_there():
    still = jnp.repeat(jnp.arange(30.0), change.MOMENT)[:, None]  # it stays in each place, and then goes on
    assert change.usual_distance(still, jnp.int32(len(still))) == pytest.approx(1.0)
    room = jnp.concatenate([moved(600, 14, 0.3), jnp.zeros((500, 14))])
    assert change.usual_distance(room, jnp.int32(600)) == pytest.approx(0.3, rel=1e-3)


@pytest.mark.parametrize("filled", [0, 1, change.MOMENT, change.FEW - 1])
def test_too_few_steps_have_no_usual_distance(filled: int):
    assert change.usual_distance(moved(600, 14, 0.3), jnp.int32(filled)) == 0.0


@pytest.mark.parametrize("apart", [0.3, 0.6])
def test_a_step_as_far_as_steps_usually_are_is_as_near_in_any_number_of_inputs(apart: float):
    seen, last = moved(600, 14, apart), jnp.int32(600)
    asked = seen[-5:] + apart
    np.testing.assert_allclose(change.nearness(asked, seen, last), np.exp(-0.5), rtol=1e-2)
    assert change.nearness(asked + 3 * apart, seen, last).max() < 0.01


def test_what_is_within_the_least_distance_is_near_though_steps_usually_are_nearer():
    seen = moved(600, 4, 0.01)
    near = change.nearness(seen[-5:] + change.NEAR, seen, jnp.int32(600))
    np.testing.assert_allclose(near, np.exp(-0.5), rtol=1e-2)


def test_nearness_is_to_the_nearest_of_what_is_there():
    seen = jnp.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    asked = jnp.array([[0.0, 0.0], [1.0, 1.0 + change.NEAR * 2**0.5], [5.0, 5.0]])
    np.testing.assert_allclose(change.nearness(asked, seen, jnp.int32(2)), [1.0, np.exp(-0.5), 0.0], atol=1e-6)
    assert change.nearness(asked, seen, jnp.int32(0)).max() == 0.0
