"""Imagined returns as one GPU kernel, the twin of `planning/rollout.py`.

A block of candidates walks through a whole rollout without leaving the chip. One program takes one particle and one
block of candidates. It loads the particle's weights once, then goes through all T steps: layers, output noise, next
state, termination, return. Only actions come in and only returns go out.

Everything a step needs is a tile [block, K]. Its columns are state 0..O-1, action O..O+A-1, reward O+A, then padding:

    input  = state tile + action tile (each is zero where the other is not)          one product, no concatenation
    output = activations @ mean weights + noise                                      column j is the change of column j

so the step is elementwise. `weights.py` pads, cuts and folds what does not depend on the step.

Noise comes of one hash of (seed, particle, candidate, step, column): `common.py`.

A NaN stays one: min and max would drop it on the GPU, so comparisons and selections are used instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from posterity.kernels import common, weights
from posterity.kernels.common import LOG2E, Mode, Ref
from posterity.kernels.weights import GAINS, Precision, TiledLayer
from posterity.models.dynamics import NetworkSettings
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.planning.rollout import Box, TerminalValue

Tree = TypeVar("Tree")
BLOCK = 64  # candidates in a program; a power of two, 16 or more
WARPS = 4  # in a program


def fallback_reason(mode: Mode, network: NetworkSettings, obs_dim: int, action_dim: int, precision: Precision) -> str:
    """Why the plain path imagines, or nothing: then this kernel does."""
    sizes = network.sizes(obs_dim, action_dim)
    return common.fallback_reason(mode) or weights.unsupported(sizes, network.activation, precision)


def make_fused_returns(
    networks: Layers,
    normaliser: Normaliser,
    obs: jax.Array,
    alive: Box | None,
    settings: NetworkSettings,
    *,
    sample: bool,
    precision: Precision = "bf16",
    interpret: bool = False,
    terminal_value: TerminalValue | None = None,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """A function (key words [2], candidates [N, T, A]) -> returns [P, N], with the weights folded once for all calls.

    Args:
        networks: P of them, side by side; the last layer gives 1 + O means, then as many raw log-variances.
        normaliser: of the run.
        obs: [O] where all rollouts begin.
        alive: box (low [O], high [O]) outside which a rollout has ended, or None.
        settings: of the network.
        sample: draw each step from the predicted Gaussian, or take its mean.
        precision: of the products; sums, state and returns are float32.
        interpret: run without a GPU, slowly.
        terminal_value: of the last observations [P, N, O] of rollouts that are still going; these leave the chip too.

    The key words are 32 bits each, as `jax.random.key_data` gives. `vmap` over lanes adds a dimension to the grid.
    """
    obs_dim = obs.shape[0]
    action_dim = normaliser.input_mean.shape[0] - obs_dim
    particles, width = networks[0].weight.shape[0], common.padded(obs_dim + action_dim + 1)
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    low, high = settings.log_variance_low, settings.log_variance_high
    layers = weights.layers(networks, normaliser, obs_dim, action_dim, GAINS[settings.activation], high)
    layers = jax.tree.map(lambda tile: tile.astype(dtype) if tile.ndim == 3 else tile, layers)
    columns = weights.columns(normaliser, obs, alive, action_dim, low, high)
    kernel = partial(
        _rollout,
        activation=settings.activation,
        sample=sample,
        ends=alive is not None,
        obs_dim=obs_dim,
        reward_column=obs_dim + action_dim,
        precision=lax.Precision.HIGHEST if precision == "f32" else lax.Precision.DEFAULT,
        asm=not interpret,
    )

    def returns(key_words: jax.Array, candidates: jax.Array) -> jax.Array:
        mean, scale = normaliser.input_mean[None, None], normaliser.input_scale[None, None]
        count = candidates.shape[0]
        actions = jnp.swapaxes((candidates - mean[..., obs_dim:]) / scale[..., obs_dim:], 0, 1)
        words = lax.bitcast_convert_type(key_words, jnp.int32)
        actions = _padded_actions(actions, obs_dim, width)
        found = _call(kernel, words, columns, actions, layers, particles, terminal_value is not None, interpret)
        total = found[0][:, :count]
        if terminal_value is None:
            return total
        last = found[2][:, :count, :obs_dim] * scale[..., :obs_dim] + mean[..., :obs_dim]
        return total + jnp.where(found[1][:, :count] > 0.0, terminal_value(last), 0.0)

    return returns


def _padded_actions(actions: jax.Array, obs_dim: int, width: int) -> jax.Array:
    """[T, N, A] -> [T, N rounded up to whole blocks, K], each action in its columns."""
    count, action_dim = actions.shape[1:]
    return jnp.pad(actions, ((0, 0), (0, -count % BLOCK), (obs_dim, width - obs_dim - action_dim)))


def _call(
    kernel: Callable[..., None],
    words: jax.Array,
    columns: jax.Array,
    actions: jax.Array,
    layers: tuple[TiledLayer, ...],
    particles: int,
    ends: bool,
    interpret: bool,
) -> tuple[jax.Array, ...]:
    """Returns [P, N]; with `ends` also whether rollouts are still going [P, N], and their last states [P, N, K]."""
    horizon, rows, width = actions.shape
    per_row = pl.BlockSpec((None, BLOCK), lambda p, n: (p, n))
    per_tile = pl.BlockSpec((None, BLOCK, width), lambda p, n: (p, n, 0))
    one = jax.ShapeDtypeStruct((particles, rows), jnp.float32)
    tiles = jax.ShapeDtypeStruct((particles, rows, width), jnp.float32)
    outputs = 3 if ends else 1
    return pl.pallas_call(
        partial(kernel, rows=rows),
        grid=(particles, rows // BLOCK),
        in_specs=[
            pl.BlockSpec((2,), lambda p, n: (0,)),
            pl.BlockSpec((5, width), lambda p, n: (0, 0)),
            pl.BlockSpec((horizon, BLOCK, width), lambda p, n: (0, n, 0)),
            jax.tree.map(_of_particle, layers),
        ],
        out_specs=(per_row, per_row, per_tile)[:outputs],
        out_shape=(one, one, tiles)[:outputs],
        compiler_params=common.triton().CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
        name="imagined_returns",
    )(words, columns, actions, layers)


def _of_particle(tile: jax.Array) -> pl.BlockSpec:
    """Program (p, n) sees particle p of a tile [P, ...]."""
    return pl.BlockSpec((None, *tile.shape[1:]), lambda p, n: (p, *(0 for _ in tile.shape[1:])))


# Inside the kernel -----------------------------------------------------------------------------------------------


def _rollout(
    key_ref: Ref,
    columns_ref: Ref,
    actions_ref: Ref,
    layer_refs: Ref,
    out_ref: Ref,
    going_ref: Ref = None,
    place_ref: Ref = None,
    *,
    activation: str,
    sample: bool,
    ends: bool,
    obs_dim: int,
    reward_column: int,
    rows: int,
    precision: lax.Precision,
    asm: bool,
) -> None:
    """One particle and one block of candidates through all steps."""
    horizon, block, width = actions_ref.shape
    activate = _activation(activation, asm)
    shape = (block, width)
    column = lax.broadcasted_iota(jnp.int32, shape, 1)
    row = lax.broadcasted_iota(jnp.int32, shape, 0) + pl.program_id(1) * block
    counter = row * width + column
    seeds = common.seeds(key_ref[0], key_ref[1], pl.program_id(0))
    begin, floor, slope, low, high = (lax.broadcast_in_dim(columns_ref[i], shape, (1,)) for i in range(5))
    *hidden, means, raw = _read(layer_refs)

    def walk(step: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        place, actions, total, going = carry
        following = actions_ref[lax.min(step + 1, horizon - 1)]  # asked for early, so that it is here when needed
        inputs = [place + actions]
        for layer in hidden:
            inputs = [activate(outputs) for outputs in _affine(inputs, layer, precision)]
        [change] = _affine(inputs, means, precision)
        if sample:
            [power] = _affine(inputs, raw, precision)
            variance = floor + slope / (1.0 + common.exp2(power, asm))
            change += common.noise(variance, counter + step * (rows * width), seeds, asm)
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


def _read(refs: Tree) -> Tree:
    return jax.tree.map(lambda ref: ref[...], refs)


def _affine(inputs: list[jax.Array], layer: TiledLayer, precision: lax.Precision) -> list[jax.Array]:
    """What a layer makes of tiles of inputs: tiles of outputs."""
    outputs = []
    for bias, parts in layer:
        total = lax.broadcast_in_dim(bias, (inputs[0].shape[0], bias.shape[0]), (1,))
        for tile, weight in zip(inputs, parts, strict=True):
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
        "elu": lambda x: jnp.where(x > 0.0, x, LOG2E * common.exp2(x, asm) - LOG2E),
        "silu": lambda x: x / (1.0 + common.exp2(-x, asm)),
        "tanh": jnp.tanh,
        "relu": lambda x: jnp.where(x <= 0.0, 0.0, x),
    }[name]
