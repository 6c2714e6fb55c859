"""The likelihood's gradient as one GPU kernel: forward, loss and backward of a block of rows without leaving the chip.

A gradient step is some sixty small programs when it is left to the compiler, and a GPU waits for programs more than it
works on them. Here it is one kernel and what Adam needs. The mathematics is that of `elbo.local_forward`:

    out  = x M + b + s sqrt(v) e,        v = x^2 V + c,        e ~ N(0, 1) for every row and unit
    dM   = x' g        dV = (x^2)' h        dx = g M' + 2 x (h V'),        h = g s e / (2 sqrt(v))

A posterior is a sheet [R, H]: the rows of every weight matrix below each other, the two heads turned on their side so
that all rows are H long, then a row for each bias. What pads it has the prior's own values, so nothing ever moves it.

    rows   inputs (padded) | H for each further hidden layer | means | log-variances | biases: hidden, means, log-var.

Every program takes one block of rows and writes gradients of its own; their sum is taken outside, where the KL term and
Adam are added to the same sheet.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from posterity.kernels import common as kernels
from posterity.models.mlp import Layer, NetworkSettings, Weights

ACTIVATIONS = ("elu", "tanh", "relu")  # those whose slope follows from their value
BLOCK = 32  # rows of a batch in one program; with 64 and 128 units registers run out
LOG_2PI = 1.8378770664093453


class Form(NamedTuple):
    """What a sheet has where."""

    inputs: int  # true sizes
    outputs: int
    layers: int  # hidden
    units: int  # H

    @property
    def wide(self) -> int:
        """Rows of the first layer."""
        return kernels.padded(self.inputs)

    @property
    def heads(self) -> int:
        """Rows of a head."""
        return kernels.padded(self.outputs)

    @property
    def first_head(self) -> int:
        """The row at which the means begin; the log-variances follow."""
        return self.wide + (self.layers - 1) * self.units

    @property
    def biases(self) -> int:
        """The row of the first bias."""
        return self.first_head + 2 * self.heads

    @property
    def rows(self) -> int:
        """R."""
        return self.biases + self.layers + 2

    def hidden(self, layer: int) -> tuple[int, int]:
        """The first row of a hidden layer's weights, and how many there are."""
        return (0, self.wide) if layer == 0 else (self.wide + (layer - 1) * self.units, self.units)


