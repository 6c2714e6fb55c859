"""Imagined returns: walks by hand, endings, and what follows the horizon."""

import jax
import jax.numpy as jnp
import numpy as np

from posterity.planning.rollout import ImaginedStep, imagined_returns

KEY = jax.random.key(0)


def walk(key: jax.Array, obs: jax.Array, action: jax.Array) -> ImaginedStep:
    """Particle p adds p to every step; the reward is the place stepped to."""
    bonus = jnp.arange(obs.shape[0], dtype=jnp.float32)[:, None, None]
    following = obs + action[None] + bonus
    return ImaginedStep(following[..., 0], following, (action.sum(), action.max()))


def test_returns_are_those_of_walking_by_hand():
    candidates = jnp.array([[[1.0], [1.0]], [[0.0], [2.0]]])
    got, _ = imagined_returns(KEY, walk, jnp.array([0.0]), candidates, 2, None)
    np.testing.assert_allclose(got, [[1 + 2, 0 + 2], [2 + 4, 1 + 4]])


def test_the_reward_of_the_ending_step_counts_and_none_after_it():
    candidates = jnp.ones((1, 5, 1))
    box = (jnp.array([-10.0]), jnp.array([2.5]))
    got, _ = imagined_returns(KEY, walk, jnp.array([0.0]), candidates, 1, box)
    np.testing.assert_allclose(got, [[1 + 2 + 3]])


def test_a_rollout_that_comes_back_into_the_box_has_ended_all_the_same():
    """Up to 3, which is outside, then back to 0 and up again."""
    candidates = jnp.array([[[3.0], [-3.0], [1.0], [1.0]]])
    box = (jnp.array([-10.0]), jnp.array([2.5]))
    got, _ = imagined_returns(KEY, walk, jnp.array([0.0]), candidates, 1, box, lambda last: 100 * last[..., 0])
    np.testing.assert_allclose(got, [[3]])


def test_every_step_has_a_key_of_its_own():
    def noisy(key: jax.Array, obs: jax.Array, action: jax.Array) -> ImaginedStep:
        noise = jax.random.normal(key, obs.shape)
        return ImaginedStep(noise[..., 0], obs)

    got, _ = imagined_returns(KEY, noisy, jnp.array([0.0]), jnp.zeros((2000, 16, 1)), 1, None)
    assert abs(float(got.std()) - 4.0) < 0.3  # 16 independent unit normals: deviation 4


def test_the_facts_of_steps_come_back_step_by_step():
    candidates = jnp.array([[[1.0], [1.0]], [[0.0], [2.0]]])
    _, facts = imagined_returns(KEY, walk, jnp.array([0.0]), candidates, 2, None)
    np.testing.assert_allclose(facts, [[1.0, 3.0], [1.0, 2.0]])


def test_what_is_still_going_is_worth_its_last_state():
    candidates = jnp.array([[[1.0], [1.0]], [[0.0], [2.0]], [[3.0], [1.0]]])
    box = (jnp.array([-10.0]), jnp.array([2.5]))
    got, _ = imagined_returns(KEY, walk, jnp.array([0.0]), candidates, 1, box, lambda last: 100 * last[..., 0])
    np.testing.assert_allclose(got, [[1 + 2 + 200, 0 + 2 + 200, 3]])


def test_what_follows_a_likely_end_counts_by_the_probability_of_still_going():
    """Every step ends with probability one half: 1 + 2 / 2 + 3 / 4, and an eighth of what the last place is worth."""
    candidates = jnp.ones((1, 3, 1))
    got, _ = imagined_returns(
        KEY,
        walk,
        jnp.array([0.0]),
        candidates,
        1,
        None,
        lambda last: 80 * last[..., 0],
        lambda place, action, following: jnp.full(place.shape[:2], 0.5),
    )
    np.testing.assert_allclose(got, [[1 + 2 / 2 + 3 / 4 + 240 / 8]])


def test_what_follows_a_certain_end_is_nothing_even_if_it_is_not_finite():
    def broken(key: jax.Array, obs: jax.Array, action: jax.Array) -> ImaginedStep:
        following = obs + action[None]
        return ImaginedStep(jnp.where(following[..., 0] > 2.5, jnp.nan, 1.0), following)

    def over(place: jax.Array, action: jax.Array, following: jax.Array) -> jax.Array:
        return (following[..., 0] > 1.5).astype(jnp.float32)

    got, _ = imagined_returns(KEY, broken, jnp.array([0.0]), jnp.ones((1, 4, 1)), 1, None, None, over)
    np.testing.assert_allclose(got, [[2.0]])
