"""A Gaussian policy. Its mean is a linear map of the observation, or a small network; its deviation is free.

    a ~ N(mean(s; theta), diag(exp(log_std))^2),        mean(s) = W s + b, or with hidden layers of tanh between

`theta` is one flat vector: layer after layer, in each the weights [inputs, outputs] row by row, then the biases. What
is stored about it (a gradient, a curvature, a column of a dictionary) is in this order and no other. A policy's actions
are in units in which the environment's range is -1 .. 1 (`ActionRange`).

The same `mean` runs in NumPy, to act without the cost of a compiled call, and in JAX, to learn.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import mlp
from posterity.models.mlp import Layer, Layers
from posterity.types import Array, HostArray

Shape = tuple[tuple[int, int], ...]  # inputs and outputs of each layer


class PolicyParams(NamedTuple):
    """The parameters of one policy, or of one for each lane."""

    theta: Array  # [d]
    log_std: Array  # [A]


class Batch(NamedTuple):
    """The steps of an iteration as a policy gradient takes them. The action was mean(obs) + exp(log_std) noise."""

    obs: Array  # [B, O]
    noise: Array  # [B, A] standard normal
    advantage: Array  # [B]


class ActionRange(NamedTuple):
    """The environment's range of actions, which a policy sees as -1 .. 1."""

    low: HostArray  # [A]
    high: HostArray  # [A]

    def clipped(self, raw: HostArray) -> HostArray:
        """A policy's actions [L, A] in the environment's units, inside its range."""
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return np.minimum(np.maximum(centre + half * raw, self.low), self.high).astype(np.float32)


def shape(obs_dim: int, hidden: tuple[int, ...], action_dim: int) -> Shape:
    """The layers of a policy."""
    sizes = (obs_dim, *hidden, action_dim)
    return tuple(pairwise(sizes))


def size(layers: Shape) -> int:
    """d: the number of weights and biases."""
    return sum((inputs + 1) * outputs for inputs, outputs in layers)


def init(key: jax.Array, layers: Shape, scale: float) -> jax.Array:
    """[d] uniform within 1 / sqrt(fan-in); the output layer times `scale`, so that the first means are near zero."""
    keys = jax.random.split(key, len(layers))
    parts = []
    for number, (k, (inputs, outputs)) in enumerate(zip(keys, layers, strict=True)):
        bound = (scale if number == len(layers) - 1 else 1.0) / np.sqrt(inputs)
        parts.append(jax.random.uniform(k, ((inputs + 1) * outputs,), minval=-bound, maxval=bound))
    return jnp.concatenate(parts)


def mean(theta: Array, obs: Array, layers: Shape) -> Any:
    """[..., B, A] the mean actions of policies theta [..., d] for observations [..., B, O]; NumPy of NumPy arrays."""
    xp = np if isinstance(theta, np.ndarray) else jnp
    return mlp.apply(_unflattened(theta, layers), obs, xp.tanh)


def _unflattened(theta: Array, layers: Shape) -> Layers:
    """The layers of policies theta [..., d]."""
    parts, begin = [], 0
    for inputs, outputs in layers:
        middle = begin + inputs * outputs
        weight = theta[..., begin:middle].reshape((*theta.shape[:-1], inputs, outputs))
        begin = middle + outputs
        parts.append(Layer(weight, theta[..., middle:begin]))
    return tuple(parts)


def surrogate(new: PolicyParams, old: PolicyParams, batch: Batch, layers: Shape) -> jax.Array:
    """mean of pi_new(a | s) / pi_old(a | s) x advantage, over steps that `old` took."""
    moved = mean(old.theta, batch.obs, layers) - mean(new.theta, batch.obs, layers)
    z = (moved + jnp.exp(old.log_std)[None] * batch.noise) / jnp.exp(new.log_std)[None]
    log_ratio = (0.5 * batch.noise**2 - 0.5 * z**2 + old.log_std[None] - new.log_std[None]).sum(axis=-1)
    return (jnp.exp(log_ratio) * batch.advantage).mean()


def kl(old: PolicyParams, new: PolicyParams, obs: Array, layers: Shape) -> jax.Array:
    """mean over observations of KL(old || new), in nats."""
    moved = mean(old.theta, obs, layers) - mean(new.theta, obs, layers)
    narrower = (old.log_std - new.log_std)[None]
    far = (moved / jnp.exp(new.log_std)[None]) ** 2
    return 0.5 * (far + jnp.exp(2 * narrower) - 1 - 2 * narrower).sum(axis=-1).mean()


def fisher_product(
    policy_of: Callable[[jax.Array], PolicyParams], at: jax.Array, obs: Array, layers: Shape
) -> Callable[[jax.Array], jax.Array]:
    """v -> F v, F the Hessian of mean KL(policy_of(at) || policy_of(x)) in x, at x = at."""

    def outputs(x: jax.Array) -> PolicyParams:
        here = policy_of(x)
        return PolicyParams(mean(here.theta, obs, layers), here.log_std)

    now, push = jax.linearize(outputs, at)
    pull = jax.linear_transpose(push, at)
    return lambda v: pull(_metric(now, push(v), obs))[0]


def _metric(now: PolicyParams, tangent: PolicyParams, obs: Array) -> PolicyParams:
    """The Fisher matrix of (mean, log_std), per step, times a tangent whose `theta` is a change of means [B, A].

    It is diagonal: 1 / variance for a mean, 2 for a log deviation. Pulled back through the map from parameters to
    means and deviations it is the Hessian of `kl` at zero distance.
    """
    return PolicyParams(tangent.theta * jnp.exp(-2 * now.log_std)[None] / obs.shape[0], 2 * tangent.log_std)
