"""Learning a posterior: the evidence lower bound, and many gradient steps in one compiled scan.

    loss(q) = kl_weight KL(q || p) - E_q[log p(reward, state change | s, a, w)]                          (paper, Eq. 9)

The expectation is over the weights: either whole networks are drawn (`weights`), or the layers' outputs, which given
the inputs are Gaussian too (`local`, the local reparameterisation: each row has noise of its own, so gradients vary
less).

Departure: the likelihood is a mean over the batch and the KL is weighted by `kl_weight` (paper: 1e-4), as in the
authors' code; a true bound would weigh it by one over the number of transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from posterity.models import network, posterior
from posterity.models.network import ACTIVATIONS, NetworkSettings, Prediction
from posterity.models.posterior import Posterior
from posterity.settings import Settings, setting


class LearnerSettings(Settings):
    """How posteriors are learned."""

    world_steps: int = setting(500, "Gradient steps on the world posterior after each iteration.", ge=0)
    task_steps: int = setting(500, "Gradient steps on the task posterior after each iteration.", ge=0)
    world_rate: float = setting(1e-3, "Learning rate of the world posterior.", gt=0)
    task_rate: float = setting(1e-3, "Learning rate of the task posterior.", gt=0)
    world_tasks: int = setting(8, "Tasks in a world batch (paper: 8).", ge=1)
    world_rows: int = setting(64, "Transitions of each task in a world batch (paper: 64).", ge=1)
    task_rows: int = setting(256, "Transitions in a task batch (paper: 256).", ge=1)
    kl_weight: float = setting(1e-4, "Weight of the KL term (paper: 1e-4).", ge=0)
    reward_weight: float = setting(1.0, "Weight of the reward's likelihood (released code: 5).", gt=0)
    samples: int = setting(1, "Monte Carlo samples of the expectation (released code: 1).", ge=1)
    reparameterisation: Literal["local", "weights"] = setting("local", "Noise on layer outputs or on weights.")
    initial_scale: float = setting(0.02, "Standard deviation of every weight before learning.", gt=0)
    prior_scale: float = setting(0.5, "Standard deviation of the world posterior's prior (released code: 0.5).", gt=0)
    posterior_noise: float = setting(
        1.0, "Factor on the posterior's spread when it is used (released code: 0.1).", ge=0
    )


class Batch(NamedTuple):
    """Rows in the units of the normaliser."""

    inputs: jax.Array  # [B, O + A]
    targets: jax.Array  # [B, 1 + O]


def log_likelihood(prediction: Prediction, targets: jax.Array, reward_weight: float) -> jax.Array:
    """[B] Gaussian log density of targets [B, 1 + O], summed over dimensions, the reward's part weighted."""
    error = (targets - prediction.mean) ** 2 * jnp.exp(-prediction.log_variance)
    density = -0.5 * (error + prediction.log_variance + jnp.log(2.0 * jnp.pi))
    return reward_weight * density[..., 0] + density[..., 1:].sum(axis=-1)


def local_forward(
    key: jax.Array, q: Posterior, inputs: jax.Array, settings: NetworkSettings, noise: float
) -> Prediction:
    """A prediction with layer outputs drawn: mean x W + b, variance x^2 W_var + b_var, for every row by itself."""
    activation = ACTIVATIONS[settings.activation]
    keys = jax.random.split(key, len(q.mean))
    last = len(q.mean) - 1
    for number, (k, mean, rho) in enumerate(zip(keys, q.mean, q.rho, strict=True)):
        variance = inputs**2 @ jax.nn.softplus(rho.weight) ** 2 + jax.nn.softplus(rho.bias) ** 2
        drawn = jax.random.normal(k, variance.shape)
        inputs = inputs @ mean.weight + mean.bias + noise * jnp.sqrt(variance) * drawn
        inputs = inputs if number == last else activation(inputs)
    return network.split(inputs, settings)


class Loss(NamedTuple):
    """The parts of a loss, for the record."""

    total: jax.Array
    log_likelihood: jax.Array  # mean over the batch
    kl: jax.Array


def loss(
    key: jax.Array,
    q: Posterior,
    prior: Posterior,
    batch: Batch,
    shape: NetworkSettings,
    settings: LearnerSettings,
    noise: float,
) -> tuple[jax.Array, Loss]:
    """Negative ELBO of one batch. A `noise` of 0 is a plain network, fitted by likelihood alone."""

    def draw(k: jax.Array) -> jax.Array:
        if settings.reparameterisation == "local":
            prediction = local_forward(k, q, batch.inputs, shape, noise)
        else:
            prediction = network.forward(posterior.sample(k, q, noise), batch.inputs, shape)
        return log_likelihood(prediction, batch.targets, settings.reward_weight).mean()

    fitted = jax.vmap(draw)(jax.random.split(key, settings.samples)).mean()
    divergence = posterior.kl(q, prior) if noise > 0 else jnp.float32(0.0)
    total = settings.kl_weight * divergence - fitted
    return total, Loss(total, fitted, divergence)


class Learning(NamedTuple):
    """A posterior and its optimiser."""

    posterior: Posterior
    optimiser: optax.OptState


def fit(
    key: jax.Array,
    start: Learning,
    prior: Posterior,
    draw_batch: Callable[[jax.Array], Batch],
    steps: int,
    rate: float,
    shape: NetworkSettings,
    settings: LearnerSettings,
    noise: float,
) -> tuple[Learning, Loss]:
    """`steps` Adam steps, each on a batch of its own. The loss returned is the mean over the last tenth."""
    adam = optax.adam(rate)

    def step(learning: Learning, k: jax.Array) -> tuple[Learning, Loss]:
        batch_key, noise_key = jax.random.split(k)
        gradient_of = jax.grad(
            lambda q: loss(noise_key, q, prior, draw_batch(batch_key), shape, settings, noise), has_aux=True
        )
        gradient, parts = gradient_of(learning.posterior)
        change, optimiser = adam.update(gradient, learning.optimiser)
        moved: Posterior = optax.apply_updates(learning.posterior, change)  # pyright: ignore[reportAssignmentType, reportArgumentType]
        return Learning(moved, optimiser), parts

    learned, parts = jax.lax.scan(step, start, jax.random.split(key, steps))
    tail = max(1, steps // 10)
    return learned, jax.tree.map(lambda leaf: leaf[-tail:].mean(), parts)


def begin(q: Posterior, rate: float) -> Learning:
    """A posterior with a fresh optimiser."""
    return Learning(q, optax.adam(rate).init(q))  # pyright: ignore[reportArgumentType]
