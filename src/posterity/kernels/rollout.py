"""Imagined returns as one GPU kernel: a block of candidates walks through a whole rollout without leaving the chip.

One program takes one particle and one block of candidates. It loads the particle's weights once, then goes through all
T steps: layers, output noise, next state, termination, return. Only actions come in and only returns go out.

Everything a step needs is a tile [block, K]. Its columns are state 0..O-1, action O..O+A-1, reward O+A, then padding:

    input  = state tile + action tile (each is zero where the other is not)          one product, no concatenation
    output = activations @ mean weights + noise                                      column j is the change of column j

so the step is elementwise. `folding.py` pads, cuts and folds what does not depend on the step.

Noise comes of one hash of (seed, particle, candidate, step, column): `kernels.py`.

A NaN stays one: min and max would drop it on the GPU, so comparisons and selections are used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from posterity.kernels import common as kernels
from posterity.kernels.common import LOG2E
from posterity.planning import folding
from posterity.kernels.weights import GAINS, Layer, Precision
from posterity.planning.rollout import Box, Final


def imagined_returns(
    key_words: jax.Array,
    networks: Sequence[tuple[jax.Array, jax.Array]],
    units: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
    obs: jax.Array,
    candidates: jax.Array,
    alive: Box | None,
    **options: Any,
) -> jax.Array:
    """[P, N] undiscounted return of each candidate [N, T, A] for each particle. The options are those of `ready`."""
    return ready(networks, units, obs, alive, **options)(key_words, candidates)


def ready(
    networks: Sequence[tuple[jax.Array, jax.Array]],
    units: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
    obs: jax.Array,
    alive: Box | None,
    *,
    activation: str,
    log_variance_low: float,
    log_variance_high: float,
    sample: bool,
    precision: Precision = "bf16",
    block: int = 64,
    warps: int = 4,
    stages: int = 1,
    extras: tuple[str, ...] = (),
    interpret: bool = False,
    final: Final | None = None,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """A function (key words [2], candidates [N, T, A]) -> returns [P, N], with the weights folded once for all calls.

    Args:
        networks: (weight [P, in, out], bias [P, out]) of each layer; the last gives 1 + O means, then as many raw
            log-variances, the reward first.
        units: input mean [O + A], input scale [O + A], target mean [1 + O], target scale [1 + O].
        obs: [O] where all rollouts begin.
        alive: box (low [O], high [O]) outside which a rollout has ended, or None.
        activation: of the hidden layers: elu, silu, tanh or relu.
        log_variance_low: soft lower bound of the log-variance.
        log_variance_high: soft upper bound of the log-variance.
        sample: draw each step from the predicted Gaussian, or take its mean.
        precision: of the products; sums, state and returns are float32.
        block: candidates in a program; a power of two, 16 or more.
        warps: in a program.
        stages: of software pipelining.
        extras: switches for benchmarks. `no-asm`: exp2 and log2 as library calls, not as single instructions;
            `reload`: weights are read in every step; `no-noise`, `no-activation`, `no-variance`: that part is left
            out, and the answer is wrong.
        interpret: run without a GPU, slowly.
        final: the worth [P, N] of last observations [P, N, O], for rollouts that are still going; then these leave
            the chip too.

    The key words are 32 bits each, as `jax.random.key_data` gives. `vmap` over lanes adds a dimension to the grid.
    """
    obs_dim, action_dim = obs.shape[0], units[0].shape[0] - obs.shape[0]
    particles, width = networks[0][0].shape[0], folding.padded(obs_dim + action_dim + 1)
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    layers = folding.layers(networks, units, obs_dim, action_dim, GAINS[activation], log_variance_high)
    layers = jax.tree.map(lambda tile: tile.astype(dtype) if tile.ndim == 3 else tile, layers)
    columns = folding.columns(units, obs, alive, action_dim, log_variance_low, log_variance_high)
    asm = not interpret and "no-asm" not in extras
    kernel = partial(
        _rollout,
        activation=activation,
        sample=sample and "no-noise" not in extras,
        ends=alive is not None,
        obs_dim=obs_dim,
        reward_column=obs_dim + action_dim,
        precision=lax.Precision.HIGHEST if precision == "f32" else lax.Precision.DEFAULT,
        extras=extras,
        asm=asm,
    )
    mean, scale = units[0][:obs_dim], units[1][:obs_dim]

    def returns(key_words: jax.Array, candidates: jax.Array) -> jax.Array:
        count, horizon, _ = candidates.shape
        blocks = -(-count // block)
        actions = jnp.swapaxes((candidates - units[0][obs_dim:]) / units[1][obs_dim:], 0, 1)
        actions = jnp.pad(actions, ((0, 0), (0, blocks * block - count), (obs_dim, width - obs_dim - action_dim)))
        per_row = pl.BlockSpec((None, block), lambda p, n: (p, n))
        per_tile = pl.BlockSpec((None, block, width), lambda p, n: (p, n, 0))
        rows = jax.ShapeDtypeStruct((particles, blocks * block), jnp.float32)
        tiles = jax.ShapeDtypeStruct((particles, blocks * block, width), jnp.float32)
        found = pl.pallas_call(
            partial(kernel, rows=blocks * block),
            grid=(particles, blocks),
            in_specs=[
                pl.BlockSpec((2,), lambda p, n: (0,)),
                pl.BlockSpec((5, width), lambda p, n: (0, 0)),
                pl.BlockSpec((horizon, block, width), lambda p, n: (0, n, 0)),
                jax.tree.map(_of_particle, layers),
            ],
            out_specs=(per_row, per_row, per_tile)[: 1 if final is None else 3],
            out_shape=(rows, rows, tiles)[: 1 if final is None else 3],
            compiler_params=kernels.triton().CompilerParams(num_warps=warps, num_stages=stages),
            interpret=interpret,
            name="imagined_returns",
        )(lax.bitcast_convert_type(key_words, jnp.int32), columns, actions, layers)
        total = found[0][:, :count]
        if final is None:
            return total
        last = found[2][:, :count, :obs_dim] * scale + mean
        return total + jnp.where(found[1][:, :count] > 0.0, final(last), 0.0)

    return returns


def _of_particle(tile: jax.Array) -> pl.BlockSpec:
    """Program (p, n) sees particle p of a tile [P, ...]."""
    return pl.BlockSpec((None, *tile.shape[1:]), lambda p, n: (p, *(0 for _ in tile.shape[1:])))


# Inside the kernel -----------------------------------------------------------------------------------------------


def _rollout(
    key_ref: Any,
    columns_ref: Any,
    actions_ref: Any,
    layer_refs: Any,
    out_ref: Any,
    going_ref: Any = None,
    place_ref: Any = None,
    *,
    activation: str,
    sample: bool,
    ends: bool,
    obs_dim: int,
    reward_column: int,
    rows: int,
    precision: lax.Precision,
    extras: tuple[str, ...],
    asm: bool,
) -> None:
    """One particle and one block of candidates through all steps."""
    horizon, block, width = actions_ref.shape
    activate = (lambda x: x) if "no-activation" in extras else _activation(activation, asm)
    shape = (block, width)
    column = lax.broadcasted_iota(jnp.int32, shape, 1)
    row = lax.broadcasted_iota(jnp.int32, shape, 0) + pl.program_id(1) * block
    counter = row * width + column
    seeds = kernels.seeds(key_ref[0], key_ref[1], pl.program_id(0))
    begin, floor, slope, low, high = (lax.broadcast_in_dim(columns_ref[i], shape, (1,)) for i in range(5))
    loaded = None if "reload" in extras else _read(layer_refs)

    def walk(step: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        place, actions, total, going = carry
        following = actions_ref[lax.min(step + 1, horizon - 1)]  # asked for early, so that it is here when needed
        *hidden, means, raw = loaded or _read(layer_refs)
        inputs = [place + actions]
        for layer in hidden:
            inputs = [activate(outputs) for outputs in _affine(inputs, layer, precision)]
        [change] = _affine(inputs, means, precision)
        if sample:
            variance = slope
            if "no-variance" not in extras:
                [power] = _affine(inputs, raw, precision)
                variance = floor + slope / (1.0 + kernels.exp2(power, asm))
            change += kernels.noise(variance, counter + step * (rows * width), seeds, asm)
        place = place + jnp.where(column < obs_dim, change, 0.0)
        total += jnp.where(_beside(going, shape) > 0.0, change, 0.0)
        if ends:
            inside = (place > low) & (place < high)
            going = lax.reduce_min(jnp.where(inside, _beside(going, shape), 0.0), (1,))
        return place, following, total, going

    carry = (begin, actions_ref[0], jnp.zeros(shape, jnp.float32), jnp.ones(block, jnp.float32))
    place, _, total, going = lax.fori_loop(0, horizon, walk, carry)
    if going_ref is not None:
        going_ref[...], place_ref[...] = going, place
    out_ref[...] = jnp.where(column == reward_column, total, 0.0).sum(axis=1)


def _beside(rows: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """[block] as every column of the tile."""
    return lax.broadcast_in_dim(rows, shape, (0,))


def _read(refs: Any) -> Any:
    return jax.tree.map(lambda ref: ref[...], refs)


def _affine(inputs: list[jax.Array], layer: Layer, precision: lax.Precision) -> list[jax.Array]:
    """What a layer makes of tiles of inputs: tiles of outputs."""
    outputs = []
    for bias, weights in layer:
        total = lax.broadcast_in_dim(bias, (inputs[0].shape[0], bias.shape[0]), (1,))
        for tile, weight in zip(inputs, weights, strict=True):
            total += lax.dot_general(
                tile.astype(weight.dtype),
                weight,
                (((1,), (0,)), ((), ())),
                precision=precision,
                preferred_element_type=jnp.float32,
            )
        outputs.append(total)
    return outputs


def _activation(name: str, asm: bool) -> Callable[[jax.Array], jax.Array]:
    """The activation on its gain times the value, giving its gain times the result."""
    return {
        "elu": lambda x: jnp.where(x > 0.0, x, LOG2E * kernels.exp2(x, asm) - LOG2E),
        "silu": lambda x: x / (1.0 + kernels.exp2(-x, asm)),
        "tanh": jnp.tanh,
        "relu": lambda x: jnp.where(x <= 0.0, 0.0, x),
    }[name]
