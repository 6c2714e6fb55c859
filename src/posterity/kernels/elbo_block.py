"""Inside the ELBO kernel: one block of rows through the network, the loss, and back. `elbo.py` has the mathematics."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from posterity.kernels import common
from posterity.kernels.common import Ref
from posterity.kernels.layout import ParamLayout

BLOCK = 32  # rows of a batch in one program; with 64 and 128 units registers run out
Rows: TypeAlias = slice | pl.Slice  # of a sheet
LOG_2PI = 1.8378770664093453


class _Refs(NamedTuple):
    """Sheets on the chip: what is read, and where gradients are written."""

    mean: Ref
    variance: Ref
    d_mean: Ref
    d_variance: Ref


class _Seen(NamedTuple):
    """What going back through a layer needs of going forward."""

    inputs: jax.Array  # x
    slope: jax.Array  # s e / (2 sqrt(v)): how much an output moves with its variance


class _Block:
    """One block of rows on the chip: its layers forward, and their gradients back."""

    def __init__(
        self,
        refs: _Refs,
        words: tuple[jax.Array, jax.Array],
        strength: jax.Array,
        layout: ParamLayout,
        precision: lax.Precision,
        asm: bool,
    ) -> None:
        self.refs, self.words, self.strength = refs, words, strength
        self.layout, self.precision, self.asm = layout, precision, asm

    def dot(self, a: jax.Array, b: jax.Array, over: tuple[int, int]) -> jax.Array:
        """A product over axis over[0] of `a` and over[1] of `b`."""
        dims = (((over[0],), (over[1],)), ((), ()))
        return lax.dot_general(a, b, dims, precision=self.precision, preferred_element_type=jnp.float32)

    def forward(
        self, x: jax.Array, rows: Rows, bias: int, width: int, over: int, stream: int
    ) -> tuple[jax.Array, _Seen]:
        """A layer's drawn outputs [block, width]. `over`: the axis of its rows on the sheet that meets x."""
        mean, variance = self.refs.mean, self.refs.variance
        spread = self.dot(x * x, variance[rows, :], (1, over)) + _across(variance[bias, pl.ds(0, width)], BLOCK)
        place = lax.broadcasted_iota(jnp.int32, (BLOCK, width), 0) * width
        place += lax.broadcasted_iota(jnp.int32, (BLOCK, width), 1) + stream * (BLOCK * self.layout.units)
        drawn = self.strength * common.noise(common.TWO_LN_2, place, self.words, self.asm) * lax.rsqrt(spread)
        outputs = self.dot(x, mean[rows, :], (1, over)) + _across(mean[bias, pl.ds(0, width)], BLOCK)
        return outputs + drawn * spread, _Seen(x, 0.5 * drawn)

    def store(self, rows: Rows, bias: int, width: int, seen: _Seen, g: jax.Array, turned: bool) -> jax.Array:
        """Writes a layer's gradients; returns h, the gradient for its variances."""
        x, h = seen.inputs, g * seen.slope
        for ref, rising, at in ((self.refs.d_mean, g, x), (self.refs.d_variance, h, x * x)):
            ref[rows, :] = self.dot(rising, at, (0, 0)) if turned else self.dot(at, rising, (0, 0))
            ref[bias, pl.ds(0, width)] = rising.sum(axis=0)
        return h

    def clear_padding(self, bias: int) -> None:
        """Behind the biases of the two heads there is nothing, and no gradient."""
        size = self.layout.heads
        while size < self.layout.units:
            for row in (bias, bias + 1):
                for ref in (self.refs.d_mean, self.refs.d_variance):
                    ref[row, pl.ds(size, size)] = jnp.zeros(size, jnp.float32)
            size *= 2


