import jax.numpy as jnp
import numpy as np

from posterity.models.confidence import BackwardSettings, choose, confidence
from posterity.models.network import Prediction

ONE = jnp.ones(3)


def prediction(means, deviations) -> Prediction:
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
    world = prediction(np.hstack([unsure, sure, sure]) + 10, np.ones((2, 3)))
    got = choose(task, world, ONE, BackwardSettings())
    np.testing.assert_array_equal(got.world, [[False, True, True]])
    np.testing.assert_allclose(got.prediction.mean[:, 0, 0], task.mean[:, 0, 0])
    np.testing.assert_allclose(got.prediction.mean[:, 0, 1:], world.mean[:, 0, 1:])


def test_a_state_is_chosen_as_a_whole_or_dimension_by_dimension():
    """Doubt of the task model: 0.02 and 2 for the two dimensions; of the world model: 0.5 and 0.5."""
    task = prediction([[0.0, 0.0, 0.0], [0.0, 0.2, 2.0]], np.ones((2, 3)))
    world = prediction([[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]], np.ones((2, 3)))
    whole = choose(task, world, ONE, BackwardSettings(state="together"))
    np.testing.assert_array_equal(whole.world, [[False, True, True]])
    apart = choose(task, world, ONE, BackwardSettings(state="each"))
    np.testing.assert_array_equal(apart.world, [[False, False, True]])
    other = choose(task, world, jnp.array([1.0, 0.1, 10.0]), BackwardSettings(state="together"))
    np.testing.assert_array_equal(other.world, [[False, False, False]])


def test_doubt_of_the_deviation_counts_by_alpha():
    task = prediction([[0.0], [0.5]], [[1.0], [4.0]])
    world = prediction([[0.0], [1.0]], [[1.0], [1.0]])
    assert bool(choose(task, world, jnp.ones(1), BackwardSettings(alpha=1.0)).world[0, 0])
    assert not bool(choose(task, world, jnp.ones(1), BackwardSettings(alpha=0.0)).world[0, 0])


def test_between_equals_the_task_model_is_trusted():
    same = prediction(np.ones((2, 3)), np.ones((2, 3)))
    assert not choose(same, same, ONE, BackwardSettings()).world.any()
