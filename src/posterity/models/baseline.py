"""The value network that policy gradients subtract, and generalised advantage estimation.

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t),        A_t = delta_t + gamma lambda A_{t+1}

A sum goes on to the end of its episode. What follows the end is worth 0 if the episode terminated. If it was cut off by
the end of the iteration, it is worth V of the state it was in; if by its time limit, so too with `bootstrap`, else 0 as
in the published code. V(s, t) is a network of the clipped observation and four powers of the time in the episode,
fitted to the discounted returns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posterity.models.mlp import Layer
from posterity.settings import Settings, setting
from posterity.types import Transition


class ValueSettings(Settings):
    """The value network and its fit."""

    hidden: tuple[int, ...] = setting((128, 128), "Units of each hidden layer (published: 128 128).")
    rate: float = setting(1e-3, "Adam's learning rate.", gt=0)
    epochs: int = setting(2, "Passes over an iteration's steps.", ge=0)
    rows: int = setting(64, "Steps in a minibatch (published: 64).", ge=1)
    decay: float = setting(1e-3, "Weight decay, as part of the gradient (published: 1e-3).", ge=0)


class Value(NamedTuple):
    """A network in the making."""

    weights: tuple[Layer, ...]
    optimiser: Any


class Course(NamedTuple):
    """The steps of an iteration, episode after episode."""

    obs: Any  # [B, O]
    reward: Any  # [B]
    next_obs: Any  # [B, O]
    time: Any  # [B] steps since the episode began
    last: Any  # [B] an episode ends with this step, or the iteration does
    worth: Any  # [B] 1 where what follows the step is worth its value, 0 where it is worth nothing


def course(rows: Transition, limit: int, bootstrap: bool) -> Course:
    """Rows with leading axes [L, B] cut into episodes of at most `limit` steps. NumPy.

    An episode that did not terminate ends where the next observation is not where it led to, or after `limit` steps.
    """
    terminated = np.asarray(rows.terminated, dtype=bool)
    last = terminated.copy()
    last[:, :-1] |= (rows.next_obs[:, :-1] != rows.obs[:, 1:]).any(axis=-1)
    number = np.arange(last.shape[1])
    begins = np.pad(last[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    time = (number - np.maximum.accumulate(np.where(begins, number, 0), axis=1)) % limit
    last |= time == limit - 1
    cut = np.zeros_like(last)
    cut[:, -1] = ~last[:, -1]
    last[:, -1] = True
    worth = ~terminated & (bootstrap | cut | ~last)
    obs, reward, following = (np.asarray(part, np.float32) for part in (rows.obs, rows.reward, rows.next_obs))
    return Course(obs, reward, following, time.astype(np.float32), last, worth.astype(np.float32))


def init(key: jax.Array, obs_dim: int, settings: ValueSettings) -> Value:
    """A fresh network: everything uniform within 1 / sqrt(fan-in)."""
    sizes = (obs_dim + 4, *settings.hidden, 1)
    layers = []
    for k, inputs, outputs in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True):
        drawn = jax.random.uniform(k, (inputs + 1, outputs), minval=-1.0, maxval=1.0) / np.sqrt(inputs)
        layers.append(Layer(drawn[:-1], drawn[-1]))
    return Value(tuple(layers), _adam(settings).init(tuple(layers)))


def predict(weights: tuple[Layer, ...], obs: jax.Array, time: jax.Array) -> jax.Array:
    """[B] the values of observations [B, O] at times [B]."""
    late = (time / 1000.0)[:, None] ** jnp.arange(1, 5)
    units = jnp.concatenate([jnp.clip(obs, -10.0, 10.0) / 10.0, late], axis=-1)
    *hidden, output = weights
    for layer in hidden:
        units = jax.nn.relu(units @ layer.weight + layer.bias)
    return (units @ output.weight + output.bias)[:, 0]


def advantages(value: Value, steps: Course, gamma: float, lam: float) -> tuple[jax.Array, jax.Array]:
    """[B] the advantages, and the discounted returns that the values are fitted to."""
    here = predict(value.weights, steps.obs, steps.time)
    after = predict(value.weights, steps.next_obs, steps.time + 1) * steps.worth
    return estimate(here, after, steps.reward, steps.last, gamma, lam)


def estimate(
    here: jax.Array, after: jax.Array, reward: jax.Array, last: jax.Array, gamma: float, lam: float
) -> tuple[jax.Array, jax.Array]:
    """[B] advantages and returns, from the values of states and of what follows them."""

    def back(carry: tuple[jax.Array, jax.Array], step: Any) -> tuple[Any, Any]:
        v, following, r, end = step
        advantage = r + gamma * following - v + jnp.where(end, 0.0, gamma * lam * carry[0])
        target = r + gamma * jnp.where(end, following, carry[1])
        return (advantage, target), (advantage, target)

    begin = (jnp.zeros((), here.dtype), jnp.zeros((), here.dtype))
    return jax.lax.scan(back, begin, (here, after, reward, last), reverse=True)[1]


def fit(key: jax.Array, value: Value, steps: Course, target: jax.Array, settings: ValueSettings) -> Value:
    """`epochs` passes over the steps in minibatches, each in a new order."""
    count = target.shape[0]
    rows = min(settings.rows, count)
    adam = _adam(settings)

    def loss(weights: tuple[Layer, ...], chosen: jax.Array) -> jax.Array:
        return ((predict(weights, steps.obs[chosen], steps.time[chosen]) - target[chosen]) ** 2).mean()

    def step(now: Value, chosen: jax.Array) -> tuple[Value, None]:
        change, optimiser = adam.update(jax.grad(loss)(now.weights, chosen), now.optimiser, now.weights)
        return Value(optax.apply_updates(now.weights, change), optimiser), None  # pyright: ignore[reportArgumentType]

    def epoch(now: Value, k: jax.Array) -> tuple[Value, None]:
        order = jax.random.permutation(k, count)[: count // rows * rows].reshape(-1, rows)
        return jax.lax.scan(step, now, order)

    return jax.lax.scan(epoch, value, jax.random.split(key, settings.epochs))[0] if settings.epochs else value


def _adam(settings: ValueSettings) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(settings.decay), optax.adam(settings.rate))
