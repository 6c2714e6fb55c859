"""Learning a posterior: the evidence lower bound, and many gradient steps in one compiled scan.

    loss(q) = kl_weight KL(q || p) - E_q[log p(reward, state change | s, a, w)]                          (paper, Eq. 9)

The expectation is over the weights. Layer outputs are drawn instead of weights, which given the inputs are Gaussian too
(local reparameterisation: each row has noise of its own, so gradients vary less).

Departure: the likelihood is a mean over the batch and the KL is weighted by `kl_weight` (paper: 1e-4), as in the
authors' code; a true bound would weigh it by one over the number of transitions. Where the world posterior is the prior
the weight can be less (`prior_kl_scale`, `prior_kl_anneal_transitions`; 1 in the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import optax

from posterity.models import chunked_scan, dynamics, posterior
from posterity.models.dynamics import NetworkSettings, Prediction
from posterity.models.mlp import ACTIVATIONS
from posterity.models.posterior import Posterior
from posterity.settings import Settings, setting

Tree = TypeVar("Tree")
WORLD_BATCH_TASKS = 8  # tasks in a world batch (paper: 8)
LATENT_STEP = 10.0  # times the learning rate of weights


class LearnerSettings(Settings):
    """How posteriors are learned."""

    gradient_steps: int = setting(500, "Gradient steps on each posterior after each iteration.", ge=1)
    world_learning_rate: float = setting(1e-3, "Adam's learning rate for the world posterior.", gt=0)
    task_learning_rate: float = setting(1e-3, "Adam's learning rate for the task posterior.", gt=0)
    world_batch_size: int = setting(64, "Transitions of each of 8 tasks in a world batch (paper: 64).", ge=1)
    task_batch_size: int = setting(256, "Transitions in a task batch (paper: 256).", ge=1)
    kl_weight: float = setting(1e-4, "Weight of the KL term, but for ensembles (paper: 1e-4).", ge=0)
    prior_kl_scale: float = setting(
        1.0, "Factor on the KL weight where the world posterior is the task's prior (paper: 1).", ge=0, le=1
    )
    prior_kl_anneal_transitions: int = setting(
        0, "The factor is 1 up to this many transitions of a task, then falls as one over their number.", ge=0
    )
    reward_weight: float = setting(1.0, "Weight of the reward in the likelihood (released code: 5).", gt=0)
    prior_scale: float = setting(
        0.5, "Standard deviation of weights under the fixed prior, which the world posterior has (released: 0.5).", gt=0
    )


class Batch(NamedTuple):
    """Rows in the units of the normaliser."""

    inputs: jax.Array  # [B, O + A]
    targets: jax.Array  # [B, 1 + O]
    counts: jax.Array | None = None  # [B] 1 for a row that counts, 0 for one that only fills up; None: all count
    tasks: jax.Array | None = None  # [B] the task of each row, where a latent of its task is learned

    def filled(self, size: int) -> Batch:
        """The same rows, and as many that do not count as it takes to have `size`."""
        rows = self.inputs.shape[0]
        more = ((0, size - rows), (0, 0))
        counts = jnp.pad(jnp.ones(rows), (0, size - rows))
        tasks = None if self.tasks is None else jnp.pad(self.tasks, (0, size - rows))
        return Batch(jnp.pad(self.inputs, more), jnp.pad(self.targets, more), counts, tasks)


class Loss(NamedTuple):
    """A loss and its parts, for the record."""

    loss: jax.Array
    log_likelihood: jax.Array  # mean over the batch
    kl: jax.Array


class Learning(NamedTuple):
    """A posterior and its optimiser."""

    posterior: Posterior
    optimiser: optax.OptState


class Fit(NamedTuple):
    """One posterior to be learned, and from what."""

    key: jax.Array
    start: Learning
    prior: Posterior
    draw_batch: Callable[[jax.Array], Batch]
    learning_rate: float
    noise: float | jax.Array  # factor on the spread; 0 is a plain network
    kl_weight: float | jax.Array  # of the KL term beside the mean log-likelihood
    latent_weight: jax.Array | None = None  # [K] weight of each latent's KL, where latents are learned


# (key, posterior, prior, batch, noise, KL weight, weight of latents' KL) -> the loss's gradient, and the loss
Gradient = Callable[
    [jax.Array, Posterior, Posterior, Batch, float | jax.Array, jax.Array, jax.Array | None], tuple[Posterior, Loss]
]


def begin(q: Posterior) -> Learning:
    """A posterior with a fresh optimiser."""
    return Learning(q, optax.scale_by_adam().init(q))  # pyright: ignore[reportArgumentType]


def log_likelihood(prediction: Prediction, targets: jax.Array, reward_weight: float) -> jax.Array:
    """[B] Gaussian log density of targets [B, 1 + O], summed over dimensions, the reward's part weighted."""
    error = (targets - prediction.mean) ** 2 * jnp.exp(-prediction.log_variance)
    density = -0.5 * (error + prediction.log_variance + jnp.log(2.0 * jnp.pi))
    return reward_weight * density[..., 0] + density[..., 1:].sum(axis=-1)


