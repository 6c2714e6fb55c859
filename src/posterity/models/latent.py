"""What is believed about the latent of the present task: weighted draws, moved by what the task does.

    p(z | D) ~ p(z) prod_t p(reward_t, change_t | s_t, a_t, z, w_e)           for every member e of the world posterior

    p(z) = 1/(1 + K) [ N(z; 0, 1) + sum_k N(z; mean_k, std_k^2 + bandwidth^2) ]       a new task, or one of K known ones

Weights of the network are held, so a handful of transitions tell what the task is (results/notes, latent study). It is
Monte Carlo, since what is left open need not be one bump: a goal may lie anywhere nobody has looked yet. Draws of p(z)
are led to the posterior in stages (Del Moral et al. 2006): each weighs the likelihood as heavily as half of the draws
can bear, resamples them and moves them by a Metropolis step along the difference of two others (differential evolution,
ter Braak 2006), whose length follows the spread that is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.models import dynamics, mlp
from posterity.models.dynamics import NetworkSettings
from posterity.models.mlp import Layers
from posterity.models.posterior import Latents
from posterity.settings import Settings, setting

DRAWS = 64  # hypotheses about a task, for each member of the ensemble
STAGES = 6  # from the prior to the posterior, whenever they are updated
MOVES = 4  # Metropolis steps after these
EVERY = 8  # steps between two updates while a task is new
BANDWIDTH = 0.3  # how far a new task may lie from one that is known, in deviations of the first prior
JITTER = 0.01  # of a Metropolis step


class LatentSettings(Settings):
    """What tasks differ by: a latent input of the world's networks, inferred for each task."""

    size: int = setting(0, "Dimensions of the latent; 0: one network for all tasks, as in the paper.", ge=0)
    transitions: int = setting(256, "Transitions of a task that its latent is inferred from, at most.", ge=1)


class Population(NamedTuple):
    """Draws of p(z) p(evidence | z)^power."""

    latents: jax.Array  # [M, Z]
    fitted: jax.Array  # [M] their log-likelihood
    power: jax.Array  # []


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
    mean, log_variance = dynamics.forward(mlp.conditioned(weights, latent), evidence.inputs, settings)
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
    draw_key, stage_key, choice_key, move_key = jax.random.split(key, 4)
    start = prior_draws(draw_key, known, tasks, DRAWS)
    if before is not None:
        start = jnp.concatenate([start, before])

    def fit(latents: jax.Array) -> jax.Array:
        told = jax.vmap(lambda one: log_likelihood(weights, one, evidence, network))(latents)
        return jnp.where(jnp.isfinite(told), told, -jnp.inf)

    def prior(one: jax.Array) -> jax.Array:
        return log_prior(one, known, tasks)

    def stage(now: Population, given: tuple[jax.Array, jax.Array]) -> tuple[Population, jax.Array]:
        k, last = given
        choice_key, move_key = jax.random.split(k)
        power = jnp.where(last, 1.0, _next_power(now))
        gained = (power - now.power) * now.fitted
        chosen = _resample(choice_key, gained)
        led = _moved(move_key, Population(now.latents[chosen], now.fitted[chosen], power), fit, prior)
        return led, jax.nn.logsumexp(gained) - math.log(gained.shape[0])

    given = jax.random.split(stage_key, STAGES), jnp.arange(STAGES) == STAGES - 1
    fresh = Population(start[:DRAWS], fit(start[:DRAWS]), jnp.float32(0.0))
    led, evidences = jax.lax.scan(stage, fresh, given)

    # Those that were led there, beside those that are good as they are: a mode that was found once is not lost again.
    fitted = fit(start)
    weight = jnp.concatenate([jnp.full(DRAWS, evidences.sum() - math.log(DRAWS)), fitted - math.log(len(start))])
    both = jnp.concatenate([led.latents, start]), jnp.concatenate([led.fitted, fitted])
    chosen = _resample(choice_key, weight)
    found = Population(both[0][chosen], both[1][chosen], jnp.float32(1.0))
    found, _ = jax.lax.scan(lambda now, k: (_moved(k, now, fit, prior), None), found, jax.random.split(move_key, MOVES))
    return found.latents


def _next_power(now: Population) -> jax.Array:
    """The power of the likelihood at which half of the draws still count: bisection on a logarithmic scale."""

    def count(power: jax.Array) -> jax.Array:
        share = jax.nn.softmax((power - now.power) * now.fitted)
        return 1.0 / (share**2).sum()

    def halved(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = jnp.sqrt(low * high)
        enough = count(now.power + middle) > 0.5 * now.fitted.shape[0]
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, 20, halved, (jnp.float32(1e-9), 1.0 - now.power + 1e-9))
    return jnp.minimum(now.power + low, 1.0)


def _resample(key: jax.Array, weight: jax.Array) -> jax.Array:
    """Systematically: each draw as often as its share of `DRAWS` says, up or down by one. Weights are logarithms."""
    shares = jax.nn.softmax(weight)
    places = (jnp.arange(DRAWS) + jax.random.uniform(key)) / DRAWS
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(shares), places), shares.shape[0] - 1)


def _moved(
    key: jax.Array,
    now: Population,
    fit: Callable[[jax.Array], jax.Array],
    prior: Callable[[jax.Array], jax.Array],
) -> Population:
    """A Metropolis step of every draw along the difference of two others."""
    pair_key, jitter_key, accept_key = jax.random.split(key, 3)
    latents, fitted, power = now
    count = latents.shape[0]
    first, second = jax.random.randint(pair_key, (2, count), 0, count)
    length = 1.2 / (2.0 * latents.shape[-1]) ** 0.5  # half of what is best where all is Gaussian
    proposed = latents + length * (latents[first] - latents[second])
    proposed += JITTER * jax.random.normal(jitter_key, latents.shape)
    new = fit(proposed)
    gain = power * (new - fitted) + jax.vmap(prior)(proposed) - jax.vmap(prior)(latents)
    taken = jnp.log(jax.random.uniform(accept_key, fitted.shape)) < gain
    return Population(jnp.where(taken[:, None], proposed, latents), jnp.where(taken, new, fitted), power)


def remembered(latents: jax.Array, known: Latents, task: jax.Array) -> Latents:
    """`known` [K, Z] with the present task as its hypotheses [M, Z] have it now: where its fit begins.

    However little is known, the fit begins with a small spread: a wide one is noise that slows the network down.
    """
    mean, std = latents.mean(axis=0), jnp.clip(latents.std(axis=0), 0.02, 0.2)
    rho = std + jnp.log(-jnp.expm1(-std))
    return Latents(known.mean.at[task].set(mean), known.rho.at[task].set(rho))


def told(latents: jax.Array) -> jax.Array:
    """[..., Z] what an actor is told of hypotheses [..., E, M, Z]: the mean of the first member's.

    Members have a language of their own each, and one is enough to say which task it is.
    """
    return latents[..., 0, :, :].mean(axis=-2)


def no_latents(tasks: int, size: int) -> Latents:
    """Nothing is known of any task: the prior N(0, 1)."""
    unit = jnp.full((tasks, size), jnp.log(jnp.expm1(jnp.float32(1.0))))
    return Latents(jnp.zeros((tasks, size)), unit)


def draws(key: jax.Array, known: Latents, task: jax.Array, count: int) -> jax.Array:
    """[M, Z] hypotheses about a task that is known."""
    noise = jax.random.normal(key, (count, known.mean.shape[1]))
    return known.mean[task][None] + jax.nn.softplus(known.rho[task])[None] * noise
