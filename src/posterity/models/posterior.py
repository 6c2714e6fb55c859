"""Mean-field Gaussian posterior over the weights of a network.

q(w) = prod_i N(w_i; mean_i, softplus(rho_i)^2)                                                      (paper, Eq. 8)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.models.mlp import Layers


class Posterior(NamedTuple):
    """Independent Gaussians over one network's weights. `mean` and `rho` share one tree."""

    mean: Layers
    rho: Layers  # any real value is valid: scale = softplus(rho) > 0


def init(mean: Layers, scale: float) -> Posterior:
    """Around a fresh network, all scales alike."""
    return Posterior(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, inverse_softplus(scale)), mean))


def gaussian(like: Posterior, scale: float) -> Posterior:
    """The fixed prior N(0, scale^2) over every weight."""
    return init(jax.tree.map(jnp.zeros_like, like.mean), scale)


def sample(key: jax.Array, posterior: Posterior, noise: float | jax.Array = 1.0) -> Layers:
    """One whole network. `noise` scales the spread: 0 gives the mean network (released code: 0.1)."""
    leaves, tree = jax.tree.flatten(posterior.mean)
    scales = jax.tree.leaves(posterior.rho)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        mean + noise * jax.nn.softplus(rho) * jax.random.normal(k, mean.shape)
        for k, mean, rho in zip(keys, leaves, scales, strict=True)
    ]
    return jax.tree.unflatten(tree, drawn)


def kl(q: Posterior, p: Posterior) -> jax.Array:
    """KL(q || p) in nats, summed over all weights."""

    def one(q_mean: jax.Array, q_rho: jax.Array, p_mean: jax.Array, p_rho: jax.Array) -> jax.Array:
        q_scale, p_scale = jax.nn.softplus(q_rho), jax.nn.softplus(p_rho)
        ratio = (q_scale / p_scale) ** 2
        return 0.5 * jnp.sum(ratio + ((q_mean - p_mean) / p_scale) ** 2 - 1.0 - jnp.log(ratio))

    parts = jax.tree.leaves(jax.tree.map(one, q.mean, q.rho, p.mean, p.rho))
    return jnp.stack(parts).sum()


def inverse_softplus(scale: float) -> float:
    """The rho whose scale is `scale`."""
    return scale + math.log(-math.expm1(-scale))