def one_block(
    key_ref: Ref,
    noise_ref: Ref,
    mean_ref: Ref,
    variance_ref: Ref,
    inputs_ref: Ref,
    targets_ref: Ref,
    shares_ref: Ref,
    d_mean_ref: Ref,
    d_variance_ref: Ref,
    fit_ref: Ref,
    *,
    layout: ParamLayout,
    activation: str,
    low: float,
    high: float,
    reward_weight: float,
    precision: lax.Precision,
    asm: bool,
) -> None:
    """Forward, loss and backward for one block of rows."""
    words = common.seeds(key_ref[0], key_ref[1], pl.program_id(0))
    refs = _Refs(mean_ref, variance_ref, d_mean_ref, d_variance_ref)
    block = _Block(refs, words, noise_ref[0], layout, precision, asm)
    x, passed = _through_hidden(block, inputs_ref[...], activation)

    heads = [pl.ds(layout.first_head + head * layout.heads, layout.heads) for head in (0, 1)]
    bias = layout.biases + layout.layers
    means, seen_means = block.forward(x, heads[0], bias, layout.heads, 1, layout.layers)
    raw, seen_raw = block.forward(x, heads[1], bias + 1, layout.heads, 1, layout.layers + 1)
    column = lax.broadcasted_iota(jnp.int32, means.shape, 1)
    weight = jnp.where(column == 0, reward_weight, jnp.where(column < layout.outputs, 1.0, 0.0))
    weight = weight * _beside(shares_ref[...], layout.heads)
    fit_ref[...], g_means, g_raw = _loss(means, raw, targets_ref[...], weight, low, high, asm)

    h_means = block.store(heads[0], bias, layout.heads, seen_means, g_means, turned=True)
    h_raw = block.store(heads[1], bias + 1, layout.heads, seen_raw, g_raw, turned=True)
    dot = block.dot
    g = dot(g_means, mean_ref[heads[0], :], (1, 0)) + dot(g_raw, mean_ref[heads[1], :], (1, 0))
    g += 2.0 * x * (dot(h_means, variance_ref[heads[0], :], (1, 0)) + dot(h_raw, variance_ref[heads[1], :], (1, 0)))
    block.clear_padding(bias)
    _back_through_hidden(block, x, passed, g, activation)


def _hidden_rows(layout: ParamLayout) -> list[Rows]:
    return [pl.ds(*layout.hidden(layer)) for layer in range(layout.layers)]


def _through_hidden(block: _Block, x: jax.Array, activation: str) -> tuple[jax.Array, list[_Seen]]:
    """The last hidden layer's values, and what each layer has seen."""
    layout, passed = block.layout, []
    for layer, rows in enumerate(_hidden_rows(layout)):
        outputs, seen = block.forward(x, rows, layout.biases + layer, layout.units, 0, layer)
        passed.append(seen)
        x = _activate(activation, outputs, block.asm)
    return x, passed


def _back_through_hidden(block: _Block, x: jax.Array, passed: list[_Seen], g: jax.Array, activation: str) -> None:
    """Writes the hidden layers' gradients, `g` being that of the last one's values `x`."""
    layout, hidden = block.layout, _hidden_rows(block.layout)
    for layer in reversed(range(layout.layers)):
        g = g * _slope(activation, x)
        h = block.store(hidden[layer], layout.biases + layer, layout.units, passed[layer], g, turned=False)
        x = passed[layer].inputs
        if layer > 0:
            rows = hidden[layer]
            g = block.dot(g, block.refs.mean[rows, :], (1, 1))
            g += 2.0 * x * block.dot(h, block.refs.variance[rows, :], (1, 1))


def _loss(
    means: jax.Array, raw: jax.Array, targets: jax.Array, weight: jax.Array, low: float, high: float, asm: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The weighted log-likelihood [block] of a tile, and the gradients of minus its sum for means and raw outputs."""
    below = high - _softplus(high - raw, asm)
    log_variance = low + _softplus(below - low, asm)
    precise = common.exp2(-common.LOG2E * log_variance, asm)
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
    return jnp.where(x > 0.0, x, common.exp2(common.LOG2E * x, asm) - 1.0)


def _slope(name: str, value: jax.Array) -> jax.Array:
    """Of an activation, from its value."""
    if name == "tanh":
        return 1.0 - value * value
    return jnp.where(value > 0.0, 1.0, 0.0 if name == "relu" else value + 1.0)


def _softplus(x: jax.Array, asm: bool) -> jax.Array:
    small = common.exp2(-common.LOG2E * jnp.abs(x), asm)
    return jnp.where(x > 0.0, x, 0.0) + common.log2(1.0 + small, asm) * (1.0 / common.LOG2E)


def _sigmoid(x: jax.Array, asm: bool) -> jax.Array:
    return 1.0 / (1.0 + common.exp2(-common.LOG2E * x, asm))
