"""Imagined returns: every candidate walked through every particle's network.

    score(candidate) = 1/P sum_p sum_tau reward_p(tau)                       (paper, Algorithm 1, "Evaluate actions as")

What a step does is handed in, so this knows nothing of networks. A particle that leaves the box `alive` has ended: the
reward of that step counts, those after it do not.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

Box = tuple[jax.Array, jax.Array]  # low [O], high [O]
# (key, observations [P, N, O], actions [N, A]) -> rewards [P, N], next observations [P, N, O]
Step = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def imagined_returns(
    key: jax.Array, step: Step, obs: jax.Array, candidates: jax.Array, particles: int, alive: Box | None
) -> jax.Array:
    """[P, N] undiscounted return of each candidate [N, T, A] from `obs` [O], for each particle."""
    count = candidates.shape[0]
    place = jnp.broadcast_to(obs, (particles, count, *obs.shape))
    going = jnp.ones((particles, count), dtype=bool)

    def walk(carry: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]):
        place, going = carry
        actions, k = now
        reward, following = step(k, place, actions)
        earned = jnp.where(going, reward, 0.0)
        if alive is not None:
            going = going & ((following > alive[0]) & (following < alive[1])).all(axis=-1)
        return (following, going), earned

    keys = jax.random.split(key, candidates.shape[1])
    _, rewards = jax.lax.scan(walk, (place, going), (jnp.swapaxes(candidates, 0, 1), keys))
    return rewards.sum(axis=0)
