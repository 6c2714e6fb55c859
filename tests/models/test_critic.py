"""The critic: temporal differences with a known answer, and what keeps a value from running away."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import critic, normaliser
from posterity.models.critic import CriticBatch

GAMMA, STEPS = 0.9, 6000
HIDDEN = (32,)


def chain(key: jax.Array) -> CriticBatch:
    """A walk 0 -> 1 -> ... -> 4, which ends there; a step earns 1, the last one 5."""
    place = jax.random.randint(key, (64,), 0, 4)
    obs = place[:, None].astype(jnp.float32)
    return CriticBatch(obs, jnp.where(place == 3, 5.0, 1.0), obs + 1.0, (place == 3).astype(jnp.float32))


def test_the_value_of_a_chain_is_its_discounted_rewards():
    """5; 1 + 0.9 x 5 = 5.5; 1 + 0.9 x 5.5 = 5.95; 6.355, backwards from the end. To 2 %."""
    units = normaliser.identity(1, 1)._replace(input_mean=jnp.array([1.5, 0.0]), target_mean=jnp.array([2.0, 0.0]))
    begin = critic.widened(critic.init(jax.random.key(0), 1, HIDDEN), jnp.float32(0.0), jnp.float32(5.0), 0.9)
    learned, error = jax.jit(lambda now: critic.fit(jax.random.key(1), now, units, chain, GAMMA, STEPS))(begin)
    got = critic.value(learned.critic, units, jnp.arange(4.0)[:, None], GAMMA)
    np.testing.assert_allclose(got, [6.355, 5.95, 5.5, 5.0], rtol=0.02)
    assert float(error) < 0.05


def test_before_anything_is_learned_nothing_follows():
    """By the network itself: the bounds are wide."""
    fresh = critic.init(jax.random.key(0), 3, HIDDEN)
    begin = critic.widened(fresh, jnp.float32(-5.0), jnp.float32(5.0), GAMMA)
    got = critic.value(begin.critic, normaliser.identity(3, 1), jnp.ones((5, 3)), GAMMA)
    np.testing.assert_array_equal(got, jnp.zeros(5))


def cut_off(seed: int) -> CriticBatch:
    """Twenty walks in 17 dimensions that a time limit cuts off after ten steps; every step earns about 1."""
    generator = np.random.default_rng(seed)
    walks = generator.normal(size=(20, 11, 17)).cumsum(axis=1)
    reward = 1.0 + 0.3 * generator.normal(size=200)
    obs, following = walks[:, :-1].reshape(200, 17), walks[:, 1:].reshape(200, 17)
    return CriticBatch(*(jnp.asarray(x, jnp.float32) for x in (obs, reward, following, np.zeros(200))))


def test_a_value_does_not_feed_on_its_own_guesses_where_episodes_were_cut_off():
    """Wide bounds, three worlds: without normalised layers values reach 140, 2,000 and 300,000; true is 33."""
    gamma, steps = 0.97, 3000
    units = normaliser.identity(17, 1)._replace(target_mean=jnp.ones(18))
    far = jnp.float32(1e6)
    training = critic.widened(critic.init(jax.random.key(0), 17), -far, far, gamma)

    def draw(rows: CriticBatch, key: jax.Array) -> CriticBatch:
        place = jax.random.randint(key, (64,), 0, 200)
        return CriticBatch(*(column[place] for column in rows))

    long = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}  # 9,000 steps: worth it
    fit = jax.jit(
        lambda key, now, rows: critic.fit(key, now, units, partial(draw, rows), gamma, steps), compiler_options=long
    )
    for world in range(3):
        rows = cut_off(world)
        training, _ = fit(jax.random.key(world), training, rows)
        worth = critic.value(training.critic, units, rows.next_obs, gamma)
        assert float(jnp.abs(worth).max()) < 60.0
        assert 20.0 < float(worth.mean()) < 45.0


def test_nothing_is_worth_more_than_the_best_reward_for_ever():
    begin = critic.init(jax.random.key(0), 1, HIDDEN)
    held = critic.widened(begin, jnp.float32(-1.0), jnp.float32(2.0), 0.9)
    wild = held.critic._replace(layers=jax.tree.map(lambda leaf: leaf + 100.0, held.critic.layers))
    np.testing.assert_allclose(critic.value(wild, normaliser.identity(1, 1), jnp.ones((2, 1)), 0.9), 20.0)
    again = critic.widened(held, jnp.float32(-0.5), jnp.float32(1.0), 0.9)
    np.testing.assert_allclose([again.critic.low, again.critic.high], [-10.0, 20.0], rtol=1e-5)
