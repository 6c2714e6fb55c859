"""What is believed about the latent of the present task: weighted draws, moved by what the task does.

    p(z | D) ~ p(z) prod_t p(reward_t, change_t | s_t, a_t, z, w_e)           for every member e of the world posterior

    p(z) = 1/(1 + K) [ N(z; 0, 1) + sum_k N(z; mean_k, std_k^2 + bandwidth^2) ]       a new task, or one of K known ones

Weights of the network are held, so a handful of transitions tell what the task is (results/notes, latent study). It is
Monte Carlo, since what is left open need not be one bump: a goal may lie anywhere nobody has looked yet. Draws of p(z)
are weighted by the likelihood and resampled, then moved by Metropolis steps along differences of two other draws
(differential evolution, ter Braak 2006), whose length follows the spread that is left.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.models import dynamics
from posterity.models.dynamics import NetworkSettings
from posterity.models.mlp import Layers
from posterity.models.posterior import Latents
from posterity.settings import Settings, setting

DRAWS = 64  # hypotheses about a task, for each member of the ensemble
MOVES = 10  # Metropolis steps of these whenever they are updated
EVERY = 8  # steps between two updates while a task is new
BANDWIDTH = 0.3  # how far a new task may lie from one that is known, in deviations of the first prior
JITTER = 0.01  # of a Metropolis step


class LatentSettings(Settings):
    """What tasks differ by: a latent input of the world's networks, inferred for each task."""

    size: int = setting(0, "Dimensions of the latent; 0: one network for all tasks, as in the paper.", ge=0)
    transitions: int = setting(256, "Transitions of a task that its latent is inferred from, at most.", ge=1)


class Evidence(NamedTuple):
    """Transitions of a task, in the units of the normaliser."""

    inputs: jax.Array  # [W, O + A]
    targets: jax.Array  # [W, 1 + O]
    counts: jax.Array  # [W] 1 for a row that counts, 0 for one that only fills up


def prior_draws(key: jax.Array, known: Latents, tasks: jax.Array, count: int) -> jax.Array:
    """[M, Z] draws of p(z), the first `tasks` of `known` being known."""
    which_key, noise_key = jax.random.split(key)
    which = jax.random.randint(which_key, (count,), 0, tasks + 1)
    noise = jax.random.normal(noise_key, (count, known.mean.shape[1]))
    place = jnp.minimum(which, known.mean.shape[0] - 1)
    near = known.mean[place] + _width(known)[place] * noise
    return jnp.where((which < tasks)[:, None], near, noise)


def log_prior(latent: jax.Array, known: Latents, tasks: jax.Array) -> jax.Array:
    """log p(z) of one latent [Z], but for a constant."""
    width = _width(known)
    fresh = -0.5 * (latent**2).sum()
    near = (-0.5 * ((latent[None] - known.mean) / width) ** 2 - jnp.log(width)).sum(axis=-1)
    near = jnp.where(jnp.arange(near.shape[0]) < tasks, near, -jnp.inf)
    return jax.nn.logsumexp(jnp.concatenate([fresh[None], near]))


def _width(known: Latents) -> jax.Array:
    return jnp.sqrt(jax.nn.softplus(known.rho) ** 2 + BANDWIDTH**2)


def log_likelihood(weights: Layers, latent: jax.Array, evidence: Evidence, settings: NetworkSettings) -> jax.Array:
    """Of the evidence, under one hypothesis [Z] of one member."""
    mean, log_variance = dynamics.forward(dynamics.conditioned(weights, latent), evidence.inputs, settings)
    density = -0.5 * ((evidence.targets - mean) ** 2 * jnp.exp(-log_variance) + log_variance)
    return (density.sum(axis=-1) * evidence.counts).sum()


def infer(
    key: jax.Array,
    weights: Layers,
    known: Latents,
    tasks: jax.Array,
    evidence: Evidence,
    network: NetworkSettings,
    before: jax.Array | None = None,
) -> jax.Array:
    """[M, Z] draws of p(z | evidence) for one member. `before` [M, Z]: hypotheses to begin with beside the prior's."""
    draw_key, choice_key, move_key = jax.random.split(key, 3)
    start = prior_draws(draw_key, known, tasks, DRAWS)
    if before is not None:
        start = jnp.concatenate([start, before])

    def fit(latents: jax.Array) -> jax.Array:
        return jax.vmap(lambda one: log_likelihood(weights, one, evidence, network))(latents)

    fitted = fit(start)
    fitted = jnp.where(jnp.isfinite(fitted), fitted, -jnp.inf)
    chosen = jax.random.categorical(choice_key, fitted, shape=(DRAWS,))
    density = fitted[chosen] + jax.vmap(lambda one: log_prior(one, known, tasks))(start[chosen])

    def move(now: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        latents, old = now
        pair_key, jitter_key, accept_key = jax.random.split(k, 3)
        first, second = jax.random.randint(pair_key, (2, DRAWS), 0, DRAWS)
        length = 1.2 / (2.0 * latents.shape[-1]) ** 0.5  # half of what is best where all is Gaussian
        proposed = latents + length * (latents[first] - latents[second])
        proposed += JITTER * jax.random.normal(jitter_key, latents.shape)
        new = fit(proposed) + jax.vmap(lambda one: log_prior(one, known, tasks))(proposed)
        taken = jnp.log(jax.random.uniform(accept_key, old.shape)) < new - old
        return (jnp.where(taken[:, None], proposed, latents), jnp.where(taken, new, old)), None

    (latents, _), _ = jax.lax.scan(move, (start[chosen], density), jax.random.split(move_key, MOVES))
    return latents


def remembered(latents: jax.Array, known: Latents, task: jax.Array) -> Latents:
    """`known` [K, Z] with the present task as its hypotheses [M, Z] have it now: where its fit begins.

    However little is known, the fit begins with a small spread: a wide one is noise that slows the network down.
    """
    mean, std = latents.mean(axis=0), jnp.clip(latents.std(axis=0), 0.02, 0.2)
    rho = std + jnp.log(-jnp.expm1(-std))
    return Latents(known.mean.at[task].set(mean), known.rho.at[task].set(rho))


def no_latents(tasks: int, size: int) -> Latents:
    """Nothing is known of any task: the prior N(0, 1)."""
    unit = jnp.full((tasks, size), jnp.log(jnp.expm1(jnp.float32(1.0))))
    return Latents(jnp.zeros((tasks, size)), unit)


def draws(key: jax.Array, known: Latents, task: jax.Array, count: int) -> jax.Array:
    """[M, Z] hypotheses about a task that is known."""
    noise = jax.random.normal(key, (count, known.mean.shape[1]))
    return known.mean[task][None] + jax.nn.softplus(known.rho[task])[None] * noise
