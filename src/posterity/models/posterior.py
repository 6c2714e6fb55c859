"""What is believed about the weights of a network: a mixture of E Gaussians, its members.

    q(w) = 1/E sum_e prod_i N(w_i; mean_ei, (noise softplus(rho_ei))^2)

    mean field   one member, noise 1: the paper's posterior                                             (paper, Eq. 8)
    ensemble     several members, noise 0: every member is one network, and their disagreement is the doubt

Every member has a prior of its own, a Gaussian too. Members of an ensemble begin as draws of one prior and are pulled
back to where they began (randomised MAP sampling, Pearce et al. 2020): where data say nothing they go on disagreeing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.models.mlp import Layer, Layers


class Latents(NamedTuple):
    """Independent Gaussians over the latents of K tasks: what tasks differ by."""

    mean: jax.Array  # [K, Z]
    rho: jax.Array  # [K, Z]


class Posterior(NamedTuple):
    """Gaussians over a network's weights, for each member. `mean` and `rho` share one tree."""

    mean: Layers
    rho: Layers  # any real value is valid: scale = softplus(rho) > 0
    latents: Latents | None = None  # of the tasks it was fitted to, if the network takes one


def init(mean: Layers, scale: float) -> Posterior:
    """Around a fresh network, all scales alike."""
    return Posterior(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, inverse_softplus(scale)), mean))


def gaussian(like: Posterior, scale: float) -> Posterior:
    """The fixed prior N(0, scale^2) over every weight."""
    return init(jax.tree.map(jnp.zeros_like, like.mean), scale)


def anchored(mean: Layers, scale: float | jax.Array) -> Posterior:
    """A prior around given networks, each weight as wide as it is drawn: N(mean, scale^2 / fan-in), biases scale^2."""
    wide = jnp.asarray(scale, jnp.float32)

    def rho(layer: Layer) -> Layer:
        narrow = wide / math.sqrt(layer.weight.shape[-2])
        return Layer(*(jnp.full_like(p, _rho(s)) for p, s in zip(layer, (narrow, wide), strict=True)))

    return Posterior(mean, tuple(rho(layer) for layer in mean))


def _rho(scale: jax.Array) -> jax.Array:
    return scale + jnp.log(-jnp.expm1(-scale))


def members(posterior: Posterior) -> int:
    """E, the members of a posterior whose leaves are [E, ...]."""
    return posterior.mean[0].weight.shape[0]


def sample(key: jax.Array, posterior: Posterior, noise: float | jax.Array = 1.0) -> Layers:
    """One whole network of one member. `noise` scales the spread: 0 gives the mean network (released code: 0.1)."""
    leaves, tree = jax.tree.flatten(posterior.mean)
    scales = jax.tree.leaves(posterior.rho)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        mean + noise * jax.nn.softplus(rho) * jax.random.normal(k, mean.shape)
        for k, mean, rho in zip(keys, leaves, scales, strict=True)
    ]
    return jax.tree.unflatten(tree, drawn)


def kl(q: Posterior, p: Posterior, noise: float | jax.Array = 1.0) -> jax.Array:
    """KL(q || p) in nats, summed over all weights of one member.

    With `noise` 0, where a member is a single network, what is left of it is its distance from the prior's mean: minus
    the log density of the prior, but for a constant.
    """

    def one(q_mean: jax.Array, q_rho: jax.Array, p_mean: jax.Array, p_rho: jax.Array) -> jax.Array:
        q_scale, p_scale = jax.nn.softplus(q_rho), jax.nn.softplus(p_rho)
        ratio = (q_scale / p_scale) ** 2
        spread = jnp.where(noise > 0, ratio - 1.0 - jnp.log(ratio), 0.0)
        return 0.5 * jnp.sum(spread + ((q_mean - p_mean) / p_scale) ** 2)

    def plain(q_mean: jax.Array, p_mean: jax.Array, p_rho: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(((q_mean - p_mean) / jax.nn.softplus(p_rho)) ** 2)

    if is_plain(noise):
        parts = jax.tree.map(plain, q.mean, p.mean, p.rho)
    else:
        parts = jax.tree.map(one, q.mean, q.rho, p.mean, p.rho)
    return jnp.stack(jax.tree.leaves(parts)).sum()


def is_plain(noise: float | jax.Array) -> bool:
    """Whether it is known before anything runs that members are plain networks, whose `rho` says nothing."""
    return isinstance(noise, float) and noise == 0.0


def latent_kl(q: Latents) -> jax.Array:
    """[K] KL(q(z_k) || N(0, 1)) in nats."""
    scale = jax.nn.softplus(q.rho)
    return 0.5 * (q.mean**2 + scale**2 - 1.0 - 2.0 * jnp.log(scale)).sum(axis=-1)


def inverse_softplus(scale: float) -> float:
    """The rho whose scale is `scale`."""
    return scale + math.log(-math.expm1(-scale))
