"""The run's normaliser: inputs and targets of the network with mean 0 and standard deviation 1.

One normaliser serves the world model and all task models, since a posterior means nothing in other units. It is
estimated from the first transitions of a run and then held.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.models.mlp import across

MinScale = tuple[jax.Array, jax.Array]  # of observations [O], of reward and changes [1 + O]


class Normaliser(NamedTuple):
    """Mean and standard deviation of inputs (s, a) and of targets (reward, state change)."""

    input_mean: jax.Array  # [O + A]
    input_scale: jax.Array  # [O + A]
    target_mean: jax.Array  # [1 + O]
    target_scale: jax.Array  # [1 + O]

    def inputs(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        """Observation [..., O] and action [..., A] as the network takes them."""
        joined = jnp.concatenate([obs, action], axis=-1)
        return (joined - across(self.input_mean, joined)) / across(self.input_scale, joined)

    def targets(self, obs: jax.Array, reward: jax.Array, next_obs: jax.Array) -> jax.Array:
        """Reward [...] and state change [..., O] as the network predicts them."""
        joined = jnp.concatenate([reward[..., None], next_obs - obs], axis=-1)
        return (joined - across(self.target_mean, joined)) / across(self.target_scale, joined)

    def outcome(self, obs: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A target [..., 1 + O] back in the environment's units: the reward, and the next observation."""
        real = target * across(self.target_scale, target) + across(self.target_mean, target)
        return real[..., 0], obs + real[..., 1:]


def identity(obs_dim: int, action_dim: int) -> Normaliser:
    """No change of units."""
    inputs, targets = obs_dim + action_dim, 1 + obs_dim
    return Normaliser(jnp.zeros(inputs), jnp.ones(inputs), jnp.zeros(targets), jnp.ones(targets))


def estimate(inputs: jax.Array, targets: jax.Array, mask: jax.Array, min_scale: MinScale | None = None) -> Normaliser:
    """From rows [B, ...] where `mask` [B] is true. A quantity that never moves keeps its unit.

    `min_scale` bounds scales from below. The rows are the first task's, and an object that hardly moves there would lie
    thousands of deviations away in the second.
    """
    count = jnp.maximum(mask.sum(), 1)
    width = targets.shape[-1]
    obs, outcome = min_scale or (jnp.zeros(width - 1), jnp.zeros(width))

    def moments(rows: jax.Array, least: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = jnp.where(mask[:, None], rows, 0.0).sum(axis=0) / count
        variance = jnp.where(mask[:, None], (rows - mean[None]) ** 2, 0.0).sum(axis=0) / count
        scale = jnp.maximum(jnp.sqrt(variance), least)
        return mean, jnp.where(scale > 1e-6, scale, 1.0)

    actions = jnp.zeros(inputs.shape[-1] - len(obs))
    return Normaliser(*moments(inputs, jnp.concatenate([obs, actions])), *moments(targets, outcome))
