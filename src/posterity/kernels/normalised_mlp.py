"""A network with normalised hidden layers as GPU kernels: the twin of `mlp.apply` with ReLU and `normalise`.

    y = x W + b,        z = (y - mean y) r,   r = (var y + 1e-6)^-1/2,        x' = max(z, 0)
    dy = r (dz - mean dz - z mean(z dz)),     dW = x' dy,   db = sum dy,      dx = dy W'        (means over units)

Actors and critics take thousands of gradient steps after every iteration, each on a hundred rows. Left to the compiler
one step is a hundred small programs, and a GPU waits for programs more than it works on them. Here going forward is one
program and going back another. Each block of rows has its own copy of the gradients; they are summed outside, where
Adam takes them. Going back computes the hidden layers again, which is quicker than reading them.

A network is a sheet with one head (`layout.py`). Hidden layers are cut into tiles of up to 128 units.
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
from posterity.kernels.elbo_block import Rows
from posterity.kernels.layout import ParamLayout

BLOCK = 32  # rows of a batch in one program
TILE = 128  # units of a hidden layer in one tile, at most
WARPS = 8  # in a program
UNITS = (16, 32, 64, 128, 256)  # a layer may have
EPSILON = 1e-6  # as `mlp.layer_norm` has it

Apply = Callable[[jax.Array, jax.Array], jax.Array]  # outputs [..., outputs] of a sheet [R, H] for inputs [..., inputs]


def fallback_reason(mode: Mode, hidden: tuple[int, ...], inputs: int, outputs: int, exact: bool) -> str:
    """Why networks are left to the compiler, or nothing: then these kernels have them. `exact`: products in float32."""
    units, gpu = hidden[0] if hidden else 0, common.nvidia()
    reasons = (
        (gpu and exact, "has no products in float32 on a GPU"),
        (gpu and common.capability() < (8, 0), "needs an Ampere GPU or a later one"),
        (not hidden or set(hidden) != {units}, "needs hidden layers of one size"),
        (units not in UNITS, f"needs {', '.join(map(str, UNITS))} units a layer, not {units}"),
        (
            common.padded(outputs) > units or common.padded(inputs) > TILE,
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


class _Kept(NamedTuple):
    """What going back needs, and for which arguments it is wanted."""

    sheet: jax.Array  # [R, H]
    x: jax.Array  # [B, inputs]
    of_sheet: tuple[()] | None
    of_x: tuple[()] | None


class _Call(NamedTuple):
    """The two kernels on whole batches."""

    layout: ParamLayout
    interpret: bool

    def forward(self, sheet: jax.Array, x: jax.Array) -> jax.Array:
        """[B, outputs] for inputs [B, inputs]."""
        count, layout = x.shape[0], self.layout
        x = _grown(x, layout.wide)
        kernel = partial(_forward, layout=layout)
        [found] = self._run(kernel, "network_forward", (sheet, x), [_rows(x.shape[0], layout.heads)])
        return found[:count, : layout.outputs]

    def backward(self, kept: _Kept, rising: jax.Array) -> tuple[jax.Array | None, jax.Array | None]:
        """The gradients [R, H] of the sheet and [B, inputs] of the inputs, for gradients [B, outputs]."""
        count, layout = kept.x.shape[0], self.layout
        x, rising = _grown(kept.x, layout.wide), _grown(rising, layout.heads)
        blocks = x.shape[0] // BLOCK
        wanted = kept.of_sheet is not None, kept.of_x is not None
        shapes = [
            jax.ShapeDtypeStruct((blocks, layout.rows, layout.units), jnp.float32),
            _rows(x.shape[0], layout.wide),
        ]
        kernel = partial(_backward, layout=layout, wanted=wanted)
        outputs = [shape for shape, asked in zip(shapes, wanted, strict=True) if asked]
        found = list(self._run(kernel, "network_backward", (kept.sheet, x, rising), outputs))
        of_sheet = _total(found.pop(0), blocks) if wanted[0] else None
        return of_sheet, found.pop(0)[:count, : layout.inputs] if wanted[1] else None

    def _run(
        self,
        kernel: Callable[..., None],
        name: str,
        args: tuple[jax.Array, ...],
        shapes: list[jax.ShapeDtypeStruct],
    ) -> list[jax.Array]:
        """One program for each block of rows. The sheet is seen whole."""
        sheet, *rows = args
        blocks = rows[0].shape[0] // BLOCK
        whole = pl.BlockSpec(sheet.shape, lambda n: (0, 0))
        return pl.pallas_call(
            kernel,
            grid=(blocks,),
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


def _total(parts: jax.Array, blocks: int) -> jax.Array:
    """The sum over blocks, as additions: the compiler takes them into the program of the optimiser."""
    total = parts[0]
    for number in range(1, blocks):
        total += parts[number]
    return total


# Inside the kernels ------------------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """What going back through a hidden layer needs of going forward."""

    inputs: list[jax.Array]  # tiles
    normed: list[jax.Array]  # z
    scale: jax.Array  # [block] r


class _Block:
    """One block of rows through the network on a sheet, and back."""

    def __init__(self, sheet: Ref, layout: ParamLayout) -> None:
        self.sheet, self.layout = sheet, layout
        self.width = min(TILE, layout.units)
        self.tiles = range(layout.units // self.width)
        self.head = pl.ds(layout.first_head, layout.heads)
        self.head_bias = layout.biases + layout.layers

    def dot(self, a: jax.Array, b: jax.Array, over: tuple[int, int]) -> jax.Array:
        """A product over axis over[0] of `a` and over[1] of `b`."""
        dims = (((over[0],), (over[1],)), ((), ()))
        return lax.dot_general(a, b, dims, preferred_element_type=jnp.float32)

    def columns(self, tile: int) -> Rows:
        """Of a tile of units."""
        return pl.ds(tile * self.width, self.width)

    def rows(self, layer: int) -> list[Rows]:
        """Of a hidden layer's weights, by tile of its inputs."""
        start, count = self.layout.hidden(layer)
        each = count if layer == 0 else self.width
        return [pl.ds(start + first, each) for first in range(0, count, each)]

    def forward(self, x: jax.Array) -> tuple[jax.Array, list[_Seen]]:
        """Outputs [block, heads], and what each hidden layer has seen."""
        passed, tiles = [], [x]
        for layer in range(self.layout.layers):
            passed.append(self._hidden(layer, tiles))
            tiles = _active(passed[-1])
        bias = self.sheet[self.head_bias, pl.ds(0, self.layout.heads)]
        total = _across(bias, BLOCK)
        for tile, part in zip(self.tiles, tiles, strict=True):
            total += self.dot(part, self.sheet[self.head, self.columns(tile)], (1, 1))
        return total, passed

    def _hidden(self, layer: int, inputs: list[jax.Array]) -> _Seen:
        rows, outputs = self.rows(layer), []
        for tile in self.tiles:
            total = _across(self.sheet[self.layout.biases + layer, self.columns(tile)], BLOCK)
            for part, place in zip(inputs, rows, strict=True):
                total += self.dot(part, self.sheet[place, self.columns(tile)], (1, 0))
            outputs.append(total)
        mean = self.mean(outputs)
        centred = [part - _beside(mean, self.width) for part in outputs]
        scale = lax.rsqrt(self.mean([part * part for part in centred]) + EPSILON)
        return _Seen(inputs, [part * _beside(scale, self.width) for part in centred], scale)

    def mean(self, tiles: list[jax.Array]) -> jax.Array:
        """[block] over all units."""
        return _plus([tile.sum(axis=1) for tile in tiles]) * (1.0 / self.layout.units)

    def backward(self, passed: list[_Seen], g: jax.Array, gradients: Ref | None, inputs: bool) -> jax.Array | None:
        """Writes the sheet's gradients, if wanted, and returns those of the inputs, if wanted."""
        if gradients is not None:
            self._write_head(gradients, _active(passed[-1]), g)
        rising = [self.dot(g, self.sheet[self.head, self.columns(tile)], (1, 0)) for tile in self.tiles]
        for layer in reversed(range(self.layout.layers)):
            seen = passed[layer]
            rising = self._back_through_norm(seen, rising)
            if gradients is not None:
                self._write(gradients, layer, seen.inputs, rising)
            if layer > 0 or inputs:
                rising = [
                    _plus(
                        [
                            self.dot(part, self.sheet[place, self.columns(tile)], (1, 1))
                            for tile, part in zip(self.tiles, rising, strict=True)
                        ]
                    )
                    for place in self.rows(layer)
                ]
        return rising[0] if inputs else None

    def _back_through_norm(self, seen: _Seen, rising: list[jax.Array]) -> list[jax.Array]:
        """From gradients of a hidden layer's values to those of its affine outputs."""
        pairs = list(zip(seen.normed, rising, strict=True))
        dz = [jnp.where(z > 0.0, g, 0.0) for z, g in pairs]
        mean = self.mean(dz)
        along = self.mean([z * d for z, d in zip(seen.normed, dz, strict=True)])
        return [
            _beside(seen.scale, self.width) * (d - _beside(mean, self.width) - z * _beside(along, self.width))
            for z, d in zip(seen.normed, dz, strict=True)
        ]

    def _write(self, gradients: Ref, layer: int, inputs: list[jax.Array], dy: list[jax.Array]) -> None:
        for tile, rising in zip(self.tiles, dy, strict=True):
            for place, part in zip(self.rows(layer), inputs, strict=True):
                gradients[place, self.columns(tile)] = self.dot(part, rising, (0, 0))
            gradients[self.layout.biases + layer, self.columns(tile)] = rising.sum(axis=0)

    def _write_head(self, gradients: Ref, inputs: list[jax.Array], g: jax.Array) -> None:
        for tile, part in zip(self.tiles, inputs, strict=True):
            gradients[self.head, self.columns(tile)] = self.dot(g, part, (0, 0))
        size = self.layout.heads
        gradients[self.head_bias, pl.ds(0, size)] = g.sum(axis=0)
        while size < self.layout.units:  # behind the head's biases there is nothing
            gradients[self.head_bias, pl.ds(size, size)] = jnp.zeros(size, jnp.float32)
            size *= 2


def _forward(sheet: Ref, x: Ref, out: Ref, *, layout: ParamLayout) -> None:
    """One block of rows forward."""
    out[...] = _Block(sheet, layout).forward(x[...])[0]


def _backward(
    sheet: Ref,
    x: Ref,
    rising: Ref,
    *outs: Ref,
    layout: ParamLayout,
    wanted: tuple[bool, bool],
) -> None:
    """One block of rows forward and back."""
    block = _Block(sheet, layout)
    _, passed = block.forward(x[...])
    found = block.backward(passed, rising[...], outs[0] if wanted[0] else None, wanted[1])
    if found is not None:
        outs[-1][...] = found


def _active(seen: _Seen) -> list[jax.Array]:
    return [jnp.where(z <= 0.0, 0.0, z) for z in seen.normed]  # a NaN stays one


def _plus(parts: list[jax.Array]) -> jax.Array:
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def _across(row: jax.Array, count: int) -> jax.Array:
    """[W] as every row of a tile."""
    return lax.broadcast_in_dim(row, (count, row.shape[0]), (1,))


def _beside(rows: jax.Array, width: int) -> jax.Array:
    """[block] as every column of a tile."""
    return lax.broadcast_in_dim(rows, (rows.shape[0], width), (0,))
