"""A network with normalised hidden layers as GPU kernels: the twin of `mlp.apply` with ReLU and `normalise`.

    y = x W + b,        z = (y - mean y) r,   r = (var y + 1e-6)^-1/2,        x' = max(z, 0)
    dy = r (dz - mean dz - z mean(z dz)),     dW = x' dy,   db = sum dy,      dx = dy W'        (means over units)

Actors and critics take thousands of gradient steps after every iteration, each on a hundred rows. Left to the compiler
one step is some fifty small programs, and a GPU waits for programs more than it works on them. Here going forward is
one program, going back another, and a squared error with its gradient a third. Each block of rows has its own copy of
the gradients; they are summed outside, where Adam takes them. Going back computes the hidden layers again, which is
quicker than reading them.

A network is a sheet with one head (`layout.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jax.experimental import pallas as pl

from posterity.kernels import common
from posterity.kernels.common import Mode, Ref
from posterity.kernels.layout import ParamLayout

BLOCK = 32  # rows of a batch in one program
WARPS = 4  # in a program
UNITS = (16, 32, 64, 128)  # a layer may have; with 256 registers run out, and the compiler's programs are quicker
EPSILON = 1e-6  # as `mlp.layer_norm` has it

Apply = Callable[[jax.Array, jax.Array], jax.Array]  # outputs [..., outputs] of a sheet [R, H] for inputs [..., inputs]
Error = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # sheet [R, H], inputs [B, inputs], targets [B] -> []


def fallback_reason(mode: Mode, hidden: tuple[int, ...], inputs: int, outputs: int, exact: bool) -> str:
    """Why networks are left to the compiler, or nothing: then these kernels have them. `exact`: products in float32."""
    units, gpu = hidden[0] if hidden else 0, common.nvidia()
    reasons = (
        (gpu and exact, "has no products in float32 on a GPU"),
        (gpu and common.capability() < (8, 0), "needs an Ampere GPU or a later one"),
        (not hidden or set(hidden) != {units}, "needs hidden layers of one size"),
        (units not in UNITS, f"needs {', '.join(map(str, UNITS))} units a layer, not {units}"),
        (
            common.padded(outputs) > units or common.padded(inputs) > 128,
            f"has no room for {inputs} inputs and {outputs} outputs",
        ),
    )
    return common.fallback_reason(mode) or next(
        (f"the fused actor-critic {reason}" for holds, reason in reasons if holds), ""
    )


def make_apply(layout: ParamLayout, interpret: bool = False) -> Apply:
    """The network of this layout as a function that can be differentiated, for what is asked and no more.

    Products are in tf32 on a GPU. `interpret`: without one, slowly and in float32.
    """
    call = _Call(layout, interpret)

    @jax.custom_vjp
    def rows(sheet: jax.Array, x: jax.Array) -> jax.Array:
        return call.forward(sheet, x)

    def forward(sheet: CustomVJPPrimal, x: CustomVJPPrimal) -> tuple[jax.Array, _Kept]:
        kept = _Kept(sheet.value, x.value, () if sheet.perturbed else None, () if x.perturbed else None)
        return call.forward(sheet.value, x.value), kept

    def backward(kept: _Kept, rising: jax.Array | SymbolicZero) -> tuple[jax.Array | None, jax.Array | None]:
        if isinstance(rising, SymbolicZero):
            return None, None
        return call.backward(kept, rising)

    rows.defvjp(forward, backward, symbolic_zeros=True)

    def apply(sheet: jax.Array, x: jax.Array) -> jax.Array:
        return rows(sheet, x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], layout.outputs)

    return apply


def make_error(layout: ParamLayout, interpret: bool = False) -> Error:
    """The mean square error of the network's first output. It can be differentiated by the sheet alone."""
    call = _Call(layout, interpret)

    @jax.custom_vjp
    def error(sheet: jax.Array, x: jax.Array, targets: jax.Array) -> jax.Array:
        return call.error(sheet, x, targets)[0]

    def forward(sheet: jax.Array, x: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        return call.error(sheet, x, targets)  # the gradient is there at once

    def backward(gradient: jax.Array, rising: jax.Array) -> tuple[jax.Array, None, None]:
        return rising * gradient, None, None

    error.defvjp(forward, backward)
    return lambda sheet, x, targets: error(sheet, lax.stop_gradient(x), lax.stop_gradient(targets))


class _Kept(NamedTuple):
    """What going back needs, and for which arguments it is wanted."""

    sheet: jax.Array  # [R, H]
    x: jax.Array  # [B, inputs]
    of_sheet: tuple[()] | None
    of_x: tuple[()] | None


class _Call(NamedTuple):
    """The kernels on whole batches."""

    layout: ParamLayout
    interpret: bool

    def forward(self, sheet: jax.Array, x: jax.Array) -> jax.Array:
        """[B, outputs] for inputs [B, inputs]."""
        count, layout = x.shape[0], self.layout
        x = _grown(x, layout.wide)
        [found] = self._run(_forward, "network_forward", (sheet, x), [_rows(x.shape[0], layout.heads)])
        return found[:count, : layout.outputs]

    def backward(self, kept: _Kept, rising: jax.Array) -> tuple[jax.Array | None, jax.Array | None]:
        """The gradients [R, H] of the sheet and [B, inputs] of the inputs, for gradients [B, outputs]."""
        count, layout = kept.x.shape[0], self.layout
        x, rising = _grown(kept.x, layout.wide), _grown(rising, layout.heads)
        wanted = kept.of_sheet is not None, kept.of_x is not None
        shapes = [self._sheets(x), _rows(x.shape[0], layout.wide)]
        outputs = [shape for shape, asked in zip(shapes, wanted, strict=True) if asked]
        kernel = partial(_backward, wanted=wanted)
        found = list(self._run(kernel, "network_backward", (kept.sheet, x, rising), outputs))
        of_sheet = _total(found.pop(0)) if wanted[0] else None
        return of_sheet, found.pop(0)[:count, : layout.inputs] if wanted[1] else None

    def error(self, sheet: jax.Array, x: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The mean square error [] of the first output, and its gradient [R, H]."""
        count, layout = x.shape[0], self.layout
        x, told = _grown(x, layout.wide), _grown(jnp.stack([targets, jnp.full(count, 1.0 / count)], axis=1), 2)
        shapes = [self._sheets(x), _rows(x.shape[0], layout.heads)]
        of_sheet, squared = self._run(_error, "network_error", (sheet, x, told), shapes)
        return squared[:, 0].sum(), _total(of_sheet)

    def _sheets(self, x: jax.Array) -> jax.ShapeDtypeStruct:
        """Gradients of each block of rows."""
        return jax.ShapeDtypeStruct((x.shape[0] // BLOCK, self.layout.rows, self.layout.units), jnp.float32)

    def _run(
        self,
        kernel: Callable[..., None],
        name: str,
        args: tuple[jax.Array, ...],
        shapes: list[jax.ShapeDtypeStruct],
    ) -> list[jax.Array]:
        """One program for each block of rows. The sheet is seen whole."""
        sheet, *rows = args
        whole = pl.BlockSpec(sheet.shape, lambda n: (0, 0))
        return pl.pallas_call(
            partial(kernel, layout=self.layout),
            grid=(rows[0].shape[0] // BLOCK,),
            in_specs=[whole, *(_part(one) for one in rows)],
            out_specs=[_part(one) for one in shapes],
            out_shape=shapes,
            compiler_params=common.triton().CompilerParams(num_warps=WARPS, num_stages=1),
            interpret=self.interpret,
            name=name,
        )(*args)


def _part(array: jax.Array | jax.ShapeDtypeStruct) -> pl.BlockSpec:
    """What block n sees: its rows of an array [B, W], or its own of [blocks, R, H]."""
    if len(array.shape) == 3:
        return pl.BlockSpec((None, *array.shape[1:]), lambda n: (n, 0, 0))
    return pl.BlockSpec((BLOCK, array.shape[1]), lambda n: (n, 0))


def _rows(count: int, width: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count, width), jnp.float32)


def _grown(rows: jax.Array, width: int) -> jax.Array:
    """Zeros added to whole blocks of rows of this width."""
    return jnp.pad(rows, ((0, -rows.shape[0] % BLOCK), (0, width - rows.shape[1])))


def _total(parts: jax.Array) -> jax.Array:
    """The sum over blocks, as additions: the compiler takes them into the program of the optimiser."""
    total = parts[0]
    for number in range(1, parts.shape[0]):
        total += parts[number]
    return total


# Inside the kernels ------------------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """What going back through a hidden layer needs of going forward."""

    inputs: jax.Array  # [block, inputs]
    normed: jax.Array  # [block, H] z
    scale: jax.Array  # [block] r


class _Block:
    """One block of rows through the network on a sheet, and back."""

    def __init__(self, sheet: Ref, layout: ParamLayout) -> None:
        self.sheet, self.layout = sheet, layout
        self.head = pl.ds(layout.first_head, layout.heads)
        self.head_bias = layout.biases + layout.layers
        self.hidden = [pl.ds(*layout.hidden(layer)) for layer in range(layout.layers)]

    def forward(self, x: jax.Array) -> tuple[jax.Array, list[_Seen]]:
        """Outputs [block, heads], and what each hidden layer has seen."""
        passed: list[_Seen] = []
        for layer, rows in enumerate(self.hidden):
            y = _dot(x, self.sheet[rows, :], (1, 0)) + _across(self.sheet[self.layout.biases + layer, :])
            y -= self._beside(self._mean(y))
            scale = lax.rsqrt(self._mean(y * y) + EPSILON)
            passed.append(_Seen(x, y * self._beside(scale), scale))
            x = _active(passed[-1])
        bias = _across(self.sheet[self.head_bias, pl.ds(0, self.layout.heads)])
        return _dot(x, self.sheet[self.head, :], (1, 1)) + bias, passed

    def backward(self, passed: list[_Seen], g: jax.Array, gradients: Ref | None, inputs: bool) -> jax.Array | None:
        """Writes the sheet's gradients, if wanted, and returns those of the inputs, if wanted."""
        if gradients is not None:
            self._write_head(gradients, _active(passed[-1]), g)
        g = _dot(g, self.sheet[self.head, :], (1, 0))
        for layer, rows in reversed(list(enumerate(self.hidden))):
            x, z, scale = passed[layer]
            dz = jnp.where(z > 0.0, g, 0.0)
            dy = self._beside(scale) * (dz - self._beside(self._mean(dz)) - z * self._beside(self._mean(z * dz)))
            if gradients is not None:
                gradients[rows, :] = _dot(x, dy, (0, 0))
                gradients[self.layout.biases + layer, :] = dy.sum(axis=0)
            if layer > 0 or inputs:
                g = _dot(dy, self.sheet[rows, :], (1, 1))
        return g if inputs else None

    def _write_head(self, gradients: Ref, x: jax.Array, g: jax.Array) -> None:
        gradients[self.head, :] = _dot(g, x, (0, 0))
        size = self.layout.heads
        gradients[self.head_bias, pl.ds(0, size)] = g.sum(axis=0)
        while size < self.layout.units:  # behind the head's biases there is nothing
            gradients[self.head_bias, pl.ds(size, size)] = jnp.zeros(size, jnp.float32)
            size *= 2

    def _mean(self, rows: jax.Array) -> jax.Array:
        """[block] over all units."""
        return rows.sum(axis=1) * (1.0 / self.layout.units)

    def _beside(self, rows: jax.Array) -> jax.Array:
        """[block] as every column of a layer's values."""
        return lax.broadcast_in_dim(rows, (BLOCK, self.layout.units), (0,))


def _forward(sheet: Ref, x: Ref, out: Ref, *, layout: ParamLayout) -> None:
    """One block of rows forward."""
    out[...] = _Block(sheet, layout).forward(x[...])[0]


def _backward(sheet: Ref, x: Ref, rising: Ref, *outs: Ref, layout: ParamLayout, wanted: tuple[bool, bool]) -> None:
    """One block of rows forward and back."""
    block = _Block(sheet, layout)
    _, passed = block.forward(x[...])
    found = block.backward(passed, rising[...], outs[0] if wanted[0] else None, wanted[1])
    if found is not None:
        outs[-1][...] = found


def _error(sheet: Ref, x: Ref, told: Ref, gradients: Ref, out: Ref, *, layout: ParamLayout) -> None:
    """One block of rows forward, its squared errors by `told` (targets, and what each row counts for), and back."""
    block, shape = _Block(sheet, layout), (BLOCK, layout.heads)
    outputs, passed = block.forward(x[...])
    target, share = (lax.broadcast_in_dim(told[:, column], shape, (0,)) for column in (0, 1))
    first = lax.broadcasted_iota(jnp.int32, shape, 1) == 0
    error = jnp.where(first, outputs - target, 0.0)
    out[...] = share * error * error
    block.backward(passed, 2.0 * share * error, gradients, inputs=False)


def _dot(a: jax.Array, b: jax.Array, over: tuple[int, int]) -> jax.Array:
    """A product over axis over[0] of `a` and over[1] of `b`."""
    return lax.dot_general(a, b, (((over[0],), (over[1],)), ((), ())), preferred_element_type=jnp.float32)


def _active(seen: _Seen) -> jax.Array:
    return jnp.where(seen.normed <= 0.0, 0.0, seen.normed)  # a NaN stays one


def _across(row: jax.Array) -> jax.Array:
    """[W] as every row of a block."""
    return lax.broadcast_in_dim(row, (BLOCK, row.shape[0]), (1,))
