"""Learning a posterior: the evidence lower bound, and many gradient steps in one compiled scan.

    loss(q) = kl_weight KL(q || p) - E_q[log p(reward, state change | s, a, w)]                          (paper, Eq. 9)

The expectation is over the weights: either whole networks are drawn (`weights`), or the layers' outputs, which given
the inputs are Gaussian too (`local`, the local reparameterisation: each row has noise of its own, so gradients vary
less).

Departure: the likelihood is a mean over the batch and the KL is weighted by `kl_weight` (paper: 1e-4), as in the
authors' code; a true bound would weigh it by one over the number of transitions. Where the world posterior is the prior
the weight can be less (`inherited_kl`, `inherited_rows`; 1 in the paper), or the prior wider (`inherited_hold`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from posterity.kernels import common as kernels
from posterity.models import ahead, fitting, network, posterior
from posterity.kernels.elbo import Form
from posterity.models.mlp import ACTIVATIONS, NetworkSettings, Prediction
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
    inherited_kl: float = setting(
        1.0, "Factor on that weight where the world posterior is the prior (paper: 1).", ge=0, le=1
    )
    inherited_rows: int = setting(
        0, "Transitions of a task up to which that factor is 1; from there it falls as one over them, to it.", ge=0
    )
    inherited_hold: Literal["lighter", "wider"] = setting(
        "lighter",
        "What that factor does: weigh the KL less; or widen the prior, which lets go of means as far, not of spreads.",
    )
    reward_weight: float = setting(1.0, "Weight of the reward's likelihood (released code: 5).", gt=0)
    together: Literal["auto", "on", "off"] = setting(
        "auto", "Fit both posteriors in one scan, if their steps are as many: auto (on a GPU), on or off."
    )
    fused: Literal["auto", "on", "off"] = setting(
        "auto",
        "A step's gradient in one GPU kernel: auto (on NVIDIA GPUs), on (without one: interpreted, slowly) or off.",
    )
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
    counts: jax.Array | None = None  # [B] 1 for a row that counts, 0 for one that only fills up; None: all count

    def filled(self, size: int) -> Batch:
        """The same rows and as many as `size` asks for that do not count."""
        rows = self.inputs.shape[0]
        more = ((0, size - rows), (0, 0))
        return Batch(jnp.pad(self.inputs, more), jnp.pad(self.targets, more), jnp.pad(jnp.ones(rows), (0, size - rows)))


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
    noise: float | jax.Array,
    kl_factor: float | jax.Array = 1.0,
) -> tuple[jax.Array, Loss]:
    """Negative ELBO of one batch. A `noise` of 0 is a plain network, fitted by likelihood alone."""

    def draw(k: jax.Array) -> jax.Array:
        if settings.reparameterisation == "local":
            prediction = local_forward(k, q, batch.inputs, shape, noise)
        else:
            prediction = network.forward(posterior.sample(k, q, noise), batch.inputs, shape)
        density = log_likelihood(prediction, batch.targets, settings.reward_weight)
        if batch.counts is None:
            return density.mean()
        return (density * batch.counts).sum() / batch.counts.sum()

    fitted = jax.vmap(draw)(jax.random.split(key, settings.samples)).mean()
    divergence = jnp.where(noise > 0, posterior.kl(q, prior), 0.0)
    total = kl_factor * settings.kl_weight * divergence - fitted
    return total, Loss(total, fitted, divergence)


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
    rate: float
    noise: float
    kl_factor: float | jax.Array = 1.0  # on the settings' weight


def fit_all(
    fits: Sequence[Fit], steps: int, shape: NetworkSettings, settings: LearnerSettings
) -> list[tuple[Learning, Loss]]:
    """`steps` Adam steps of several posteriors in one scan, each on batches of its own.

    They know nothing of each other: it is as if they were learned one after the other, only that a GPU, which waits
    for small products more than it works on them, does it in little more than the time of one. Smaller batches are
    filled up with rows that do not count. The losses are means over the last tenth of the steps.
    """
    exact = jax.config.jax_default_matmul_precision == "float32"  # pyright: ignore[reportAttributeAccessIssue]
    form = fitting.form_of(fits[0].start.posterior.mean)
    if not why_plain(shape, settings, form.inputs, form.outputs, exact):
        return _by_sheets(fits, steps, form, shape, settings, exact)
    return _scanned(fits, steps, partial(_one_step, shape, settings))


def _one_step(
    shape: NetworkSettings,
    settings: LearnerSettings,
    key: jax.Array,
    learning: Learning,
    towards: Posterior,
    batch: Batch,
    noise: jax.Array,
    factor: jax.Array,
) -> tuple[Posterior, Loss]:
    """The gradient of the loss by automatic differentiation, and the loss."""
    gradient_of = jax.grad(lambda q: loss(key, q, towards, batch, shape, settings, noise, factor), has_aux=True)
    return gradient_of(learning.posterior)


def _scanned(fits: Sequence[Fit], steps: int, gradient: Callable[..., tuple[Posterior, Loss]]) -> list[Any]:
    """The scan of `fit_all`, whatever the gradient comes from."""
    adam = optax.scale_by_adam()
    rates, noises = jnp.array([fit.rate for fit in fits]), jnp.array([fit.noise for fit in fits])
    factors = jnp.array([fit.kl_factor for fit in fits])
    prior = _stack([fit.prior for fit in fits])

    def one(
        key: jax.Array,
        learning: Learning,
        towards: Posterior,
        batch: Batch,
        rate: jax.Array,
        noise: jax.Array,
        factor: jax.Array,
    ) -> tuple[Learning, Loss]:
        rising, parts = gradient(key, learning, towards, batch, noise, factor)
        change, optimiser = adam.update(rising, learning.optimiser)  # pyright: ignore[reportArgumentType]
        moved = jax.tree.map(lambda old, move: old - rate * move, learning.posterior, change)
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
        return jax.vmap(one)(each, learning, prior, batches, rates, noises, factors)

    keys = jnp.stack([jax.random.split(fit.key, steps) for fit in fits], axis=1)
    learned, parts = ahead.scan(step, _stack([fit.start for fit in fits]), draw, keys)
    tail = max(1, steps // 10)
    means = jax.tree.map(lambda leaf: leaf[-tail:].mean(axis=0), parts)
    sound = [jnp.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(learned.posterior)]
    means = means._replace(total=jnp.where(jnp.stack(sound).all(axis=0), means.total, jnp.nan))  # the last step counts
    return [jax.tree.map(lambda leaf, m=m: leaf[m], (learned, means)) for m in range(len(fits))]


def why_plain(shape: NetworkSettings, settings: LearnerSettings, inputs: int, outputs: int, exact: bool = False) -> str:
    """Why gradients are left to the compiler, or nothing: then the kernel has them. `exact`: products in float32."""
    if settings.fused == "off":
        return "learner.fused is off"
    if settings.fused == "auto" and not kernels.nvidia():
        return "there is no NVIDIA GPU"
    if settings.reparameterisation != "local" or settings.samples != 1:
        return "the fused fit draws layer outputs, once a step"
    return fitting.why_plain(shape, inputs, outputs, exact)


def _by_sheets(
    fits: Sequence[Fit], steps: int, form: Form, shape: NetworkSettings, settings: LearnerSettings, exact: bool
) -> list[tuple[Learning, Loss]]:
    """`fit_all` with gradients from the kernel: posteriors, priors and optimisers are sheets as long as it lasts."""

    def on(tree: Posterior) -> Any:
        return Posterior(fitting.laid(tree.mean, form), fitting.laid(tree.rho, form))  # pyright: ignore[reportArgumentType]

    def off(tree: Any) -> Posterior:
        return Posterior(fitting.taken(tree.mean, form), fitting.taken(tree.rho, form))

    def moments(change: Callable[[Any], Any], optimiser: Any) -> Any:
        return optimiser._replace(mu=change(optimiser.mu), nu=change(optimiser.nu))

    def gradient(
        key: jax.Array, learning: Learning, towards: Posterior, batch: Batch, noise: jax.Array, factor: jax.Array
    ) -> tuple[Posterior, Loss]:
        sheet: Any = learning.posterior
        scale = jax.nn.softplus(sheet.rho)
        counts = jnp.ones(batch.inputs.shape[0]) if batch.counts is None else batch.counts
        found = fitting.gradients(
            jax.random.key_data(key),
            sheet.mean,
            scale**2,
            batch.inputs,
            batch.targets,
            counts / counts.sum(),
            noise,
            form,
            shape,
            settings.reward_weight,
            exact=exact,
            interpret=not kernels.nvidia(),
        )
        divergence, pull = jax.value_and_grad(posterior.kl)(sheet, towards)
        weight = jnp.where(noise > 0, factor * settings.kl_weight, 0.0)
        of_rho = found.variance * 2.0 * scale * jax.nn.sigmoid(sheet.rho)
        rising: Any = (found.mean + weight * pull.mean, of_rho + weight * pull.rho)
        total = weight * divergence - found.log_likelihood
        return Posterior(*rising), Loss(total, found.log_likelihood, jnp.where(noise > 0, divergence, 0.0))

    sheets = [
        fit._replace(
            start=Learning(on(fit.start.posterior), moments(on, fit.start.optimiser)),
            prior=on(fit.prior),
        )
        for fit in fits
    ]
    return [
        (Learning(off(learned.posterior), moments(off, learned.optimiser)), parts)
        for learned, parts in _scanned(sheets, steps, gradient)
    ]


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
    """One posterior by itself."""
    return fit_all([Fit(key, start, prior, draw_batch, rate, noise)], steps, shape, settings)[0]


def begin(q: Posterior) -> Learning:
    """A posterior with a fresh optimiser."""
    return Learning(q, optax.scale_by_adam().init(q))  # pyright: ignore[reportArgumentType]


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