def form_of(weights: Weights) -> Form:
    """The sheet of networks of this shape, without leading axes."""
    return Form(weights[0].weight.shape[0], weights[-1].weight.shape[1] // 2, len(weights) - 1, weights[0].bias.size)


def why_plain(shape: NetworkSettings, inputs: int, outputs: int, exact: bool = False) -> str:
    """Why the kernel cannot do this network with products of this precision, in one line; empty if it can."""
    units = shape.hidden[0] if shape.hidden else 0
    gpu = kernels.nvidia()
    reasons = (
        (gpu and exact, "has no products in float32 on a GPU"),
        (gpu and kernels.capability() < (8, 0), "needs an Ampere GPU or a later one"),
        (
            shape.activation not in ACTIVATIONS,
            f"has no activation {shape.activation!r}; it has {', '.join(ACTIVATIONS)}",
        ),
        (not shape.hidden or set(shape.hidden) != {units}, "needs hidden layers of one size"),
        (units not in (16, 32, 64, 128), f"needs 16, 32, 64 or 128 units a layer, not {units}"),
        (
            kernels.padded(outputs) > units or kernels.padded(inputs) > 128,
            f"has no room for {inputs} inputs and {outputs} outputs",
        ),
    )
    return next((f"the fused fit {reason}" for holds, reason in reasons if holds), "")


def laid(weights: Weights, form: Form, fill: float = 0.0) -> jax.Array:
    """[R, H] weights as a sheet; `fill` where there are none."""
    *hidden, output = weights
    wide, tall = form.units, form.heads

    def grown(part: jax.Array, rows: int) -> jax.Array:
        return jnp.pad(part, ((0, rows - part.shape[0]), (0, wide - part.shape[1])), constant_values=fill)

    turned = output.weight.T  # [2 outputs, H]
    rows = [grown(layer.weight, form.hidden(number)[1]) for number, layer in enumerate(hidden)]
    rows += [grown(turned[: form.outputs], tall), grown(turned[form.outputs :], tall)]
    rows += [layer.bias[None] for layer in hidden]
    rows += [grown(part[None], 1) for part in (output.bias[: form.outputs], output.bias[form.outputs :])]
    return jnp.concatenate(rows)


def taken(sheet: jax.Array, form: Form) -> Weights:
    """The weights on a sheet [R, H]."""
    layers = []
    for number in range(form.layers):
        start, count = form.hidden(number)
        rows = form.inputs if number == 0 else count
        layers.append(Layer(sheet[start : start + rows], sheet[form.biases + number]))
    first, second = form.first_head, form.first_head + form.heads
    heads = jnp.concatenate([sheet[first : first + form.outputs], sheet[second : second + form.outputs]])
    biases = jnp.concatenate([sheet[form.biases + form.layers + head, : form.outputs] for head in (0, 1)])
    return (*layers, Layer(heads.T, biases))


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
    form: Form,
    shape: NetworkSettings,
    reward_weight: float,
    *,
    exact: bool = False,
    warps: int = 8,
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
        form: of the sheet.
        shape: of the network.
        reward_weight: of the first output's likelihood.
        exact: products in float32 instead of tf32.
        warps: in a program.
        interpret: run without a GPU, slowly.
    """
    count = inputs.shape[0]
    blocks = -(-count // BLOCK)
    more = blocks * BLOCK - count
    inputs = jnp.pad(inputs, ((0, more), (0, form.wide - form.inputs)))
    targets = jnp.pad(targets, ((0, more), (0, form.heads - form.outputs)))
    shares = jnp.pad(shares, (0, more))
    kernel = partial(
        _one_block,
        form=form,
        activation=shape.activation,
        low=shape.log_variance_low,
        high=shape.log_variance_high,
        reward_weight=reward_weight,
        precision=lax.Precision.HIGHEST if exact else lax.Precision.DEFAULT,
        asm=not interpret,
    )
    whole = pl.BlockSpec((form.rows, form.units), lambda n: (0, 0))
    part = pl.BlockSpec((None, form.rows, form.units), lambda n: (n, 0, 0))
    one = jax.ShapeDtypeStruct((blocks, form.rows, form.units), jnp.float32)
    found = pl.pallas_call(
        kernel,
        grid=(blocks,),
        in_specs=[
            pl.BlockSpec((2,), lambda n: (0,)),
            pl.BlockSpec((1,), lambda n: (0,)),
            whole,
            whole,
            pl.BlockSpec((BLOCK, form.wide), lambda n: (n, 0)),
            pl.BlockSpec((BLOCK, form.heads), lambda n: (n, 0)),
            pl.BlockSpec((BLOCK,), lambda n: (n,)),
        ],
        out_specs=(part, part, pl.BlockSpec((BLOCK,), lambda n: (n,))),
        out_shape=(one, one, jax.ShapeDtypeStruct((blocks * BLOCK,), jnp.float32)),
        compiler_params=kernels.triton().CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="likelihood_gradients",
    )(
        lax.bitcast_convert_type(words, jnp.int32),
        jnp.reshape(noise, (1,)).astype(jnp.float32),
        mean,
        variance,
        inputs,
        targets,
        shares,
    )
    return Gradients(found[0].sum(axis=0), found[1].sum(axis=0), found[2].sum())


# Inside the kernel -----------------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """What going back through a layer needs of going forward."""

    inputs: jax.Array  # x
    slope: jax.Array  # s e / (2 sqrt(v)): how much an output moves with its variance


def _one_block(
    key_ref: Any,
    noise_ref: Any,
    mean_ref: Any,
    variance_ref: Any,
    inputs_ref: Any,
    targets_ref: Any,
    shares_ref: Any,
    d_mean_ref: Any,
    d_variance_ref: Any,
    fit_ref: Any,
    *,
    form: Form,
    activation: str,
    low: float,
    high: float,
    reward_weight: float,
    precision: lax.Precision,
    asm: bool,
) -> None:
    """Forward, loss and backward for one block of rows."""
    number = pl.program_id(0)
    words = kernels.seeds(key_ref[0], key_ref[1], number)
    strength = noise_ref[0]

    def dot(a: jax.Array, b: jax.Array, over: tuple[int, int]) -> jax.Array:
        return lax.dot_general(
            a, b, (((over[0],), (over[1],)), ((), ())), precision=precision, preferred_element_type=jnp.float32
        )

    def through(x: jax.Array, rows: Any, bias: int, width: int, over: int, stream: int) -> tuple[jax.Array, _Seen]:
        """A layer's drawn outputs [block, width]. `over`: the axis of its rows on the sheet that meets x."""
        spread = dot(x * x, variance_ref[rows, :], (1, over)) + _across(variance_ref[bias, pl.ds(0, width)], BLOCK)
        place = lax.broadcasted_iota(jnp.int32, (BLOCK, width), 0) * width
        place += lax.broadcasted_iota(jnp.int32, (BLOCK, width), 1) + stream * (BLOCK * form.units)
        drawn = strength * kernels.noise(kernels.TWO_LN_2, place, words, asm) * lax.rsqrt(spread)
        outputs = dot(x, mean_ref[rows, :], (1, over)) + _across(mean_ref[bias, pl.ds(0, width)], BLOCK)
        return outputs + drawn * spread, _Seen(x, 0.5 * drawn)

    def store(rows: Any, bias: int, width: int, seen: _Seen, g: jax.Array, turned: bool) -> jax.Array:
        """Writes a layer's gradients; returns h, the gradient for its variances."""
        x, h = seen.inputs, g * seen.slope
        for ref, rising, at in ((d_mean_ref, g, x), (d_variance_ref, h, x * x)):
            ref[rows, :] = dot(rising, at, (0, 0)) if turned else dot(at, rising, (0, 0))
            ref[bias, pl.ds(0, width)] = rising.sum(axis=0)
        return h

    x = inputs_ref[...]
    hidden = [pl.ds(*form.hidden(layer)) for layer in range(form.layers)]
    passed = []
    for layer, rows in enumerate(hidden):
        outputs, seen = through(x, rows, form.biases + layer, form.units, 0, layer)
        passed.append(seen)
        x = _activate(activation, outputs, asm)

    heads = [pl.ds(form.first_head + head * form.heads, form.heads) for head in (0, 1)]
    bias = form.biases + form.layers
    means, seen_means = through(x, heads[0], bias, form.heads, 1, form.layers)
    raw, seen_raw = through(x, heads[1], bias + 1, form.heads, 1, form.layers + 1)

    column = lax.broadcasted_iota(jnp.int32, means.shape, 1)
    weight = jnp.where(column == 0, reward_weight, jnp.where(column < form.outputs, 1.0, 0.0))
    weight = weight * _beside(shares_ref[...], form.heads)
    fit, g_means, g_raw = _loss(means, raw, targets_ref[...], weight, low, high, asm)
    fit_ref[...] = fit

    h_means = store(heads[0], bias, form.heads, seen_means, g_means, turned=True)
    h_raw = store(heads[1], bias + 1, form.heads, seen_raw, g_raw, turned=True)
    g = dot(g_means, mean_ref[heads[0], :], (1, 0)) + dot(g_raw, mean_ref[heads[1], :], (1, 0))
    g += 2.0 * x * (dot(h_means, variance_ref[heads[0], :], (1, 0)) + dot(h_raw, variance_ref[heads[1], :], (1, 0)))
    size = form.heads
    while size < form.units:  # behind a head's bias there is nothing
        for row in (bias, bias + 1):
            for ref in (d_mean_ref, d_variance_ref):
                ref[row, pl.ds(size, size)] = jnp.zeros(size, jnp.float32)
        size *= 2
    for layer in reversed(range(form.layers)):
        g = g * _slope(activation, x)
        h = store(hidden[layer], form.biases + layer, form.units, passed[layer], g, turned=False)
        x = passed[layer].inputs
        if layer > 0:
            rows = hidden[layer]
            g = dot(g, mean_ref[rows, :], (1, 1)) + 2.0 * x * dot(h, variance_ref[rows, :], (1, 1))


def _loss(
    means: jax.Array, raw: jax.Array, targets: jax.Array, weight: jax.Array, low: float, high: float, asm: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The weighted log-likelihood [block] of a tile, and the gradients of minus its sum for means and raw outputs."""
    below = high - _softplus(high - raw, asm)
    log_variance = low + _softplus(below - low, asm)
    precise = kernels.exp2(-kernels.LOG2E * log_variance, asm)
    error = targets - means
    squared = error * error * precise
    fit = (-0.5 * weight * (squared + log_variance + LOG_2PI)).sum(axis=1)
    slope = _sigmoid(below - low, asm) * _sigmoid(high - raw, asm)
    return fit, -weight * error * precise, 0.5 * weight * (1.0 - squared) * slope


def _across(row: jax.Array, count: int) -> jax.Array:
    """[W] as every row of a tile."""
    return lax.broadcast_in_dim(row, (count, row.shape[0]), (1,))


def _beside(rows: jax.Array, width: int) -> jax.Array:
    """[block] as every column of a tile."""
    return lax.broadcast_in_dim(rows, (rows.shape[0], width), (0,))


def _activate(name: str, x: jax.Array, asm: bool) -> jax.Array:
    if name == "tanh":
        return jnp.tanh(x)
    if name == "relu":
        return jnp.where(x <= 0.0, 0.0, x)  # a NaN stays one
    return jnp.where(x > 0.0, x, kernels.exp2(kernels.LOG2E * x, asm) - 1.0)


def _slope(name: str, value: jax.Array) -> jax.Array:
    """Of an activation, from its value."""
    if name == "tanh":
        return 1.0 - value * value
    return jnp.where(value > 0.0, 1.0, 0.0 if name == "relu" else value + 1.0)


def _softplus(x: jax.Array, asm: bool) -> jax.Array:
    small = kernels.exp2(-kernels.LOG2E * jnp.abs(x), asm)
    return jnp.where(x > 0.0, x, 0.0) + kernels.log2(1.0 + small, asm) * (1.0 / kernels.LOG2E)


def _sigmoid(x: jax.Array, asm: bool) -> jax.Array:
    return 1.0 / (1.0 + kernels.exp2(-kernels.LOG2E * x, asm))
