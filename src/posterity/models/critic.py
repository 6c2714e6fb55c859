"""The critic: a value at the end of every imagined rollout.

    score(candidate) = sum of rewards within the horizon + V(last state) if the episode is still going

    V(s) <- r + gamma V_target(s') (1 - terminated)         on the task's transitions; V_target follows V slowly

Departure: the paper's planner ends at its horizon (`gradient_steps` 0). What pays within it and costs after it, such as
a leap whose landing lies beyond, then looks good. V is of the behaviour that collected the data, which the planner
improves on. It starts from the task before, and never sees which task it is.

A time limit cuts episodes off, so some last states are never learned from, only asked about: left alone, V feeds on its
own guesses there and grows without end. Two things hold it. Every hidden layer is normalised over its units, so that a
guess about a state that is far off stays in proportion. And nothing can be worth more than the best reward so far for
ever, nor less than the worst.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from posterity.models import chunked_scan, mlp
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.settings import Settings, setting

HIDDEN = (128, 128)  # units of each hidden layer
BATCH_SIZE = 256  # transitions
LEARNING_RATE = 1e-3
TAU = 0.02  # how far the target network moves towards the network at every step


class CriticSettings(Settings):
    """Whether and how a value after the horizon is learned."""

    gradient_steps: int = setting(
        0, "Gradient steps after each iteration on a value after the horizon; 0: there is none (paper).", ge=0
    )
    gamma: float = setting(0.99, "Discount of the value, and of an actor's critics.", ge=0, lt=1)


class Critic(NamedTuple):
    """A value network, and the bounds of what any state can be worth."""

    layers: Layers
    low: jax.Array  # []
    high: jax.Array  # []


class CriticTraining(NamedTuple):
    """A critic, its target network and its optimiser."""

    critic: Critic
    target: Layers
    optimiser: optax.OptState


class CriticBatch(NamedTuple):
    """Transitions as the critic takes them."""

    obs: jax.Array  # [B, O]
    reward: jax.Array  # [B]
    next_obs: jax.Array  # [B, O]
    terminated: jax.Array  # [B] 1 where nothing follows


def init(key: jax.Array, obs_dim: int, hidden: tuple[int, ...] = HIDDEN) -> CriticTraining:
    """A fresh network whose last layer is zero, so that nothing is worth anything until something is learned."""
    *layers, output = mlp.init(key, (obs_dim, *hidden, 1))
    fresh = (*layers, output._replace(weight=jnp.zeros_like(output.weight)))
    nothing = jnp.float32(0.0)
    optimiser = optax.scale_by_adam().init(fresh)  # pyright: ignore[reportArgumentType]
    return CriticTraining(Critic(fresh, nothing, nothing), fresh, optimiser)


def value(critic: Critic, normaliser: Normaliser, obs: jax.Array, gamma: float) -> jax.Array:
    """[...] the value of observations [..., O], in the environment's units of reward."""
    return jnp.clip(_unbounded(critic.layers, normaliser, obs, gamma), critic.low, critic.high)


def widened(training: CriticTraining, least: jax.Array, most: jax.Array, gamma: float) -> CriticTraining:
    """The bounds that follow from a least and a most reward, or those from before if they are wider."""
    critic = training.critic
    low, high = jnp.minimum(critic.low, least / (1.0 - gamma)), jnp.maximum(critic.high, most / (1.0 - gamma))
    return training._replace(critic=critic._replace(low=low, high=high))


def _unbounded(layers: Layers, normaliser: Normaliser, obs: jax.Array, gamma: float) -> jax.Array:
    """The network by itself."""
    size = obs.shape[-1]
    mean, scale = (mlp.across(part[:size], obs) for part in (normaliser.input_mean, normaliser.input_scale))
    x = (obs - mean) / scale
    return mlp.apply(layers, x, jax.nn.elu, normalise=True)[..., 0] * _scale(normaliser, gamma)


def _scale(normaliser: Normaliser, gamma: float) -> jax.Array:
    """What an endless stream of typical rewards is worth."""
    return jnp.sqrt(normaliser.target_mean[0] ** 2 + normaliser.target_scale[0] ** 2) / (1.0 - gamma)


def fit(
    key: jax.Array,
    training: CriticTraining,
    normaliser: Normaliser,
    draw: Callable[[jax.Array], CriticBatch],
    gamma: float,
    steps: int,
) -> tuple[CriticTraining, jax.Array]:
    """Temporal differences. Returns the root mean square error of the last tenth of the steps, in units of V."""
    adam, scale = optax.scale_by_adam(), _scale(normaliser, gamma)

    def step(now: CriticTraining, batch: CriticBatch) -> tuple[CriticTraining, jax.Array]:
        following = value(now.critic._replace(layers=now.target), normaliser, batch.next_obs, gamma)
        target = batch.reward + gamma * jnp.where(batch.terminated > 0, 0.0, following)

        def loss(layers: Layers) -> jax.Array:
            error = _unbounded(layers, normaliser, batch.obs, gamma) - target
            return ((error / scale) ** 2).mean()

        error, gradient = jax.value_and_grad(loss)(now.critic.layers)
        change, optimiser = adam.update(gradient, now.optimiser)
        layers = jax.tree.map(lambda old, move: old - LEARNING_RATE * move, now.critic.layers, change)
        followed = jax.tree.map(lambda old, new: old + TAU * (new - old), now.target, layers)
        return CriticTraining(now.critic._replace(layers=layers), followed, optimiser), error

    learned, errors = chunked_scan.scan(step, training, draw, jax.random.split(key, steps))
    return learned, jnp.sqrt(errors[-max(1, steps // 10) :].mean())
