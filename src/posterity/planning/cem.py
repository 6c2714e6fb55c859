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

from posterity.settings import Settings, setting


class PlannerSettings(Settings):
    """How actions are searched for."""

    horizon: int = setting(20, "T: steps planned ahead.", ge=1)
    candidates: int = setting(500, "N: action sequences a round (paper: 500).", ge=2)
    elites: int = setting(50, "E: best candidates the next round is drawn around (paper: 50).", ge=1)
    rounds: int = setting(5, "Rounds of the search (released code: 5).", ge=1)
    smoothing: float = setting(0.1, "Share of the old mean and variance that is kept (released code: 0.1).", ge=0, lt=1)
    particles: int = setting(20, "P: networks every candidate is imagined through.", ge=1)
    output: Literal["sample", "mean"] = setting(
        "sample", "What an imagined step takes of the predicted Gaussian: sample or mean."
    )
    redraw: bool = setting(False, "Draw new networks at every imagined step (nearer to the released code).")
    fused: Literal["auto", "on", "off"] = setting(
        "auto", "Imagine in one GPU kernel: auto (on NVIDIA GPUs), on (without a GPU: interpreted, slowly) or off."
    )
    products: Literal["bf16", "tf32", "f32"] = setting("bf16", "Precision of that kernel's products; sums are f32.")

    @model_validator(mode="after")
    def _enough(self) -> PlannerSettings:
        if self.elites > self.candidates:
            raise ValueError(f"{self.elites} elites cannot be chosen from {self.candidates} candidates")
        return self


class Plan(NamedTuple):
    """Where the search stands: independent normals over every action of the sequence."""

    mean: jax.Array  # [T, A]
    variance: jax.Array  # [T, A]


class PlanInfo(NamedTuple):
    """What the search found."""

    best: jax.Array  # score of the best candidate of the last round
    elite: jax.Array  # mean score of the last round's elites
    finite: jax.Array  # share of finite scores in the last round


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
) -> tuple[Plan, PlanInfo]:
    """Maximises `score(key, candidates [N, T, A]) -> [N]`.

    No candidate leaves the bounds [A]; one whose score is not finite is never an elite, unless none is left: then the
    round changes nothing.
    """

    noise_key, score_key = jax.random.split(key)
    shape = (settings.rounds, settings.candidates, *begin.mean.shape)
    noises = jax.random.truncated_normal(noise_key, -2.0, 2.0, shape)  # of all rounds at once: a GPU waits less

    def search(plan: Plan, now: tuple[jax.Array, jax.Array]) -> tuple[Plan, PlanInfo]:
        noise, k = now
        room = jnp.minimum(plan.mean - low, high - plan.mean) / 2.0
        scale = jnp.minimum(jnp.sqrt(plan.variance), jnp.maximum(room, 0.0))
        candidates = jnp.clip(plan.mean + scale * noise, low, high)  # rounding only: the noise keeps inside
        scores = score(k, candidates)
        finite = jnp.isfinite(scores)
        good = finite & _best(jnp.where(finite, scores, -jnp.inf), settings.elites)
        count = jnp.maximum(good.sum(), 1)
        away, weight = candidates - plan.mean, (good / count)[:, None, None]
        first, second = (weight * away).sum(axis=0), (weight * away**2).sum(axis=0)  # of one shape: one pass on a GPU
        mean, variance = plan.mean + first, jnp.maximum(second - first**2, 0.0)
        keep = jnp.where(good.any(), settings.smoothing, 1.0)
        moved = Plan(keep * plan.mean + (1.0 - keep) * mean, keep * plan.variance + (1.0 - keep) * variance)
        best = jnp.max(scores, where=finite, initial=-jnp.inf)
        elite = jnp.where(good, scores, 0.0).sum() / count
        return moved, PlanInfo(best, elite, finite.mean())

    plan, infos = jax.lax.scan(search, begin, (noises, jax.random.split(score_key, settings.rounds)))
    return plan, jax.tree.map(lambda leaf: leaf[-1], infos)


def _best(scores: jax.Array, count: int) -> jax.Array:
    """[N] whether a score is among the `count` best; of equal ones the first.

    By counting, for each, how many are better: one pass on a GPU, where sorting a few hundred numbers takes many.
    """
    place = jnp.arange(scores.shape[0])
    better = (scores > scores[:, None]) | ((scores == scores[:, None]) & (place < place[:, None]))
    return better.sum(axis=1) < count
