"""The value baseline: episodes, advantages and the fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import baseline
from posterity.models.baseline import Episodes, ValueSettings
from posterity.types import Transition

ROWS = Transition(  # one lane: terminates after 2, is cut off by its limit after 3, and by the iteration's end after 2
    obs=np.array([[[0.0], [1.0], [10.0], [11.0], [12.0], [20.0], [21.0]]]),
    action=np.zeros((1, 7, 1)),
    reward=np.arange(1.0, 8.0)[None],
    next_obs=np.array([[[1.0], [2.0], [11.0], [12.0], [13.0], [21.0], [22.0]]]),
    terminated=np.arange(7)[None] == 1,
    truncated=np.arange(7)[None] == 4,
)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_an_iteration_is_cut_into_its_episodes(bootstrap: bool):
    episodes = baseline.split_episodes(ROWS, bootstrap)
    np.testing.assert_array_equal(episodes.time[0], [0, 1, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(episodes.last[0], [False, True, False, False, True, False, True])
    np.testing.assert_array_equal(episodes.bootstrap_mask[0], [1, 0, 1, 1, float(bootstrap), 1, 1])


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (True, True), (False, True)])
def test_an_episode_that_ends_with_the_iteration_is_not_cut_off_by_it(terminated: bool, truncated: bool):
    """Terminated, nothing follows, whatever the time limit says; at its limit, what `bootstrap` says follows."""
    ends = np.arange(7)[None] == 6
    rows = ROWS._replace(terminated=ends & terminated, truncated=ends & truncated)
    assert baseline.split_episodes(rows, bootstrap=False).bootstrap_mask[0, -1] == 0
    assert baseline.split_episodes(rows, bootstrap=True).bootstrap_mask[0, -1] == (not terminated)


def test_episodes_end_where_the_rows_say_so_and_not_where_observations_jump():
    """Observations that never change have episodes too, and one that jumps within an episode does not end it."""
    still = ROWS._replace(obs=np.zeros((1, 7, 2)), next_obs=np.zeros((1, 7, 2)))
    np.testing.assert_array_equal(baseline.split_episodes(still, True).time[0], [0, 1, 0, 1, 2, 0, 1])
    none = np.zeros((1, 7), dtype=bool)
    whole = ROWS._replace(terminated=none, truncated=none)
    np.testing.assert_array_equal(baseline.split_episodes(whole, True).time[0], np.arange(7))


def test_every_lane_has_episodes_of_its_own():
    other = ROWS._replace(terminated=np.arange(7)[None] == 3, truncated=np.zeros((1, 7), dtype=bool))
    both = Transition(*(np.concatenate(parts) for parts in zip(ROWS, other, strict=True)))
    together = baseline.split_episodes(both, bootstrap=False)
    for lane, rows in enumerate((ROWS, other)):
        for one, all_lanes in zip(baseline.split_episodes(rows, bootstrap=False), together, strict=True):
            np.testing.assert_array_equal(all_lanes[lane], one[0])


def test_advantages_and_returns_by_hand():
    """gamma = lambda = 1/2, V(s) = s. The tail after termination is worth 0, after a cut V."""
    episodes = baseline.split_episodes(ROWS, bootstrap=True)
    here, after = episodes.obs[0, :, 0], episodes.next_obs[0, :, 0] * episodes.bootstrap_mask[0]
    advantage, target = baseline.estimate(here, after, episodes.reward[0], episodes.last[0], 0.5, 0.5)
    delta = np.array([1 + 0.5 - 0, 2 - 1, 3 + 5.5 - 10, 4 + 6 - 11, 5 + 6.5 - 12, 6 + 10.5 - 20, 7 + 11 - 21])
    hand = [
        delta[0] + delta[1] / 4,
        delta[1],
        delta[2] + delta[3] / 4 + delta[4] / 16,
        delta[3] + delta[4] / 4,
        delta[4],
        delta[5] + delta[6] / 4,
        delta[6],
    ]
    np.testing.assert_allclose(advantage, hand, atol=1e-6)
    np.testing.assert_allclose(target, [2, 2, 3 + 2 + 11.5 / 4, 4 + 11.5 / 2, 11.5, 6 + 18 / 2, 18], atol=1e-6)
    episodes = baseline.split_episodes(ROWS, bootstrap=False)
    after = episodes.next_obs[0, :, 0] * episodes.bootstrap_mask[0]
    _, target = baseline.estimate(here, after, episodes.reward[0], episodes.last[0], 0.5, 0.5)
    np.testing.assert_allclose(target, [2, 2, 3 + 2 + 5 / 4, 4 + 5 / 2, 5, 6 + 18 / 2, 18], atol=1e-6)


def test_the_value_network_learns_the_returns():
    settings = ValueSettings(hidden=(32,), epochs=60, learning_rate=1e-2)
    obs = jnp.asarray(np.random.default_rng(0).uniform(-10, 10, (256, 2)), jnp.float32)
    flat = jnp.zeros(256)
    target = obs[:, 0] - 0.5 * obs[:, 1]
    fresh = baseline.init(jax.random.key(1), 2, settings)
    fitted = baseline.fit(jax.random.key(0), fresh, Episodes(obs, flat, obs, flat, flat, flat), target, settings)
    error = baseline.predict(fitted.weights, obs, flat) - target
    assert float((error**2).mean()) < 0.01 * float(target.var())


def test_the_value_depends_on_the_time_in_the_episode():
    value = baseline.init(jax.random.key(1), 2, ValueSettings(hidden=(8,)))
    early, late = baseline.predict(value.weights, jnp.ones((2, 2)), jnp.array([0.0, 500.0]))
    assert float(early) != float(late)
