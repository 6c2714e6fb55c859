"""The ELBO's gradient as one GPU kernel, the twin of `models/elbo.py`: a block of rows forward, loss and backward.

A gradient step is some sixty small programs when it is left to the compiler, and a GPU waits for programs more than it
works on them. Here it is one kernel and what Adam needs. The mathematics is that of `elbo.local_forward`:

    out  = x M + b + s sqrt(v) e,        v = x^2 V + c,        e ~ N(0, 1) for every row and unit
    dM   = x' g        dV = (x^2)' h        dx = g M' + 2 x (h V'),        h = g s e / (2 sqrt(v))

A posterior is a sheet [R, H] (`layout.py`). Every program takes one block of rows and writes gradients of its own;
their sum is taken outside, where the KL term and Adam are added to the same sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from posterity.kernels import common
from posterity.kernels import layout as sheets
from posterity.kernels.common import Mode
from posterity.kernels.elbo_block import BLOCK, one_block
from posterity.kernels.layout import ParamLayout
from posterity.models import elbo, posterior
from posterity.models.dynamics import NetworkSettings
from posterity.models.elbo import Batch, Fit, Gradient, LearnerSettings, Learning, Loss
from posterity.models.posterior import Posterior

ACTIVATIONS = ("elu", "tanh", "relu")  # those whose slope follows from their value
WARPS = 8  # in a program


def fallback_reason(mode: Mode, network: NetworkSettings, obs_dim: int, action_dim: int, exact: bool) -> str:
    """Why gradients are left to the compiler, or nothing: then this kernel has them. `exact`: products in float32."""
    return common.fallback_reason(mode) or _unsupported(network, obs_dim + action_dim, 1 + obs_dim, exact)


def _unsupported(network: NetworkSettings, inputs: int, outputs: int, exact: bool) -> str:
    """Why the kernel cannot do this network with products of this precision, in one line; empty if it can."""
    units = network.hidden[0] if network.hidden else 0
    gpu = common.nvidia()
    reasons = (
        (gpu and exact, "has no products in float32 on a GPU"),
        (gpu and common.capability() < (8, 0), "needs an Ampere GPU or a later one"),
        (
            network.activation not in ACTIVATIONS,
            f"has no activation {network.activation!r}; it has {', '.join(ACTIVATIONS)}",
        ),
        (not network.hidden or set(network.hidden) != {units}, "needs hidden layers of one size"),
        (units not in (16, 32, 64, 128), f"needs 16, 32, 64 or 128 units a layer, not {units}"),
        (
            common.padded(outputs) > units or common.padded(inputs) > 128,
            f"has no room for {inputs} inputs and {outputs} outputs",
        ),
    )
    return next((f"the fused fit {reason}" for holds, reason in reasons if holds), "")


def fit(
    fits: Sequence[Fit], steps: int, network: NetworkSettings, settings: LearnerSettings, exact: bool
) -> list[tuple[Learning, Loss]]:
    """`elbo.fit` with gradients from the kernel: posteriors, priors and optimisers are sheets as long as it lasts."""
    layout = sheets.layout_of(fits[0].start.posterior.mean)

    def pack(tree: Any) -> Any:
        mean, rho = (sheets.pack(part, layout) for part in (tree.mean, tree.rho))
        return Posterior(mean, rho)  # pyright: ignore[reportArgumentType]

    def unpack(tree: Any) -> Any:
        return Posterior(sheets.unpack(tree.mean, layout), sheets.unpack(tree.rho, layout))

    def moments(change: Callable[[Any], Any], optimiser: Any) -> Any:
        return optimiser._replace(mu=change(optimiser.mu), nu=change(optimiser.nu))

    packed = [
        fit._replace(
            start=Learning(pack(fit.start.posterior), moments(pack, fit.start.optimiser)), prior=pack(fit.prior)
        )
        for fit in fits
    ]
    return [
        (Learning(unpack(learned.posterior), moments(unpack, learned.optimiser)), parts)
        for learned, parts in elbo.fit(packed, steps, gradient(layout, network, settings, exact))
    ]


def gradient(layout: ParamLayout, network: NetworkSettings, settings: LearnerSettings, exact: bool) -> Gradient:
    """The gradient of `elbo.loss` for posteriors on sheets."""

    def of(
        key: jax.Array,
        q: Any,
        prior: Posterior,
        batch: Batch,
        noise: float | jax.Array,
        kl_weight: jax.Array,
        latent_weight: jax.Array | None,
    ) -> tuple[Posterior, Loss]:
        plain = posterior.is_plain(noise)  # then there is no rho, and the kernel's spread is multiplied by nothing
        scale = jnp.ones_like(q.mean) if plain else jax.nn.softplus(q.rho)
        counts = jnp.ones(batch.inputs.shape[0]) if batch.counts is None else batch.counts
        found = gradients(
            jax.random.key_data(key),
            q.mean,
            scale**2,
            batch.inputs,
            batch.targets,
            counts / counts.sum(),
            jnp.float32(noise),
            layout,
            network,
            settings.reward_weight,
            exact=exact,
            interpret=not common.nvidia(),
        )
        divergence, pull = jax.value_and_grad(posterior.kl)(q, prior, noise)
        rising: Any = (found.mean + kl_weight * pull.mean, ())
        if not plain:
            of_rho = found.variance * 2.0 * scale * jax.nn.sigmoid(q.rho)
            rising = (rising[0], of_rho + kl_weight * pull.rho)
        total = kl_weight * divergence - found.log_likelihood
        return Posterior(*rising), Loss(total, found.log_likelihood, divergence)

    return of


class Gradients(NamedTuple):
    """Of minus the mean log-likelihood."""

    mean: jax.Array  # [R, H]
    variance: jax.Array  # [R, H]
    log_likelihood: jax.Array  # [] the mean itself


def gradients(
    words: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    inputs: jax.Array,
    targets: jax.Array,
    shares: jax.Array,
    noise: jax.Array,
    layout: ParamLayout,
    network: NetworkSettings,
    reward_weight: float,
    *,
    exact: bool = False,
    interpret: bool = False,
) -> Gradients:
    """One draw of every layer's outputs, and what follows from it.

    Args:
        words: [2] 32 bits each, as `jax.random.key_data` gives.
        mean: [R, H] sheet of the weights' means.
        variance: [R, H] sheet of their variances.
        inputs: [B, O + A] in the units of the normaliser.
        targets: [B, 1 + O] likewise.
        shares: [B] what each row counts for; they add up to 1.
        noise: [] factor on the spread; 0 is a plain network.
        layout: of the sheet.
        network: its settings.
        reward_weight: of the first output's likelihood.
        exact: products in float32 instead of tf32.
        interpret: run without a GPU, slowly.
    """
    more = -inputs.shape[0] % BLOCK
    inputs = jnp.pad(inputs, ((0, more), (0, layout.wide - layout.inputs)))
    targets = jnp.pad(targets, ((0, more), (0, layout.heads - layout.outputs)))
    shares = jnp.pad(shares, (0, more))
    kernel = partial(
        one_block,
        layout=layout,
        activation=network.activation,
        low=network.log_variance_low,
        high=network.log_variance_high,
        reward_weight=reward_weight,
        precision=lax.Precision.HIGHEST if exact else lax.Precision.DEFAULT,
        asm=not interpret,
    )
    words = lax.bitcast_convert_type(words, jnp.int32)
    strength = jnp.reshape(noise, (1,)).astype(jnp.float32)
    found = _call(kernel, words, strength, mean, variance, inputs, targets, shares, layout, interpret)
    return Gradients(found[0].sum(axis=0), found[1].sum(axis=0), found[2].sum())


def _call(
    kernel: Callable[..., None],
    words: jax.Array,
    strength: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    inputs: jax.Array,
    targets: jax.Array,
    shares: jax.Array,
    layout: ParamLayout,
    interpret: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of each block for means and variances [blocks, R, H], and every row's part of the log-likelihood."""
    blocks = inputs.shape[0] // BLOCK
    whole = pl.BlockSpec((layout.rows, layout.units), lambda n: (0, 0))
    part = pl.BlockSpec((None, layout.rows, layout.units), lambda n: (n, 0, 0))
    one = jax.ShapeDtypeStruct((blocks, layout.rows, layout.units), jnp.float32)
    return pl.pallas_call(
        kernel,
        grid=(blocks,),
        in_specs=[
            pl.BlockSpec((2,), lambda n: (0,)),
            pl.BlockSpec((1,), lambda n: (0,)),
            whole,
            whole,
            pl.BlockSpec((BLOCK, layout.wide), lambda n: (n, 0)),
            pl.BlockSpec((BLOCK, layout.heads), lambda n: (n, 0)),
            pl.BlockSpec((BLOCK,), lambda n: (n,)),
        ],
        out_specs=(part, part, pl.BlockSpec((BLOCK,), lambda n: (n,))),
        out_shape=(one, one, jax.ShapeDtypeStruct((blocks * BLOCK,), jnp.float32)),
        compiler_params=common.triton().CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
        name="likelihood_gradients",
    )(words, strength, mean, variance, inputs, targets, shares)
