import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import horizon, normaliser
from posterity.models.horizon import HorizonSettings, Steps

SETTINGS = HorizonSettings(use=True, gamma=0.9, hidden=(32,), steps=4000, rows=64, rate=3e-3, follow=0.02)


def chain(key: jax.Array) -> Steps:
    """A walk 0 -> 1 -> ... -> 4, which ends there; a step earns 1, the last one 5."""
    place = jax.random.randint(key, (64,), 0, 4)
    obs = place[:, None].astype(jnp.float32)
    return Steps(obs, jnp.where(place == 3, 5.0, 1.0), obs + 1.0, (place == 3).astype(jnp.float32))


def test_the_value_of_a_chain_is_its_discounted_rewards():
    """5; 1 + 0.9 x 5 = 5.5; 1 + 0.9 x 5.5 = 5.95; 6.355, backwards from the end. To 2 %."""
    units = normaliser.identity(1, 1)._replace(input_mean=jnp.array([1.5, 0.0]), target_mean=jnp.array([2.0, 0.0]))
    begin = horizon.init(jax.random.key(0), 1, SETTINGS)
    learned, error = jax.jit(lambda v: horizon.fit(jax.random.key(1), v, units, chain, SETTINGS))(begin)
    got = horizon.predict(learned.weights, units, jnp.arange(4.0)[:, None], SETTINGS.gamma)
    np.testing.assert_allclose(got, [6.355, 5.95, 5.5, 5.0], rtol=0.02)
    assert float(error) < 0.05


def test_before_anything_is_learned_nothing_follows():
    begin = horizon.init(jax.random.key(0), 3, SETTINGS)
    got = horizon.predict(begin.weights, normaliser.identity(3, 1), jnp.ones((5, 3)), SETTINGS.gamma)
    np.testing.assert_array_equal(got, jnp.zeros(5))
