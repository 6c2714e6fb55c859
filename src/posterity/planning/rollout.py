"""Imagined returns: every candidate walked through every particle's network.

    score(candidate) = 1/P sum_p sum_tau reward_p(tau)                       (paper, Algorithm 1, "Evaluate actions as")

What a step does is handed in, so this knows nothing of networks. A particle that leaves the box `alive` has ended: the
reward of that step counts, those after it do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Box = tuple[jax.Array, jax.Array]  # low [O], high [O]


class Imagined(NamedTuple):
    """One imagined step of all particles and candidates."""

    reward: jax.Array  # [P, N]
    following: jax.Array  # [P, N, O]
    note: Any = ()  # whatever else the step has to tell: a tree of arrays


Final = Callable[[jax.Array], jax.Array]  # the worth [P, N] of last observations [P, N, O]
Step = Callable[[jax.Array, jax.Array, jax.Array], Imagined]  # (key, observations [P, N, O], actions [N, A])


def imagined_returns(
    key: jax.Array,
    step: Step,
    obs: jax.Array,
    candidates: jax.Array,
    particles: int,
    alive: Box | None,
    final: Final | None = None,
) -> tuple[jax.Array, Any]:
    """[P, N] undiscounted return of each candidate [N, T, A] from `obs` [O], for each particle; notes [T, ...].

    With `final`, what a particle that is still going has come to is worth that too.
    """
    count = candidates.shape[0]
    place = jnp.broadcast_to(obs, (particles, count, *obs.shape))
    going = jnp.ones((particles, count), dtype=bool)

    def walk(carry: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]):
        place, going = carry
        actions, k = now
        reward, following, note = step(k, place, actions)
        earned = jnp.where(going, reward, 0.0)
        if alive is not None:
            going = going & ((following > alive[0]) & (following < alive[1])).all(axis=-1)
        return (following, going), (earned, note)

    keys = jax.random.split(key, candidates.shape[1])
    last, (rewards, notes) = jax.lax.scan(walk, (place, going), (jnp.swapaxes(candidates, 0, 1), keys))
    total = rewards.sum(axis=0)
    return (total if final is None else total + jnp.where(last[1], final(last[0]), 0.0)), notes