def local_forward(
    key: jax.Array, q: Posterior, inputs: jax.Array, settings: NetworkSettings, noise: float | jax.Array
) -> Prediction:
    """A prediction with layer outputs drawn: mean x W + b, variance x^2 W_var + b_var, for every row by itself."""
    activation = ACTIVATIONS[settings.activation]
    keys = jax.random.split(key, len(q.mean))
    last = len(q.mean) - 1
    for number, (k, mean) in enumerate(zip(keys, q.mean, strict=True)):
        outputs = inputs @ mean.weight + mean.bias[None]
        if not posterior.is_plain(noise):
            rho = q.rho[number]
            variance = inputs**2 @ jax.nn.softplus(rho.weight) ** 2 + jax.nn.softplus(rho.bias[None]) ** 2
            outputs = outputs + noise * jnp.sqrt(variance) * jax.random.normal(k, variance.shape)
        inputs = outputs if number == last else activation(outputs)
    return dynamics.gaussian(inputs, settings)


def loss(
    key: jax.Array,
    q: Posterior,
    prior: Posterior,
    batch: Batch,
    network: NetworkSettings,
    settings: LearnerSettings,
    noise: float | jax.Array,
    kl_weight: float | jax.Array = 1.0,
    latent_weight: jax.Array | None = None,
) -> tuple[jax.Array, Loss]:
    """Negative ELBO of one batch by one Monte Carlo sample.

    With `noise` 0 a member is a plain network, and its KL what is left of it: the pull to its prior's mean. Latents are
    drawn for every row by itself.
    """
    (sample_key,) = jax.random.split(key, 1)
    inputs = batch.inputs
    if q.latents is not None and batch.tasks is not None:
        drawn = jax.random.normal(jax.random.fold_in(key, 1), (inputs.shape[0], q.latents.mean.shape[1]))
        z = q.latents.mean[batch.tasks] + jax.nn.softplus(q.latents.rho)[batch.tasks] * drawn
        inputs = jnp.concatenate([inputs, z], axis=-1)
    prediction = local_forward(sample_key, q, inputs, network, noise)
    density = log_likelihood(prediction, batch.targets, settings.reward_weight)
    fitted = density.mean() if batch.counts is None else (density * batch.counts).sum() / batch.counts.sum()
    divergence = posterior.kl(q, prior, noise)
    total = kl_weight * divergence - fitted
    if q.latents is not None and latent_weight is not None:
        total = total + (latent_weight * posterior.latent_kl(q.latents)).sum()
    return total, Loss(total, fitted, divergence)


def gradient(network: NetworkSettings, settings: LearnerSettings) -> Gradient:
    """The gradient of `loss` by automatic differentiation."""

    def of(
        key: jax.Array,
        q: Posterior,
        prior: Posterior,
        batch: Batch,
        noise: float | jax.Array,
        kl_weight: jax.Array,
        latent_weight: jax.Array | None,
    ) -> tuple[Posterior, Loss]:
        def of_q(q: Posterior) -> tuple[jax.Array, Loss]:
            return loss(key, q, prior, batch, network, settings, noise, kl_weight, latent_weight)

        return jax.grad(of_q, has_aux=True)(q)

    return of


