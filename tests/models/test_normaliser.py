"""The run's normaliser."""

import jax.numpy as jnp
import numpy as np

from posterity.models import normaliser

GENERATOR = np.random.default_rng(0)
INPUTS = jnp.asarray(GENERATOR.normal([1.0, 2.0, 0.0], [3.0, 1e-4, 0.5], (400, 3)), jnp.float32)  # two seen, one done
TARGETS = jnp.asarray(GENERATOR.normal([5.0, 0.0, 0.0], [2.0, 0.1, 0.0], (400, 3)), jnp.float32)  # reward, changes
ALL = jnp.ones(400, bool)


def test_inputs_and_targets_have_mean_0_and_deviation_1_in_them():
    units = normaliser.estimate(INPUTS, TARGETS, ALL)
    seen = units.inputs(INPUTS[:, :2], INPUTS[:, 2:])
    np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=1e-2)
    np.testing.assert_allclose(seen.std(axis=0), 1.0, rtol=1e-2)
    assert units.target_scale[2] == 1.0, "what never moves keeps its unit"
    predicted = units.targets(INPUTS[:, :2], TARGETS[:, 0], INPUTS[:, :2] + TARGETS[:, 1:])
    np.testing.assert_allclose(predicted[:, :2].mean(axis=0), 0.0, atol=1e-2)
    np.testing.assert_allclose(predicted[:, :2].std(axis=0), 1.0, rtol=1e-2)


def test_an_outcome_is_the_reward_and_the_next_observation_of_its_target():
    units = normaliser.estimate(INPUTS, TARGETS, ALL)
    obs, reward, following = INPUTS[:, :2], TARGETS[:, 0], INPUTS[:, :2] + TARGETS[:, 1:]
    back = units.outcome(obs, units.targets(obs, reward, following))
    np.testing.assert_allclose(back[0], reward, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(back[1], following, rtol=1e-5, atol=1e-5)
    same = normaliser.identity(2, 1)
    np.testing.assert_array_equal(same.inputs(obs, INPUTS[:, 2:]), INPUTS)


def test_rows_that_are_masked_do_not_count():
    half = jnp.arange(400) < 200
    wild = INPUTS.at[200:].set(1e6)
    masked, alone = (normaliser.estimate(*rows) for rows in ((wild, TARGETS, half), (INPUTS, TARGETS, half)))
    np.testing.assert_array_equal(masked.input_scale, alone.input_scale)


def test_no_unit_is_less_than_the_least():
    """An object that lay still in the first task is not thousands of units away in the second."""
    free = normaliser.estimate(INPUTS, TARGETS, ALL)
    least = (jnp.array([0.05, 0.05]), jnp.array([10.0, 0.002, 0.002]))
    bound = normaliser.estimate(INPUTS, TARGETS, ALL, least)
    np.testing.assert_allclose(bound.input_scale, free.input_scale.at[1].set(0.05))
    np.testing.assert_allclose(bound.target_scale, free.target_scale.at[0].set(10.0).at[2].set(0.002), rtol=1e-6)
    np.testing.assert_array_equal(bound.input_mean, free.input_mean)
