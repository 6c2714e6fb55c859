"""The cross-entropy method over sequences of discrete actions, and all sequences where there are few.

    repeat:  draw N sequences, each action from its time step's probabilities;  keep the E best;
             move the probabilities towards how often each action is taken among them

A `Plan` has the probabilities [T, A] for its mean and no variance. If there are no more sequences than candidates,
A^T <= N, each of them is scored instead, in every iteration once more, and the one with the best mean is the plan.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from posterity.planning.cem import SMOOTHING, Plan, PlannerSettings, best

Score = Callable[[jax.Array, jax.Array], jax.Array]  # (key, one-hot candidates [N, T, A]) -> [N]
WIDTH = 0.5  # share of the uniform distribution in what a search begins with, around the plan before


def start(horizon: int, actions: int) -> Plan:
    """Every action is as likely."""
    equal = np.full((horizon, actions), 1.0 / actions)
    return Plan(jnp.float32(equal), jnp.float32(0.0 * equal))


def widened(plan: Plan) -> Plan:
    """What a search begins with where another ended: its probabilities, mixed with equal ones."""
    return plan._replace(mean=(1.0 - WIDTH) * plan.mean + WIDTH / plan.mean.shape[-1])


def shifted(plan: Plan, fresh: Plan) -> Plan:
    """The plan one step on: its first action is done, its last is not known yet."""
    return widened(plan._replace(mean=jnp.concatenate([plan.mean[1:], fresh.mean[-1:]])))


def chosen(mean: jax.Array) -> jax.Array:
    """[..., A] the likeliest actions, one-hot."""
    return jax.nn.one_hot(mean.argmax(axis=-1), mean.shape[-1])


def enumerable(horizon: int, actions: int, candidates: int) -> bool:
    """Whether there are so few sequences that each is scored."""
    return actions**horizon <= candidates


def search(key: jax.Array, score: Score, begin: Plan, settings: PlannerSettings) -> Plan:
    """Maximises `score` over sequences of discrete actions. One whose score is not finite never counts."""
    horizon, actions = begin.mean.shape
    if enumerable(horizon, actions, settings.candidates):
        return _enumerated(key, score, begin, settings.cem_iterations)

    def improve(plan: Plan, k: jax.Array) -> tuple[Plan, None]:
        draw_key, score_key = jax.random.split(k)
        noise = jax.random.gumbel(draw_key, (settings.candidates, *plan.mean.shape))
        candidates = chosen(jnp.log(plan.mean)[None] + noise)
        scores = score(score_key, candidates)
        finite = jnp.isfinite(scores)
        good = finite & best(jnp.where(finite, scores, -jnp.inf), settings.elites)
        share = ((good / jnp.maximum(good.sum(), 1))[:, None, None] * candidates).sum(axis=0)
        keep = jnp.where(good.any(), SMOOTHING, 1.0)
        return plan._replace(mean=keep * plan.mean + (1.0 - keep) * share), None

    return jax.lax.scan(improve, begin, jax.random.split(key, settings.cem_iterations))[0]


def _enumerated(key: jax.Array, score: Score, begin: Plan, times: int) -> Plan:
    """The best of all sequences, by its mean score."""
    horizon, actions = begin.mean.shape
    numbers = np.indices((actions,) * horizon).reshape(horizon, -1).T  # [A^T, T]
    every = jnp.float32(np.eye(actions)[numbers])

    def once(total: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
        return total + score(k, every), None

    scores, _ = jax.lax.scan(once, jnp.float32(np.zeros(len(numbers))), jax.random.split(key, times))
    finite = jnp.isfinite(scores)
    place = jnp.where(finite, scores, -jnp.inf).argmax()
    return begin._replace(mean=jnp.where(finite.any(), every[place], begin.mean))
