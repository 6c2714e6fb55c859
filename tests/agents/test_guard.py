"""The guard: what a task's best actor could do is not lost while learning goes on."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from posterity.agents import guard
from posterity.models.mlp import Layer
from posterity.types import Transition


def _actor(number: float):
    """An actor that can be told from others."""
    return (Layer(jnp.full((1, 1), number), jnp.zeros(1)),)


def _number(actor) -> float:
    return float(actor[0].weight[0, 0])


def _played(returns: list[float]) -> tuple[guard.Guard, list[float]]:
    """The guard after iterations that earned `returns`, and who acted in each. Actor k was learned in iteration k."""
    now, acted = guard.begin(_actor(0.0)), []
    for number, earned in enumerate(returns, start=1):
        acted.append(_number(now.playing))
        now = guard.follow(now, _actor(number), jnp.float32(earned))
    return now, acted


def test_an_actor_that_does_not_get_worse_always_acts_itself():
    _, acted = _played([10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 55.0, 70.0, 66.0, 90.0])
    assert acted == list(range(10))


def test_an_actor_that_gets_clearly_worse_steps_aside_for_the_best_so_far():
    """Over eight iterations the mean is best, 100, after the ninth, in which actor 8 acted. Then it falls to 50."""
    now, acted = _played([90.0, *[100.0] * 8, 0.0, 0.0, 0.0, 0.0])
    assert acted[-1] == 12
    assert int(now.left) == guard.STRETCH
    assert _number(now.playing) == _number(now.best) == 8


def test_after_a_stretch_the_learning_actor_has_another_try():
    down = [100.0] * 8 + [-200.0] * 4
    _, acted = _played([*down, *[100.0] * guard.STRETCH, 100.0])
    assert acted[len(down) : -1] == [7] * guard.STRETCH
    assert acted[-1] == len(down) + guard.STRETCH


def test_a_lucky_best_return_is_corrected_while_its_actor_acts():
    now, _ = _played([100.0] * 8 + [-200.0] * 4 + [50.0] * guard.STRETCH)
    np.testing.assert_allclose(float(now.best_return), 50.0 + 50.0 * (1.0 - guard.FOLLOW) ** guard.STRETCH, rtol=1e-6)


def test_falling_short_is_told_where_returns_are_negative_too():
    _, acted = _played([-100.0] * 8 + [-110.0] * 3)
    assert acted == list(range(11))
    now, _ = _played([-100.0] * 8 + [-400.0] * 4)
    assert int(now.left) == guard.STRETCH


def test_returns_that_vary_by_chance_do_not_set_it_off():
    """After 160 and 240 in turns, with a mean of 200, eight iterations of 200 and 0 in turns may be chance."""
    _, acted = _played([160.0, 240.0] * 4 + [200.0, 0.0] * 4)
    assert acted == list(range(16))
    now, _ = _played([190.0, 210.0] * 4 + [110.0, 90.0] * 4)
    assert int(now.left) > 0


def test_a_return_is_the_mean_over_the_episodes_of_an_iteration():
    """Lane 0: episodes of 2 and 3 steps, the last one cut off. Lane 1: a single one."""
    reward = np.array([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    ends = np.array([[False, True, False, False, False], [False] * 5])
    rows = Transition(reward, reward, reward, reward, ends, np.zeros_like(ends))
    assert guard.earned(rows).tolist() == [7.5, 5.0]
    assert not ends[:, -1].any()  # what was handed in is as it was
