"""The value baseline of policy gradients, and generalised advantage estimation (Schulman et al. 2016).

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t),        A_t = delta_t + gamma lambda A_{t+1}

The sum runs to the end of the episode. What follows the end is worth 0 if the episode terminated. If the end of the
iteration cut it off, it is worth V of the state it was in; if its time limit did, so too with `bootstrap`, else 0 as in
the published code. V(s, t) is a network of the clipped observation and four powers of the time in the episode. It is
fitted to the discounted returns.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posterity.models import mlp
from posterity.models.mlp import Layers
from posterity.settings import Settings, setting
from posterity.types import Array, Transition


class ValueSettings(Settings):
    """The value network and how it is fitted."""

    hidden: tuple[int, ...] = setting(
        (128, 128), "Number of units in each hidden layer of the value network (published: 128 128)."
    )
    learning_rate: float = setting(1e-3, "Learning rate of Adam, which fits the value network.", gt=0)
    epochs: int = setting(2, "How many times the value network is fitted to all steps of an iteration.", ge=0)
    batch_size: int = setting(64, "Number of steps in a minibatch (published: 64).", ge=1)
    weight_decay: float = setting(
        1e-3, "Weight decay of the value network: L2 regularisation, part of the gradient (published: 1e-3).", ge=0
    )


Pair = tuple[jax.Array, jax.Array]  # an advantage and a return


class Value(NamedTuple):
    """A value network and the state of its optimiser."""

    weights: Layers
    optimiser: optax.OptState


class Episodes(NamedTuple):
    """The steps of an iteration, episode after episode."""

    obs: Array  # [B, O]
    reward: Array  # [B]
    next_obs: Array  # [B, O]
    time: Array  # [B] steps since the episode began
    last: Array  # [B] whether the episode, or the iteration, ends with this step
    bootstrap_mask: Array  # [B] 1 where what follows the step is worth its value, 0 where it is worth nothing


def split_episodes(rows: Transition, bootstrap: bool) -> Episodes:
    """Rows with leading axes [L, B] as episodes. `bootstrap`: a time limit cuts off something of value. NumPy.

    An episode ends where it terminated or was truncated. The end of the iteration cuts off the last one.
    """
    terminated, truncated = (np.asarray(part, dtype=bool) for part in (rows.terminated, rows.truncated))
    last = terminated | truncated
    step = np.arange(last.shape[1])
    begins = np.pad(last[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    time = step - np.maximum.accumulate(np.where(begins, step, 0), axis=1)
    mask = ~terminated & (bootstrap | ~last)
    last[:, -1] = True
    obs, reward, following = (np.asarray(part, np.float32) for part in (rows.obs, rows.reward, rows.next_obs))
    return Episodes(obs, reward, following, time.astype(np.float32), last, mask.astype(np.float32))


def init(key: jax.Array, obs_dim: int, settings: ValueSettings) -> Value:
    """A fresh network: weights and biases uniform within 1 / sqrt(fan-in)."""
    weights = mlp.init_uniform(key, (obs_dim + 4, *settings.hidden, 1))
    return Value(weights, _adam(settings).init(weights))


def predict(weights: Layers, obs: Array, time: Array) -> jax.Array:
    """[B] the values of observations [B, O] at times [B]."""
    late = (time / 1000.0)[:, None] ** jnp.arange(1, 5)[None]
    inputs = jnp.concatenate([jnp.clip(obs, -10.0, 10.0) / 10.0, late], axis=-1)
    return mlp.apply(weights, inputs, jax.nn.relu)[:, 0]


def advantages(value: Value, episodes: Episodes, gamma: float, gae_lambda: float) -> Pair:
    """[B] the advantages, and the discounted returns that the values are fitted to."""
    here = predict(value.weights, episodes.obs, episodes.time)
    after = predict(value.weights, episodes.next_obs, episodes.time + 1) * episodes.bootstrap_mask
    return estimate(here, after, episodes.reward, episodes.last, gamma, gae_lambda)


def estimate(here: Array, after: Array, reward: Array, last: Array, gamma: float, gae_lambda: float) -> Pair:
    """[B] advantages and returns, from the values of states and of what follows them."""

    def back(carry: Pair, step: tuple[jax.Array, ...]) -> tuple[Pair, Pair]:
        v, following, r, end = step
        advantage = r + gamma * following - v + jnp.where(end, 0.0, gamma * gae_lambda * carry[0])
        target = r + gamma * jnp.where(end, following, carry[1])
        return (advantage, target), (advantage, target)

    steps = tuple(jnp.asarray(part) for part in (here, after, reward, last))
    begin = (jnp.zeros((), steps[0].dtype), jnp.zeros((), steps[0].dtype))
    return jax.lax.scan(back, begin, steps, reverse=True)[1]


def fit(key: jax.Array, value: Value, episodes: Episodes, target: jax.Array, settings: ValueSettings) -> Value:
    """`epochs` passes over the steps in minibatches, each in a new order."""
    count = target.shape[0]
    size = min(settings.batch_size, count)
    adam = _adam(settings)

    def loss(weights: Layers, chosen: jax.Array) -> jax.Array:
        return ((predict(weights, episodes.obs[chosen], episodes.time[chosen]) - target[chosen]) ** 2).mean()

    def step(now: Value, chosen: jax.Array) -> tuple[Value, None]:
        change, optimiser = adam.update(jax.grad(loss)(now.weights, chosen), now.optimiser, now.weights)
        return Value(optax.apply_updates(now.weights, change), optimiser), None  # pyright: ignore[reportArgumentType]

    def epoch(now: Value, k: jax.Array) -> tuple[Value, None]:
        order = jax.random.permutation(k, count)[: count // size * size].reshape(-1, size)
        return jax.lax.scan(step, now, order)

    return jax.lax.scan(epoch, value, jax.random.split(key, settings.epochs))[0] if settings.epochs else value


def _adam(settings: ValueSettings) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(settings.weight_decay), optax.adam(settings.learning_rate))
