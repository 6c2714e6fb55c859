"""When an episode ends, learned: a classifier beside the dynamics network.

    p(the step to s' ended its episode) = sigmoid(f(s'))

It is asked of the observation that a step leads to, and learns from the transitions of all tasks. Ends are rare, so
half of every batch are ends; the logarithm of how much more often they come than in life is added to f while it learns,
so that f itself is right for life (King and Zeng 2001). Plans count what follows by the probability of still going.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from posterity.models import mlp
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.models.replay import Replay

HIDDEN = (64, 64)
BATCH_SIZE = 256  # observations, half of them ends
LEARNING_RATE = 1e-3
RARE = -5.0  # f before anything is learned: episodes go on


class TerminationTraining(NamedTuple):
    """The classifier and its optimiser."""

    layers: Layers
    optimiser: optax.OptState


def init(key: jax.Array, obs_dim: int) -> TerminationTraining:
    """A classifier for which nothing ends."""
    *layers, output = mlp.init(key, (obs_dim, *HIDDEN, 1))
    fresh = (*layers, mlp.Layer(jnp.zeros_like(output.weight), jnp.full_like(output.bias, RARE)))
    return TerminationTraining(fresh, optax.scale_by_adam().init(fresh))  # pyright: ignore[reportArgumentType]


def probability(layers: Layers, normaliser: Normaliser, next_obs: jax.Array) -> jax.Array:
    """[...] that the steps to `next_obs` [..., O] ended their episodes."""
    return jax.nn.sigmoid(_logit(layers, normaliser, next_obs))


def _logit(layers: Layers, normaliser: Normaliser, next_obs: jax.Array) -> jax.Array:
    size = next_obs.shape[-1]
    mean, scale = (mlp.across(part[:size], next_obs) for part in (normaliser.input_mean, normaliser.input_scale))
    return mlp.apply(layers, (next_obs - mean) / scale, jax.nn.elu)[..., 0]


def fit(
    key: jax.Array, training: TerminationTraining, normaliser: Normaliser, memory: Replay, tasks: jax.Array, steps: int
) -> tuple[TerminationTraining, jax.Array]:
    """Logistic regression on the transitions of tasks that count, [K]; and the share of a batch that is told right."""
    assert memory.terminated is not None
    there = (jnp.arange(memory.reward.shape[1])[None] < memory.filled[:, None]) & tasks[:, None]
    over = memory.terminated > 0
    next_obs = memory.next_obs.reshape(-1, memory.next_obs.shape[-1])
    ends, others = (jnp.cumsum((there & kind).reshape(-1)) for kind in (over, ~over))
    offset = jnp.log(others[-1] + 0.5) - jnp.log(ends[-1] + 0.5)
    labels = jnp.concatenate([jnp.ones(BATCH_SIZE // 2), jnp.zeros(BATCH_SIZE // 2)])
    weights = jnp.where(labels > 0, ends[-1] > 0, others[-1] > 0) / BATCH_SIZE
    adam = optax.scale_by_adam()

    def draw(k: jax.Array, upto: jax.Array) -> jax.Array:
        """Rows of one kind, uniformly: the place at which the count of them reaches a random number."""
        wanted = jax.random.uniform(k, (BATCH_SIZE // 2,)) * upto[-1]
        return next_obs[jnp.clip(jnp.searchsorted(upto, wanted, side="right"), 0, len(next_obs) - 1)]

    def step(now: TerminationTraining, k: jax.Array) -> tuple[TerminationTraining, jax.Array]:
        rows = jnp.concatenate(
            [draw(each, upto) for each, upto in zip(jax.random.split(k), (ends, others), strict=True)]
        )

        def loss(layers: Layers) -> tuple[jax.Array, jax.Array]:
            logit = _logit(layers, normaliser, rows) + offset
            each = optax.sigmoid_binary_cross_entropy(logit, labels)
            return (weights * each).sum(), (weights * ((logit > 0) == (labels > 0))).sum()

        gradient, right = jax.grad(loss, has_aux=True)(now.layers)
        change, optimiser = adam.update(gradient, now.optimiser)  # pyright: ignore[reportArgumentType]
        layers = jax.tree.map(lambda old, move: old - LEARNING_RATE * move, now.layers, change)
        return TerminationTraining(layers, optimiser), right

    learned, right = jax.lax.scan(step, training, jax.random.split(key, steps))
    return learned, right[-1] / jnp.maximum(weights.sum(), 1e-6)
