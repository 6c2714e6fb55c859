"""Learning with kernels is learning without them: the same networks, moments and losses after some rounds."""

import jax
import jax.numpy as jnp
import numpy as np

from posterity.kernels import actor_critic as fused
from posterity.models import actor_critic, actor_critic_fit, normaliser
from posterity.models.actor_critic import ActionBox, StepBatch

BOX = ActionBox(jnp.array([-1.0, -2.0]), jnp.array([1.0, 2.0]))
UNITS = normaliser.identity(3, 2)


def batch(key: jax.Array) -> StepBatch:
    keys = jax.random.split(key, 3)
    obs, action = jax.random.normal(keys[0], (40, 3)), jax.random.uniform(keys[1], (40, 2), minval=-1.0)
    ends = (jax.random.uniform(keys[2], (40,)) < 0.1).astype(jnp.float32)
    return StepBatch(obs, action, obs[:, 0] - (action**2).sum(axis=1), obs + 0.1, ends)


def test_a_fit_by_kernels_is_the_plain_fit():
    """Three rounds of two lanes: all numbers to 2e-4, which is what Adam makes of sums in another order."""

    def start(key: jax.Array) -> actor_critic.ActorCriticTraining:
        made = actor_critic.init(key, 3, 2, (32, 32), critics=2)
        return actor_critic.widened(made, jnp.float32(-5.0), jnp.float32(5.0), 0.9)

    begin = jax.vmap(start)(jax.random.split(jax.random.key(0), 2))
    keys = jax.random.split(jax.random.key(1), 2)
    plain, by_kernels = (
        jax.jit(jax.vmap(lambda key, now, fit=fit: fit(key, now, UNITS, batch, BOX, 0.9, 12)))(keys, begin)
        for fit in (actor_critic_fit.fit, fused.fit)
    )
    assert jax.tree.structure(plain) == jax.tree.structure(by_kernels)
    for told, wanted in zip(jax.tree.leaves(by_kernels), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(told, wanted, atol=2e-4, rtol=1e-4)
    moved = jnp.abs(plain[0].now.actor[0].weight - begin.now.actor[0].weight).max()
    assert float(moved) > 1e-3  # and something was learned
