"""What was learned is not lost: an actor that gets worse steps aside for the best one of the task so far.

Learning goes on all the time, and now and then it makes an actor worse for a while. So the actor of the best stretch
of iterations is kept. When the present one has earned less over a whole stretch, by more than chance would do, the kept
one acts for a stretch, and what it does is learned from like anything else. Then the present one has another try.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.models.mlp import Layers
from posterity.types import HostArray, Transition

Tree = TypeVar("Tree")

STRETCH = 8  # iterations; fewer let a learner step aside for chance (results/notes/28)
MARGIN = 0.25  # share of the best return that an actor may fall short of it
CERTAIN = 3.0  # standard errors that it has to fall short of it: else chance would do it (results/notes/30)
FOLLOW = 0.2  # how far the kept return moves to what the kept actor earns when it acts: the best of many was lucky
NEVER = -1e30  # the return of no actor


class Guard(NamedTuple):
    """Who acts, and what is known of the actors of this task. Arrays have a leading axis of lanes."""

    playing: Layers  # the actor that acts
    best: Layers  # the one kept
    best_return: jax.Array  # []
    recent: jax.Array  # [STRETCH] what the learning actor earned lately
    seen: jax.Array  # [] iterations of it, up to a stretch
    left: jax.Array  # [] iterations in which the kept actor still acts; 0: the learning one does


def begin(actor: Layers) -> Guard:
    """A task begins, with the actor there is."""
    nothing = jnp.int32(0)
    return Guard(actor, actor, jnp.float32(NEVER), jnp.zeros(STRETCH), nothing, nothing)


def follow(guard: Guard, learned: Layers, earned: jax.Array) -> Guard:
    """An iteration earned `earned` [] an episode, and `learned` is what the actor has become after it."""
    own = guard.left == 0
    recent = jnp.where(own, jnp.roll(guard.recent, 1).at[0].set(earned), guard.recent)
    seen = jnp.where(own, jnp.minimum(guard.seen + 1, STRETCH), guard.seen)
    kept = jnp.where(own, guard.best_return, guard.best_return + FOLLOW * (earned - guard.best_return))
    told = own & (seen == STRETCH)
    better = told & (recent.mean() > kept)
    chance = CERTAIN * jnp.sqrt((jnp.diff(recent) ** 2).mean() / STRETCH)  # of a difference of two means
    worse = told & (recent.mean() < kept - jnp.maximum(MARGIN * jnp.abs(kept), chance))
    best = chosen(better, guard.playing, guard.best)
    left = jnp.where(worse, STRETCH, jnp.maximum(guard.left - 1, 0))
    return Guard(
        chosen(left > 0, best, learned),
        best,
        jnp.where(better, recent.mean(), kept),
        recent,
        jnp.where(worse, 0, seen),
        left,
    )


def chosen(which: jax.Array, one: Tree, other: Tree) -> Tree:
    """`one` where `which` [] is true, else `other`."""
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), one, other)


def earned(rows: Transition) -> HostArray:
    """[L] the mean return of the episodes in an iteration's steps [L, B]. One that was cut off counts as it stands."""
    over = np.asarray(rows.terminated, bool) | np.asarray(rows.truncated, bool)
    over[:, -1] = True
    return np.asarray(rows.reward).sum(axis=1) / over.sum(axis=1)


class Guards:
    """The guards of all lanes, as programs."""

    def __init__(self) -> None:
        self.begin = lanes.compiled(begin)
        self.follow = lanes.compiled(follow)
