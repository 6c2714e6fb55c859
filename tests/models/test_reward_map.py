"""The map of sparse rewards against regression solved by hand, and what tasks teach about a new one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import replay, reward_map
from posterity.models.normaliser import Normaliser
from posterity.models.reward_map import Lattice, RewardBelief, RewardPrior
from posterity.types import Transition

LATTICE = Lattice(points=4, dimensions=2)
PLACES = np.random.default_rng(0).uniform(-2.9, 2.9, (7, 2)).astype(np.float32)
REWARDS = np.array([0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 0.5], np.float32)
PRIOR = RewardPrior(jnp.linspace(-1.0, 1.0, 16), jnp.linspace(0.2, 2.0, 16), jnp.zeros(2))


def features(places: np.ndarray) -> np.ndarray:
    """phi [B, C], laid out by hand."""
    number, share = map(np.asarray, LATTICE.around(jnp.asarray(places)))
    phi = np.zeros((len(places), LATTICE.size))
    np.add.at(phi, (np.arange(len(places))[:, None], number), share)
    return phi


def solved() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the posterior by the normal equations."""
    phi = features(PLACES)
    precision = np.diag(1.0 / np.asarray(PRIOR.variance)) + phi.T @ phi / reward_map.NOISE**2
    covariance = np.linalg.inv(precision)
    told = np.asarray(PRIOR.mean) / np.asarray(PRIOR.variance) + phi.T @ REWARDS / reward_map.NOISE**2
    return covariance @ told, covariance


def after_all() -> RewardBelief:
    """After all steps."""
    steps = jnp.asarray(PLACES), jnp.asarray(REWARDS), jnp.ones(len(REWARDS))
    return jax.jit(lambda: reward_map.conditioned(reward_map.begin(PRIOR), LATTICE, *steps))()


def test_a_function_that_is_linear_within_the_lattice_is_interpolated_exactly():
    axis = np.linspace(-reward_map.REACH, reward_map.REACH, LATTICE.points)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(features(PLACES) @ points, PLACES, atol=1e-5)


def test_shares_sum_to_one_inside_and_nothing_is_known_outside():
    _, inside = LATTICE.around(jnp.asarray(PLACES))
    np.testing.assert_allclose(inside.sum(axis=-1), 1.0, rtol=1e-6)
    _, outside = LATTICE.around(jnp.array([[0.0, 3.1], [-4.0, 0.0]]))
    assert not outside.any()


def test_steps_one_after_the_other_give_the_posterior_of_the_normal_equations():
    mean, covariance = solved()
    found = after_all()
    np.testing.assert_allclose(found.mean, mean, atol=1e-4)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-4)


def test_the_mean_map_says_what_draws_of_the_map_say_on_average():
    """A path's reward is linear in the map. 50,000 draws: within five standard errors."""
    mean, covariance = solved()
    path = np.random.default_rng(1).uniform(-2.9, 2.9, (5, 2))
    drawn = np.random.default_rng(2).multivariate_normal(mean, covariance, 50_000) @ features(path).T
    told = float(reward_map.value(after_all().mean, LATTICE, jnp.asarray(path)).sum())
    totals = drawn.sum(axis=1)
    assert abs(totals.mean() - told) < 5 * totals.std() / np.sqrt(len(totals))


def test_a_step_that_does_not_count_changes_nothing():
    belief = reward_map.begin(PRIOR)
    other = reward_map.seen(belief, LATTICE, jnp.zeros(2), jnp.float32(9.0), jnp.float32(0.0))
    for before, now in zip(belief, other, strict=True):
        np.testing.assert_array_equal(before, now)


def tasks(paying: list[float]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tasks of thirty steps each: to the first point, which pays as much as is said, and to the second, which never
    does."""
    first, second = np.full((15, 2), -reward_map.REACH), np.array([-reward_map.REACH, -1.0]) * np.ones((15, 2))
    places = np.tile(np.concatenate([first, second]), (len(paying), 1, 1))
    rewards = np.stack([np.repeat([pays, 0.0], 15) for pays in paying])
    return jnp.float32(places), jnp.float32(rewards), jnp.ones((len(paying), 30))


def test_what_paid_in_some_tasks_is_doubted_and_what_never_did_is_not():
    prior = reward_map.nothing_known(LATTICE)
    for _ in range(4):
        prior = reward_map.learned(LATTICE, prior, *tasks([4.0, 0.0] * 10))
    mean, std = np.asarray(prior.mean), np.sqrt(np.asarray(prior.variance))
    assert abs(mean[0] - 2.0) < 0.1
    assert abs(std[0] - 2.0) < 0.2
    assert abs(mean[1]) < 0.05
    assert std[1] < 0.2
    np.testing.assert_array_equal(mean[2:], reward_map.FIRST_MEAN)  # where no task has been, all is open
    np.testing.assert_allclose(std[2:], reward_map.FIRST_STD, rtol=1e-6)


@pytest.mark.parametrize("number", [2, 3])
def test_a_prior_is_learned_from_the_tasks_before_and_not_from_those_that_are_left(number: int):
    memory = replay.empty(4, 5, 2, 1)
    for task in range(3):
        none = np.zeros(5, bool)
        rows = Transition(
            np.zeros((5, 2)), np.zeros((5, 1)), np.full(5, float(task)), np.full((5, 2), task), none, none
        )
        memory = replay.add(memory, jnp.int32(task), rows)
    units = Normaliser(jnp.zeros(3), jnp.full(3, 2.0), jnp.ones(3), jnp.full(3, 4.0))
    places, rewards, counts = reward_map.of_tasks(jax.random.key(0), memory, jnp.zeros(2), units, jnp.int32(number))
    met = np.asarray(counts).all(axis=1)
    assert met.sum() == number
    assert not np.asarray(counts)[~met].any()
    assert {float(each[0]) for each in np.asarray(rewards)[met]} == {task / 4.0 for task in range(number)}
    assert {float(each[0, 0]) for each in np.asarray(places)[met]} == {task / 2.0 for task in range(number)}


def test_what_a_map_promises_is_in_the_units_of_the_environment():
    units = Normaliser(jnp.array([1.0, 2.0, 0.0]), jnp.array([2.0, 3.0, 1.0]), jnp.full(3, 0.5), jnp.full(3, 4.0))
    flat = RewardPrior(jnp.full(LATTICE.size, 2.0), jnp.zeros(LATTICE.size), jnp.array([5.0, 2.0]))
    belief = reward_map.begin(flat)
    inside, outside = jnp.array([-0.9, 2.0]), jnp.array([-1.1, 2.0])  # three deviations of 2 from the centre, or more
    told = reward_map.promised(belief, LATTICE, units, jnp.stack([inside, outside])[None])
    np.testing.assert_allclose(told, [[4.0 * 2.0, 0.0]], rtol=1e-5)  # beyond the map there is no reward
