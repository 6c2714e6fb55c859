"""Imagined returns: every candidate walked through every particle's network.

    score(candidate) = 1/P sum_p sum_tau reward_p(tau)                       (paper, Algorithm 1, "Evaluate actions as")

What a step does is handed in, so this knows nothing of networks. A particle that leaves the box `alive` has ended: the
reward of that step counts, those after it do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Box = tuple[jax.Array, jax.Array]  # low [O], high [O]


class ImaginedStep(NamedTuple):
    """One imagined step of all particles and candidates."""

    reward: jax.Array  # [P, N]
    next_obs: jax.Array  # [P, N, O]
    facts: tuple[jax.Array, ...] = ()  # whatever else the step has to tell


TerminalValue = Callable[[jax.Array], jax.Array]  # the value [P, N] of last observations [P, N, O]
Step = Callable[[jax.Array, jax.Array, jax.Array], ImaginedStep]  # (key, observations [P, N, O], actions [N, A])
# (key, candidates [N, T, A]) -> returns [P, N], and the facts of every step [T, ...]
Returns = Callable[[jax.Array, jax.Array], tuple[jax.Array, tuple[jax.Array, ...]]]


def imagined_returns(
    key: jax.Array,
    step: Step,
    obs: jax.Array,
    candidates: jax.Array,
    particles: int,
    alive: Box | None,
    terminal_value: TerminalValue | None = None,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """[P, N] undiscounted return of each candidate [N, T, A] from `obs` [O], for each particle; facts [T, ...].

    With `terminal_value`, the last observation of a particle that is still going is worth that too.
    """
    count = candidates.shape[0]
    start = jnp.broadcast_to(obs, (particles, count, *obs.shape))
    going = jnp.ones((particles, count), bool)  # pyright: ignore[reportUnknownMemberType]

    def walk(
        carry: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, tuple[jax.Array, ...]]]:
        place, going = carry
        actions, k = now
        reward, following, facts = step(k, place, actions)
        earned = jnp.where(going, reward, 0.0)
        if alive is not None:
            low, high = alive[0][None, None], alive[1][None, None]
            going = going & ((following > low) & (following < high)).all(axis=-1)
        return (following, going), (earned, facts)

    keys = jax.random.split(key, candidates.shape[1])
    (last, going), (rewards, facts) = jax.lax.scan(walk, (start, going), (jnp.swapaxes(candidates, 0, 1), keys))
    total = rewards.sum(axis=0)
    if terminal_value is not None:
        total = total + jnp.where(going, terminal_value(last), 0.0)
    return total, facts
