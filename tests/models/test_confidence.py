"""Whose prediction is trusted: Definition 4.5 by hand, and the blend."""

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posterity.models.confidence import blend, choose, confidence, variance
from posterity.models.dynamics import Prediction

ONE = jnp.ones(3)


def prediction(means: ArrayLike, deviations: ArrayLike) -> Prediction:
    """[P, 1, D] of one row."""
    mean, deviation = np.asarray(means, np.float32), np.asarray(deviations, np.float32)
    return Prediction(jnp.asarray(mean)[:, None], 2 * jnp.log(jnp.asarray(deviation))[:, None])


def test_confidence_is_definition_4_5_by_hand():
    """Means 1, 2, 6 have an unbiased variance of 7; deviations 1, 1, 4 one of 3. c = -7 - alpha 3."""
    got = prediction([[1.0], [2.0], [6.0]], [[1.0], [1.0], [4.0]])
    for alpha in (0.0, 1.0, 0.5):
        np.testing.assert_allclose(confidence(got, jnp.ones(1), alpha), [[-7.0 - alpha * 3.0]], rtol=1e-5)


def test_units_of_the_data_divide_what_is_compared():
    got = prediction([[1.0], [2.0], [6.0]], [[1.0], [1.0], [4.0]])
    np.testing.assert_allclose(confidence(got, jnp.array([2.0]), 1.0), [[-10.0 / 4.0]], rtol=1e-5)


def test_reward_and_state_are_chosen_apart():
    """The task model is sure of the reward, the world model of the state."""
    sure, unsure = [[0.0], [0.1]], [[0.0], [2.0]]
    task = prediction(np.hstack([sure, unsure, unsure]), np.ones((2, 3)))
    world = prediction(np.hstack([unsure, sure, sure]) + 10, np.full((2, 3), 3.0))
    got = choose(task, world, ONE, alpha=1.0)
    np.testing.assert_array_equal(got.world, [[False, True, True]])
    for chosen, own, general in zip(got.prediction, task, world, strict=True):
        np.testing.assert_array_equal(chosen[:, 0, 0], own[:, 0, 0])
        np.testing.assert_array_equal(chosen[:, 0, 1:], general[:, 0, 1:])


def test_a_state_is_chosen_as_a_whole_by_variances_in_units_of_the_data():
    """Doubt of the task model: 0.02 and 2 for the two dimensions; of the world model: 0.5 and 0.5."""
    task = prediction([[0.0, 0.0, 0.0], [0.0, 0.2, 2.0]], np.ones((2, 3)))
    world = prediction([[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]], np.ones((2, 3)))
    np.testing.assert_array_equal(choose(task, world, ONE, alpha=1.0).world, [[False, True, True]])
    other = choose(task, world, jnp.array([1.0, 0.1, 10.0]), alpha=1.0)
    np.testing.assert_array_equal(other.world, [[False, False, False]])


def test_doubt_of_the_deviation_counts_by_alpha():
    task = prediction([[0.0], [0.5]], [[1.0], [4.0]])
    world = prediction([[0.0], [1.0]], [[1.0], [1.0]])
    assert bool(choose(task, world, jnp.ones(1), alpha=1.0).world[0, 0])
    assert not bool(choose(task, world, jnp.ones(1), alpha=0.0).world[0, 0])


def test_between_equals_the_task_model_is_trusted():
    same = prediction(np.ones((2, 3)), np.ones((2, 3)))
    assert not choose(same, same, ONE, alpha=1.0).world.any()


def test_variance_is_chance_and_doubt_at_the_same_places_by_hand():
    """Two particles of deviations 1 and 2, in places apart. Their networks differ by 2 in the first, 4 in the second.

    Chance (1 + 4) / 2, doubt (2^2 / 2 + 4^2 / 2) / 2; that the places are 100 apart is none.
    """
    here = prediction([[0.0], [100.0]], [[1.0], [2.0]])
    other = prediction([[2.0], [104.0]], [[1.0], [2.0]])
    np.testing.assert_allclose(variance(here, other), [[2.5 + 5.0]], rtol=1e-5)


def test_doubt_between_pairs_is_the_variance_over_networks():
    """Many networks drawn with deviation 3, all of one place and without chance: 9, within 3 % (fixed seed)."""
    drawn = np.random.default_rng(0).normal(0, 3, (20000, 1))
    here = prediction(drawn, np.full_like(drawn, 1e-3))
    other = prediction(np.roll(drawn, 1, axis=0), np.full_like(drawn, 1e-3))
    np.testing.assert_allclose(variance(here, other), [[9.0]], rtol=0.03)


def test_a_blend_weighs_every_dimension_by_precision():
    """Variances 1 and 3: the surer one counts three quarters, in the mean and in the chance that is left."""
    task = prediction([[0.0, 8.0]], [[1.0, 2.0]])
    world = prediction([[4.0, 0.0]], [[3.0, 2.0]])
    got = blend(task, world, jnp.array([[1.0, 3.0]]), jnp.array([[3.0, 1.0]]))
    np.testing.assert_allclose(got.world, [[0.25, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(got.prediction.mean, [[[1.0, 2.0]]], rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(got.prediction.log_variance), [[[0.75 * 1 + 0.25 * 9, 4.0]]], rtol=1e-5)


def test_between_equally_sure_models_a_blend_is_halfway():
    task, world = prediction([[0.0]], [[1.0]]), prediction([[2.0]], [[1.0]])
    got = blend(task, world, jnp.ones((1, 1)), jnp.ones((1, 1)))
    np.testing.assert_allclose(got.prediction.mean, [[[1.0]]])
