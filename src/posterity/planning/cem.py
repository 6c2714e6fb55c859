"""The cross-entropy method over action sequences. It knows scores and bounds, nothing of networks.

    repeat:  draw N candidates around the plan;  keep the E best;  move the plan's mean and variance towards theirs

Candidates are drawn from a normal truncated at two standard deviations whose spread is narrowed near the bounds, so
none leaves them: std <= half the distance to the nearer bound (as PETS and the authors' code do).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from pydantic import model_validator

from posterity.planning import noise
from posterity.settings import Settings, setting

SMOOTHING = 0.1  # share of the old mean and variance that is kept (released code: 0.1)


class PlannerSettings(Settings):
    """How actions are searched for."""

    horizon: int = setting(20, "Steps planned ahead.", ge=1)
    particles: int = setting(20, "Sampled networks that every candidate is imagined through.", ge=1)
    candidates: int = setting(500, "Action sequences in each CEM iteration (paper: 500).", ge=2)
    elites: int = setting(50, "Best candidates that the next iteration is drawn around (paper: 50).", ge=1)
    cem_iterations: int = setting(
        5, "Iterations of the cross-entropy method (released code: 5); 0: the actor acts alone.", ge=0
    )
    output: Literal["sample", "mean"] = setting(
        "sample", "What an imagined step takes of the predicted Gaussian: a sample, or its mean."
    )

    @model_validator(mode="after")
    def _enough(self) -> PlannerSettings:
        if self.elites > self.candidates:
            raise ValueError(f"{self.elites} elites cannot be chosen from {self.candidates} candidates")
        return self


class Plan(NamedTuple):
    """Where the search stands: independent normals over every action of the sequence."""

    mean: jax.Array  # [T, A]
    variance: jax.Array  # [T, A]


def start(horizon: int, low: jax.Array, high: jax.Array) -> Plan:
    """The middle of the range, with a standard deviation of a quarter of it: as wide as the bounds let it be."""
    middle, quarter = (low + high) / 2.0, (high - low) / 4.0
    shape = (horizon, *low.shape)
    return Plan(jnp.broadcast_to(middle, shape), jnp.broadcast_to(quarter**2, shape))


def shifted(plan: Plan, fresh: Plan) -> Plan:
    """The plan one step on: its first action is done, its last is not known yet. The variance starts anew."""
    return Plan(jnp.concatenate([plan.mean[1:], fresh.mean[-1:]]), fresh.variance)


def cem(
    key: jax.Array,
    score: Callable[[jax.Array, jax.Array], jax.Array],
    begin: Plan,
    low: jax.Array,
    high: jax.Array,
    settings: PlannerSettings,
    proposals: jax.Array | None = None,
    colour: float = 0.0,
) -> Plan:
    """Maximises `score(key, candidates [N, T, A]) -> [N]`.

    No candidate leaves the bounds [A]; one whose score is not finite is never an elite, unless none is left: then the
    iteration changes nothing. `proposals` [K, T, A], such as a policy's, are candidates in every iteration. `colour` is
    the candidates' noise's: 0 is white, with 2 neighbouring actions are alike.
    """

    noise_key, score_key = jax.random.split(key)
    shape = (settings.cem_iterations, settings.candidates, *begin.mean.shape)
    noises = noise.coloured(noise_key, shape, colour)  # of all iterations at once: a GPU waits less

    def search(plan: Plan, now: tuple[jax.Array, jax.Array]) -> tuple[Plan, None]:
        drawn, k = now
        room = jnp.minimum(plan.mean - low[None], high[None] - plan.mean) / 2.0
        scale = jnp.minimum(jnp.sqrt(plan.variance), jnp.maximum(room, 0.0))
        moved = plan.mean[None] + scale[None] * drawn
        candidates = jnp.clip(moved, low[None, None], high[None, None])  # rounding only: the noise keeps inside
        if proposals is not None:
            candidates = jnp.concatenate([candidates, proposals])
        scores = score(k, candidates)
        finite = jnp.isfinite(scores)
        good = finite & best(jnp.where(finite, scores, -jnp.inf), settings.elites)
        count = jnp.maximum(good.sum(), 1)
        away, weight = candidates - plan.mean[None], (good / count)[:, None, None]
        first, second = (weight * away).sum(axis=0), (weight * away**2).sum(axis=0)  # of one shape: one pass on a GPU
        mean, variance = plan.mean + first, jnp.maximum(second - first**2, 0.0)
        keep = jnp.where(good.any(), SMOOTHING, 1.0)
        new = Plan(keep * plan.mean + (1.0 - keep) * mean, keep * plan.variance + (1.0 - keep) * variance)
        return new, None

    return jax.lax.scan(search, begin, (noises, jax.random.split(score_key, settings.cem_iterations)))[0]


def best(scores: jax.Array, count: int) -> jax.Array:
    """[N] whether a score is among the `count` best; of equal ones the first.

    By counting, for each, how many are better: one pass on a GPU, where sorting a few hundred numbers takes many.
    """
    place = jax.lax.iota(jnp.int32, scores.shape[0])
    higher, equal = scores[None] > scores[:, None], scores[None] == scores[:, None]
    better = higher | (equal & (place[None] < place[:, None]))
    return better.sum(axis=1) < count
