"""Networks, normaliser and bounds as the rollout kernel takes them: padded, in tiles, folded together.

Everything a step needs is a tile [block, K]. Its columns are state 0..O-1, action O..O+A-1, reward O+A, then padding.
K is padded with zeros to a power of two, 16 or more, and a hidden layer is cut into tiles of such sizes (200 units are
tiles of 128, 64 and 16). What does not depend on the step is folded into the weights:

  - The state is kept in the normaliser's input units, so the first layer is untouched and bf16 keeps its digits. The
    change is scaled by target_scale / input_scale, and the box is moved into the same units.
  - The soft bounds have a closed form:  variance = exp(low) + exp(high) / (1 + exp(high - raw)).
  - ELU and SiLU run on log2(e) times their input, which makes exp a bare exp2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import jax
import jax.numpy as jnp

from posterity.kernels.common import LOG2E, capability, padded
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.planning.rollout import Box

TiledLayer = tuple[tuple[jax.Array, tuple[jax.Array, ...]], ...]  # by tile of outputs: bias, weights by tile of inputs
Precision = Literal["bf16", "tf32", "f32"]
GAINS = {"elu": LOG2E, "silu": LOG2E, "tanh": 1.0, "relu": 1.0}  # activations take and give this times the value


def unsupported(sizes: Sequence[int], activation: str, precision: Precision) -> str:
    """Why the kernel cannot do a network of these `sizes` (inputs, hidden, outputs), in one line; empty if it can."""
    if activation not in GAINS:
        return f"the fused planner has no activation {activation!r}; it has {', '.join(GAINS)}"
    if len(sizes) < 3:
        return "the fused planner needs a hidden layer"
    hidden = [sum(tiles(size)) for size in sizes[1:-1]]
    width = padded(sizes[0] + 1)
    entries = sum(first * second for first, second in zip([width, *hidden], [*hidden, 2 * width], strict=True))
    needed, room = entries * (2 if precision == "bf16" else 4), shared_memory()
    if needed > room:
        return f"the fused planner needs {needed // 1024} KB for the weights and has {room // 1024}"
    return ""


def shared_memory() -> int:
    """Bytes of weights that fit on the chip beside the rest of the kernel, by the card's generation."""
    if capability() >= (9, 0):
        return 200 * 1024  # a Hopper block has 227 KB, and the rest of the kernel needs some
    return 140 * 1024 if capability() == (8, 0) else 76 * 1024


def tiles(size: int) -> tuple[int, ...]:
    """Powers of two from 128 to 16 that cover `size`; one more padding is taken for fewer tiles."""
    chosen: list[int] = []
    while size > 0:
        tile = min(128, padded(size))
        if tile > 16 and size < 0.75 * tile:
            tile //= 2
        chosen.append(tile)
        size -= tile
    return tuple(chosen)


def _grown(array: jax.Array, *sizes: int) -> jax.Array:
    """Zeros added behind the last axes."""
    sizes = (*array.shape[: array.ndim - len(sizes)], *sizes)
    return jnp.pad(array, [(0, new - old) for new, old in zip(sizes, array.shape, strict=True)])


def _placed(outputs: jax.Array, action_dim: int) -> jax.Array:
    """Outputs [..., 1 + O] in the order of the tile's columns: state change, zeros for the action, reward, zeros."""
    reward, change = outputs[..., :1], outputs[..., 1:]
    gap = jnp.zeros((*outputs.shape[:-1], action_dim), outputs.dtype)
    return _grown(jnp.concatenate([change, gap, reward], axis=-1), padded(outputs.shape[-1] + action_dim))


def _change_scale(normaliser: Normaliser, obs_dim: int) -> jax.Array:
    """[1 + O] the unit of the state in the kernel: the reward's own, and the state's as an input."""
    return jnp.concatenate([jnp.ones(1), normaliser.input_scale[:obs_dim]])


def layers(
    networks: Layers,
    normaliser: Normaliser,
    obs_dim: int,
    action_dim: int,
    gain: float,
    high: float,
) -> tuple[TiledLayer, ...]:
    """The hidden layers, the means' layer and the log-variances' layer; the last gives log2(exp(high - raw))."""
    *hidden, (weight, bias) = networks
    width = (padded(obs_dim + action_dim + 1),)
    cut: list[TiledLayer] = []
    inputs = width
    for index, (hidden_weight, hidden_bias) in enumerate(hidden):
        outputs = tiles(hidden_weight.shape[-1])
        scale = gain if index == 0 else 1.0
        cut.append(_cut(scale * hidden_weight, gain * hidden_bias, inputs, outputs))
        inputs = outputs
    mean_weight, raw_weight = jnp.split(weight / gain, 2, axis=-1)
    mean_bias, raw_bias = jnp.split(bias, 2, axis=-1)
    _, _, target_mean, target_scale = normaliser
    unit = _change_scale(normaliser, obs_dim)
    mean_weight = _placed(mean_weight * (target_scale / unit)[None, None], action_dim)
    mean_bias = _placed((mean_bias * target_scale[None] + target_mean[None]) / unit[None], action_dim)
    raw_weight, raw_bias = _placed(-LOG2E * raw_weight, action_dim), _placed(LOG2E * (high - raw_bias), action_dim)
    return (*cut, _cut(mean_weight, mean_bias, inputs, width), _cut(raw_weight, raw_bias, inputs, width))


def _cut(weight: jax.Array, bias: jax.Array, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> TiledLayer:
    """A layer as tiles of these sizes: for each tile of outputs its bias and the weights from each tile of inputs."""
    weight, bias = _grown(weight, sum(inputs), sum(outputs)), _grown(bias, sum(outputs))
    rows, columns = list(accumulate(inputs[:-1])), list(accumulate(outputs[:-1]))
    biases = jnp.split(bias, columns, axis=1)
    weights = (tuple(jnp.split(part, rows, axis=1)) for part in jnp.split(weight, columns, axis=2))
    return tuple(zip(biases, weights, strict=True))


def columns(
    normaliser: Normaliser, obs: jax.Array, alive: Box | None, action_dim: int, low: float, high: float
) -> jax.Array:
    """[5, K] by column: first state, the two terms of the noise's variance, lower and upper bound of the box.

    The variance is in units of the state in the kernel, times 2 ln 2: the radius takes its logarithm to base two.
    """
    obs_dim = obs.shape[0]
    width = padded(obs_dim + action_dim + 1)
    mean, scale = normaliser.input_mean[:obs_dim], normaliser.input_scale[:obs_dim]
    spread = _placed(
        2.0 * math.log(2.0) * (normaliser.target_scale / _change_scale(normaliser, obs_dim)) ** 2, action_dim
    )
    bounds = [jnp.full(width, -jnp.inf), jnp.full(width, jnp.inf)]
    if alive is not None:
        bounds = [all_.at[:obs_dim].set((side - mean) / scale) for all_, side in zip(bounds, alive, strict=True)]
    begin = _grown((obs - mean) / scale, width)
    return jnp.stack([begin, math.exp(low) * spread, math.exp(high) * spread, *bounds]).astype(jnp.float32)
