"""Imagined returns: every candidate walked through every particle's network.

    score(candidate) = 1/P sum_p sum_tau reward_p(tau)                       (paper, Algorithm 1, "Evaluate actions as")

What a step does is handed in, so this knows nothing of networks. A particle that leaves the box `alive` has ended: the
reward of that step counts, those after it do not. Where an end has a probability (`ended`), later rewards count by
the probability that the particle is still going.
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
# the probability [P, N] that a step ended its episode: (observations [P, N, O], actions [N, A], next ones [P, N, O])
Ended = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
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
    ended: Ended | None = None,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """[P, N] undiscounted return of each candidate [N, T, A] from `obs` [O], for each particle; facts [T, ...].

    With `terminal_value`, the last observation of a particle that is still going is worth that too. `ended` is asked
    instead of `alive` where it is given.
    """
    count = candidates.shape[0]
    start = jnp.broadcast_to(obs, (particles, count, *obs.shape))
    kind = bool if ended is None else jnp.float32  # certainly going or not, or by how much
    going = jnp.ones((particles, count), kind)  # pyright: ignore[reportUnknownMemberType]

    def walk(
        carry: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, tuple[jax.Array, ...]]]:
        place, going = carry
        actions, k = now
        reward, following, facts = step(k, place, actions)
        earned = _counted(going, reward)
        if ended is not None:
            going = going * (1.0 - ended(place, actions, following))
        elif alive is not None:
            low, high = alive[0][None, None], alive[1][None, None]
            going = going & ((following > low) & (following < high)).all(axis=-1)
        return (following, going), (earned, facts)

    keys = jax.random.split(key, candidates.shape[1])
    (last, going), (rewards, facts) = jax.lax.scan(walk, (start, going), (jnp.swapaxes(candidates, 0, 1), keys))
    total = rewards.sum(axis=0)
    if terminal_value is not None:
        total = total + _counted(going, terminal_value(last))
    return total, facts


def _counted(going: jax.Array, worth: jax.Array) -> jax.Array:
    """What something is worth to particles that may have ended: what follows an end is nothing, finite or not."""
    if going.dtype == bool:
        return jnp.where(going, worth, 0.0)
    return jnp.where(going > 0.0, going * worth, 0.0)
