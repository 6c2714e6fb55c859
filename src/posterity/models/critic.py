"""What follows the horizon: a value at the end of every imagined rollout.

    score(candidate) = sum of rewards within the horizon + V(last state) if it is still going

    V(s) <- r + gamma V'(s') (1 - ended)         on the task's transitions; V' follows V slowly

Departure: the paper's planner ends at its horizon (`use` off). What pays within it and costs after it, such as a leap
whose landing lies beyond, then looks good. V is of the behaviour that collected the data, which the planner improves
on; it starts from the task before, and never sees which task it is.

A time limit cuts episodes off, so some last states are never learned from, only asked about: left alone, V feeds on its
own guesses there and grows without end. Two things hold it. Every hidden layer is normalised over its units, so that a
guess about a state that is far off stays in proportion. And nothing can be worth more than the best reward so far for
ever, nor less than the worst.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from pydantic import Field

from posterity.models import ahead
from posterity.models.normaliser import Normaliser
from posterity.settings import Settings, setting


class HorizonSettings(Settings):
    """Whether and how what follows the horizon is valued."""

    use: bool = setting(False, "Add a learned value at the end of imagined rollouts (paper: nothing follows).")
    gamma: float = setting(0.99, "Discount of what follows.", ge=0, lt=1)
    hidden: tuple[Annotated[int, Field(ge=2)], ...] = setting(
        (128, 128), "Units of each hidden layer of the value network."
    )
    steps: int = setting(500, "Gradient steps after each iteration.", ge=1)
    rows: int = setting(256, "Transitions in a batch.", ge=1)
    rate: float = setting(1e-3, "Learning rate.", gt=0)
    follow: float = setting(0.005, "Share by which the slow copy moves to the network at every step.", gt=0, le=1)


Weights = tuple[tuple[jax.Array, jax.Array], ...]


class Value(NamedTuple):
    """A value network and what nothing can be worth more or less than."""

    weights: Weights
    low: jax.Array  # []
    high: jax.Array  # []


class ValueLearning(NamedTuple):
    """A value, its slow copy and its optimiser."""

    value: Value
    slow: Weights
    optimiser: optax.OptState


class Steps(NamedTuple):
    """Transitions as the value takes them."""

    obs: jax.Array  # [B, O]
    reward: jax.Array  # [B]
    next_obs: jax.Array  # [B, O]
    ended: jax.Array  # [B] 1 where nothing follows


def init(key: jax.Array, obs_dim: int, settings: HorizonSettings) -> ValueLearning:
    """Weights of N(0, 1 / fan-in); the last layer is zero, so that nothing follows until something is learned."""
    sizes = (obs_dim, *settings.hidden, 1)
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [
        (jax.random.normal(k, (inputs, outputs)) / jnp.sqrt(jnp.float32(inputs)), jnp.zeros(outputs))
        for k, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    layers[-1] = (jnp.zeros_like(layers[-1][0]), layers[-1][1])
    weights = tuple(layers)
    nothing = jnp.float32(0.0)
    return ValueLearning(Value(weights, nothing, nothing), weights, optax.scale_by_adam().init(weights))


def predict(value: Value, units: Normaliser, obs: jax.Array, gamma: float) -> jax.Array:
    """[...] the value of observations [..., O], in the environment's units of reward."""
    return jnp.clip(_free(value.weights, units, obs, gamma), value.low, value.high)


def bounded(learning: ValueLearning, least: jax.Array, most: jax.Array, gamma: float) -> ValueLearning:
    """The bounds that follow from a least and a most reward, or those from before if they are wider."""
    value = learning.value
    low, high = jnp.minimum(value.low, least / (1.0 - gamma)), jnp.maximum(value.high, most / (1.0 - gamma))
    return learning._replace(value=value._replace(low=low, high=high))


def _free(weights: Weights, units: Normaliser, obs: jax.Array, gamma: float) -> jax.Array:
    """The network by itself."""
    size = obs.shape[-1]
    x = (obs - units.input_mean[:size]) / units.input_scale[:size]
    *hidden, (weight, bias) = weights
    for layer_weight, layer_bias in hidden:
        x = jax.nn.elu(_even(x @ layer_weight + layer_bias))
    return (x @ weight + bias)[..., 0] * _unit(units, gamma)


def _even(x: jax.Array) -> jax.Array:
    """Mean 0 and deviation 1 over the units of a layer."""
    x = x - x.mean(axis=-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)


def _unit(units: Normaliser, gamma: float) -> jax.Array:
    """What an endless stream of typical rewards is worth."""
    return jnp.sqrt(units.target_mean[0] ** 2 + units.target_scale[0] ** 2) / (1.0 - gamma)


def fit(
    key: jax.Array,
    learning: ValueLearning,
    units: Normaliser,
    draw: Callable[[jax.Array], Steps],
    settings: HorizonSettings,
) -> tuple[ValueLearning, jax.Array]:
    """`steps` steps of temporal differences. Returns the root mean square error of the last tenth, in units of V."""
    adam, unit = optax.scale_by_adam(), _unit(units, settings.gamma)

    def step(now: ValueLearning, rows: Steps) -> tuple[ValueLearning, jax.Array]:
        follows = predict(now.value._replace(weights=now.slow), units, rows.next_obs, settings.gamma)
        target = rows.reward + settings.gamma * jnp.where(rows.ended > 0, 0.0, follows)

        def loss(weights: Weights) -> jax.Array:
            error = _free(weights, units, rows.obs, settings.gamma) - target
            return ((error / unit) ** 2).mean()

        error, gradient = jax.value_and_grad(loss)(now.value.weights)
        change, optimiser = adam.update(gradient, now.optimiser)
        weights = jax.tree.map(lambda old, move: old - settings.rate * move, now.value.weights, change)
        slow = jax.tree.map(lambda old, new: old + settings.follow * (new - old), now.slow, weights)
        return ValueLearning(now.value._replace(weights=weights), slow, optimiser), error

    learned, errors = ahead.scan(step, learning, draw, jax.random.split(key, settings.steps))
    return learned, jnp.sqrt(errors[-max(1, settings.steps // 10) :].mean())
