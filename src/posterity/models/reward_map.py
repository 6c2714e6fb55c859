"""What places are worth, where rewards are sparse: a map for each task, and what all tasks say of it.

    reward of a step to s'  ~  N(phi(s')^T w_k, NOISE^2)           w_k [C]: rewards at the points of a lattice
    w_k ~ N(mean, diag(variance))                                  the prior, learned from the tasks before

phi interpolates between the 2^O points around s'. So w_k given the steps of its task is Gaussian and known exactly: it
is Bayesian linear regression on features that are fixed and local, a last layer in closed form. A step changes it by

    gain = covariance phi / (phi^T covariance phi + NOISE^2)
    mean += gain (r - phi^T mean),   covariance -= gain phi^T covariance

A plan is scored by its mean return over particles. Rewards are linear in w_k, so here that mean needs no draws: it is
what the mean map says along the path.

A network that learns its features promises reward far from where it saw any (results/notes/31), and an agent cannot
correct it while it acts. Lattices grow as the power of the dimensions, so this is for observations of up to three.
Places are relative to where the first episode began, places and rewards in deviations (the normaliser's scales).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.models.normaliser import Normaliser
from posterity.models.replay import Replay
from posterity.settings import Settings, setting

MOST_DIMENSIONS = 3
REACH = 3.0  # the lattice ends so many deviations from its centre; beyond it there is no reward
NOISE = 0.3  # deviation of a reward from the map: goals have edges and the map has none
FIRST_MEAN = 1.0  # of the reward where no task has been: good, so that somebody goes there
FIRST_STD = 1.0
FIRST_TASKS = 0.1  # that this counts for beside those that were met
MOST_TASKS = 64  # that a prior is learned from: the latest and others, drawn from all


class RewardMapSettings(Settings):
    """How rewards are learned beside the network."""

    lattice: int = setting(
        0, "Points in each dimension of a map of sparse rewards; 0: the network predicts rewards (paper).", ge=0
    )


class Lattice(NamedTuple):
    """Points at equal distances that fill a cube."""

    points: int  # in each dimension
    dimensions: int

    @property
    def size(self) -> int:
        """C, all points."""
        return self.points**self.dimensions

    def around(self, place: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The numbers [..., 2^O] of the points around places [..., O], and how much of each there is.

        Outside the cube there is nothing of any.
        """
        steps = (place + REACH) / (2.0 * REACH) * (self.points - 1)
        inside = ((steps >= 0) & (steps <= self.points - 1)).all(axis=-1, keepdims=True)
        before = jnp.clip(jnp.floor(steps), 0, self.points - 2)
        part = steps - before
        numbers: list[jax.Array] = []
        shares: list[jax.Array] = []
        for corner in itertools.product((0, 1), repeat=self.dimensions):
            number = jnp.zeros(place.shape[:-1], jnp.int32)
            share = jnp.ones(place.shape[:-1], jnp.float32)
            for dimension, up in enumerate(corner):
                number = number * self.points + before[..., dimension].astype(jnp.int32) + up
                share = share * (part[..., dimension] if up else 1.0 - part[..., dimension])
            numbers.append(number)
            shares.append(share)
        return jnp.stack(numbers, axis=-1), jnp.where(inside, jnp.stack(shares, axis=-1), 0.0)


class RewardPrior(NamedTuple):
    """What all tasks say of a new one: independent Gaussians."""

    mean: jax.Array  # [C]
    variance: jax.Array  # [C]
    centre: jax.Array  # [O] of the lattice, an observation


class RewardBelief(NamedTuple):
    """What is believed of one task's map."""

    mean: jax.Array  # [C]
    covariance: jax.Array  # [C, C]
    centre: jax.Array  # [O]


def nothing_known(lattice: Lattice) -> RewardPrior:
    """Every place may pay."""
    mean, variance = jnp.full(lattice.size, FIRST_MEAN), jnp.full(lattice.size, FIRST_STD**2)
    return RewardPrior(mean, variance, jnp.zeros(lattice.dimensions))


def begin(prior: RewardPrior) -> RewardBelief:
    """Before the first step of a task."""
    return RewardBelief(prior.mean, jnp.diag(prior.variance), prior.centre)


