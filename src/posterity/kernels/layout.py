"""The weights of a network as one sheet [R, H], as the kernels that learn take them.

The rows of every weight matrix lie below each other, the output heads turned on their side so that all rows are H long,
then a row for each bias. A dynamics network has two heads, means and log-variances; actor and critics have one. What
pads a sheet has the prior's own values, so nothing ever moves it.

    rows   inputs (padded) | H for each further hidden layer | heads | biases of hidden layers | biases of heads
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.kernels.common import padded
from posterity.models.mlp import Layer, Layers


class ParamLayout(NamedTuple):
    """Where a sheet has what."""

    inputs: int  # true sizes
    outputs: int  # of a head
    layers: int  # hidden
    units: int  # H
    branches: int = 2  # heads

    @property
    def wide(self) -> int:
        """Rows of the first layer."""
        return padded(self.inputs)

    @property
    def heads(self) -> int:
        """Rows of a head."""
        return padded(self.outputs)

    @property
    def first_head(self) -> int:
        """The row at which the first head begins."""
        return self.wide + (self.layers - 1) * self.units

    @property
    def biases(self) -> int:
        """The row of the first bias."""
        return self.first_head + self.branches * self.heads

    @property
    def rows(self) -> int:
        """R."""
        return self.biases + self.layers + self.branches

    def hidden(self, layer: int) -> tuple[int, int]:
        """The first row of a hidden layer's weights, and how many there are."""
        return (0, self.wide) if layer == 0 else (self.wide + (layer - 1) * self.units, self.units)


def layout_of(weights: Layers, branches: int = 2) -> ParamLayout:
    """The sheet of networks of this shape, without leading axes, whose outputs are of so many heads."""
    units = weights[0].bias.size
    return ParamLayout(
        weights[0].weight.shape[0], weights[-1].weight.shape[1] // branches, len(weights) - 1, units, branches
    )


def pack(weights: Layers, layout: ParamLayout, fill: float = 0.0) -> jax.Array:
    """[R, H] weights as a sheet; `fill` where there are none."""
    *hidden, output = weights
    wide, size = layout.units, layout.outputs

    def grown(part: jax.Array, rows: int) -> jax.Array:
        return jnp.pad(part, ((0, rows - part.shape[0]), (0, wide - part.shape[1])), constant_values=fill)

    turned = output.weight.T  # [all outputs, H]
    heads = [slice(head * size, (head + 1) * size) for head in range(layout.branches)]
    rows = [grown(layer.weight, layout.hidden(number)[1]) for number, layer in enumerate(hidden)]
    rows += [grown(turned[head], layout.heads) for head in heads]
    rows += [layer.bias[None] for layer in hidden]
    rows += [grown(output.bias[head][None], 1) for head in heads]
    return jnp.concatenate(rows)


def unpack(sheet: jax.Array, layout: ParamLayout) -> Layers:
    """The weights on a sheet [R, H]."""
    layers = []
    for number in range(layout.layers):
        start, count = layout.hidden(number)
        rows = layout.inputs if number == 0 else count
        layers.append(Layer(sheet[start : start + rows], sheet[layout.biases + number]))
    firsts = [layout.first_head + head * layout.heads for head in range(layout.branches)]
    heads = jnp.concatenate([sheet[first : first + layout.outputs] for first in firsts])
    bias = layout.biases + layout.layers
    biases = jnp.concatenate([sheet[bias + head, : layout.outputs] for head in range(layout.branches)])
    return (*layers, Layer(heads.T, biases))
