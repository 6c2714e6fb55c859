"""The run's units: inputs and targets of the network with mean 0 and standard deviation 1.

One normaliser serves the world model and all task models, since a posterior means nothing in other units. It is
estimated from the first transitions of a run and then held.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Normaliser(NamedTuple):
    """Mean and standard deviation of inputs (s, a) and of targets (reward, state change)."""

    input_mean: jax.Array  # [O + A]
    input_scale: jax.Array  # [O + A]
    target_mean: jax.Array  # [1 + O]
    target_scale: jax.Array  # [1 + O]


def identity(obs_dim: int, action_dim: int) -> Normaliser:
    """No change of units."""
    inputs, targets = obs_dim + action_dim, 1 + obs_dim
    return Normaliser(jnp.zeros(inputs), jnp.ones(inputs), jnp.zeros(targets), jnp.ones(targets))


def estimate(inputs: jax.Array, targets: jax.Array, mask: jax.Array) -> Normaliser:
    """From rows [B, ...] where `mask` [B] is true. A quantity that never moves keeps its unit."""
    count = jnp.maximum(mask.sum(), 1)

    def moments(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = jnp.where(mask[:, None], rows, 0.0).sum(axis=0) / count
        variance = jnp.where(mask[:, None], (rows - mean) ** 2, 0.0).sum(axis=0) / count
        scale = jnp.sqrt(variance)
        return mean, jnp.where(scale > 1e-6, scale, 1.0)

    return Normaliser(*moments(inputs), *moments(targets))


def inputs(normaliser: Normaliser, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Observation [..., O] and action [..., A] as the network takes them."""
    joined = jnp.concatenate([obs, action], axis=-1)
    return (joined - normaliser.input_mean) / normaliser.input_scale


def targets(normaliser: Normaliser, obs: jax.Array, reward: jax.Array, next_obs: jax.Array) -> jax.Array:
    """Reward [...] and state change [..., O] as the network predicts them."""
    joined = jnp.concatenate([reward[..., None], next_obs - obs], axis=-1)
    return (joined - normaliser.target_mean) / normaliser.target_scale


def outcome(normaliser: Normaliser, obs: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A target [..., 1 + O] back in the environment's units: the reward, and the next observation."""
    real = target * normaliser.target_scale + normaliser.target_mean
    return real[..., 0], obs + real[..., 1:]