def seen(
    belief: RewardBelief, lattice: Lattice, place: jax.Array, reward: jax.Array, counts: jax.Array | None = None
) -> RewardBelief:
    """With one more step, which ended at `place` [O]. `counts` 0: there was none."""
    number, share = lattice.around(place)
    if counts is not None:
        share = share * counts
    spread = belief.covariance[:, number] @ share
    gain = spread / (spread[number] @ share + NOISE**2)
    off = reward - belief.mean[number] @ share
    return belief._replace(mean=belief.mean + gain * off, covariance=belief.covariance - gain[:, None] * spread[None])


def conditioned(
    belief: RewardBelief, lattice: Lattice, places: jax.Array, rewards: jax.Array, counts: jax.Array
) -> RewardBelief:
    """With the steps [B, ...] of a task, of which those with `counts` 1 happened."""

    def step(now: RewardBelief, row: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[RewardBelief, None]:
        return seen(now, lattice, *row), None

    return jax.lax.scan(step, belief, (places, rewards, counts))[0]


def value(mean: jax.Array, lattice: Lattice, place: jax.Array) -> jax.Array:
    """[...] the reward that is expected of steps to places [..., O]."""
    number, share = lattice.around(place)
    return (mean[number] * share).sum(axis=-1)


def learned(
    lattice: Lattice, prior: RewardPrior, places: jax.Array, rewards: jax.Array, counts: jax.Array
) -> RewardPrior:
    """The prior after tasks [K, B, ...] have been looked at once more.

    Each is looked at as if only the mean were known of it. At every point it counts by how much it told: by the share
    of the variance that it took away. What no task told of stays as it was at first.
    """

    def told(steps: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        open_to_all = prior._replace(variance=jnp.full(lattice.size, FIRST_STD**2))
        found = conditioned(begin(open_to_all), lattice, *steps)
        return found.mean, 1.0 - jnp.diag(found.covariance) / FIRST_STD**2

    means, weights = jax.lax.map(told, (places, rewards, counts))
    weights = jnp.clip(weights, 0.0, 1.0)
    total = FIRST_TASKS + weights.sum(axis=0)
    mean = (FIRST_TASKS * FIRST_MEAN + (weights * means).sum(axis=0)) / total
    away = (weights * (means - mean[None]) ** 2).sum(axis=0)
    return prior._replace(mean=mean, variance=(FIRST_TASKS * FIRST_STD**2 + away) / total)


# In the units of a run -----------------------------------------------------------------------------------------------


def in_units(
    centre: jax.Array, units: Normaliser, next_obs: jax.Array, reward: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Places [..., O] and rewards [...] as the map has them."""
    width = next_obs.shape[-1]
    shape = (*(1 for _ in next_obs.shape[:-1]), width)
    scale = units.input_scale[:width].reshape(shape)
    return (next_obs - centre.reshape(shape)) / scale, reward / units.target_scale[0]


def promised(belief: RewardBelief, lattice: Lattice, units: Normaliser, next_obs: jax.Array) -> jax.Array:
    """[...] the rewards that are expected of steps to `next_obs` [..., O], in the environment's units."""
    place, _ = in_units(belief.centre, units, next_obs, jnp.float32(0.0))
    return units.target_scale[0] * value(belief.mean, lattice, place)


def of_tasks(
    key: jax.Array, memory: Replay, centre: jax.Array, units: Normaliser, task: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Places, rewards and which of them count [K', B, ...], of the tasks before `task`: all, or of many some."""
    total = memory.filled.shape[0]
    before = (jnp.arange(total) < task) & (memory.filled > 0)
    rank = jnp.where(before, jax.random.uniform(key, (total,)), jnp.inf).at[task - 1].set(-1.0)
    chosen = jnp.argsort(rank)[: min(total, MOST_TASKS)]
    there = jnp.where(before, memory.filled, 0)[chosen]
    counts = jnp.arange(memory.reward.shape[1])[None] < there[:, None]
    return *in_units(centre, units, memory.next_obs[chosen], memory.reward[chosen]), counts.astype(jnp.float32)