def fit(fits: Sequence[Fit], steps: int, gradient: Gradient) -> list[tuple[Learning, Loss]]:
    """`steps` Adam steps of several posteriors in one scan, each on batches of its own.

    They know nothing of each other: it is as if they were learned one after the other, only that a GPU, which waits
    for small products more than it works on them, does it in little more than the time of one. Smaller batches are
    filled up with rows that do not count. The losses are means over the last tenth of the steps.
    """
    adam = optax.scale_by_adam()
    rates, scales = jnp.array([fit.learning_rate for fit in fits]), jnp.array([fit.kl_weight for fit in fits])
    plain = all(posterior.is_plain(fit.noise) for fit in fits)
    noises = jnp.array([fit.noise for fit in fits])
    prior, weights = _stack([fit.prior for fit in fits]), _stack([fit.latent_weight for fit in fits])

    def one(
        key: jax.Array,
        learning: Learning,
        towards: Posterior,
        batch: Batch,
        rate: jax.Array,
        noise: jax.Array,
        scale: jax.Array,
        weight: jax.Array | None,
    ) -> tuple[Learning, Loss]:
        rising, parts = gradient(key, learning.posterior, towards, batch, 0.0 if plain else noise, scale, weight)
        change, optimiser = adam.update(rising, learning.optimiser)  # pyright: ignore[reportArgumentType]
        moved = _moved(learning.posterior, cast(Posterior, change), rate)
        return Learning(moved, optimiser), parts

    def draw(keys: jax.Array) -> tuple[Batch, jax.Array]:
        """What one step of all posteriors needs at random."""
        pairs = [jax.random.split(key) for key in keys]
        batches = [fit.draw_batch(pair[0]) for fit, pair in zip(fits, pairs, strict=True)]
        size = max(batch.inputs.shape[0] for batch in batches)
        if any(batch.inputs.shape[0] < size for batch in batches):
            batches = [batch.filled(size) for batch in batches]
        return _stack(batches), jnp.stack([pair[1] for pair in pairs])

    def step(learning: Learning, drawn: tuple[Batch, jax.Array]) -> tuple[Learning, Loss]:
        batches, each = drawn
        return jax.vmap(one)(each, learning, prior, batches, rates, noises, scales, weights)

    keys = jnp.stack([jax.random.split(fit.key, steps) for fit in fits], axis=1)
    start = _stack([fit.start for fit in fits])
    learned, parts = chunked_scan.scan(step, _without_rho(start) if plain else start, draw, keys)
    learned = _with_rho(learned, start) if plain else learned
    return _unstacked(learned, _late(learned, parts, steps), len(fits))


def _without_rho(learning: Learning) -> Learning:
    """What is learned of plain networks: half as much to carry through every step."""
    return _rho_changed(learning, lambda q: q._replace(rho=()))


def _with_rho(learning: Learning, before: Learning) -> Learning:
    """The same with what was there before of the rest."""
    rest = iter(leaf for leaf in _posteriors(before))
    return _rho_changed(learning, lambda q: q._replace(rho=next(rest).rho))


def _posteriors(learning: Learning) -> list[Posterior]:
    """The posterior itself, and the trees of its shape in the optimiser, in order."""
    return [part for part in jax.tree.leaves(learning, is_leaf=_is_posterior) if _is_posterior(part)]


def _rho_changed(learning: Learning, change: Callable[[Posterior], Posterior]) -> Learning:
    return jax.tree.map(lambda part: change(part) if _is_posterior(part) else part, learning, is_leaf=_is_posterior)


def _is_posterior(part: object) -> bool:
    return isinstance(part, Posterior)


def _moved(q: Posterior, change: Posterior, rate: jax.Array) -> Posterior:
    """A step against the gradient. Latents are few and have far to go, so theirs is longer."""

    def moved(old: Tree, by: Tree, length: float) -> Tree:
        return jax.tree.map(lambda leaf, move: leaf - length * rate * move, old, by)

    latents = None if q.latents is None or change.latents is None else moved(q.latents, change.latents, LATENT_STEP)
    return Posterior(moved(q.mean, change.mean, 1.0), moved(q.rho, change.rho, 1.0), latents)


def _late(learned: Learning, parts: Loss, steps: int) -> Loss:
    """Means over the last tenth of the steps; NaN if the last step left a posterior that is not finite."""
    tail = max(1, steps // 10)
    means = jax.tree.map(lambda leaf: leaf[-tail:].mean(axis=0), parts)
    sound = [jnp.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(learned.posterior)]
    return means._replace(loss=jnp.where(jnp.stack(sound).all(axis=0), means.loss, jnp.nan))


def _unstacked(learned: Learning, parts: Loss, count: int) -> list[tuple[Learning, Loss]]:
    return [jax.tree.map(lambda leaf, m=m: leaf[m], (learned, parts)) for m in range(count)]


def _stack(trees: Sequence[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
