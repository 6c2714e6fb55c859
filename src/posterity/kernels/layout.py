"""The weights of a network as one sheet [R, H], as the ELBO kernel takes them.

The rows of every weight matrix lie below each other, the two heads turned on their side so that all rows are H long,
then a row for each bias. What pads it has the prior's own values, so nothing ever moves it.

    rows   inputs (padded) | H for each further hidden layer | means | log-variances | biases: hidden, means, log-var.
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
    outputs: int
    layers: int  # hidden
    units: int  # H

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


def layout_of(weights: Layers) -> ParamLayout:
    """The sheet of networks of this shape, without leading axes."""
    units = weights[0].bias.size
    return ParamLayout(weights[0].weight.shape[0], weights[-1].weight.shape[1] // 2, len(weights) - 1, units)


def pack(weights: Layers, layout: ParamLayout, fill: float = 0.0) -> jax.Array:
    """[R, H] weights as a sheet; `fill` where there are none."""
    *hidden, output = weights
    wide, tall = layout.units, layout.heads

    def grown(part: jax.Array, rows: int) -> jax.Array:
        return jnp.pad(part, ((0, rows - part.shape[0]), (0, wide - part.shape[1])), constant_values=fill)

    turned = output.weight.T  # [2 outputs, H]
    rows = [grown(layer.weight, layout.hidden(number)[1]) for number, layer in enumerate(hidden)]
    rows += [grown(turned[: layout.outputs], tall), grown(turned[layout.outputs :], tall)]
    rows += [layer.bias[None] for layer in hidden]
    rows += [grown(part[None], 1) for part in (output.bias[: layout.outputs], output.bias[layout.outputs :])]
    return jnp.concatenate(rows)


def unpack(sheet: jax.Array, layout: ParamLayout) -> Layers:
    """The weights on a sheet [R, H]."""
    layers = []
    for number in range(layout.layers):
        start, count = layout.hidden(number)
        rows = layout.inputs if number == 0 else count
        layers.append(Layer(sheet[start : start + rows], sheet[layout.biases + number]))
    first, second = layout.first_head, layout.first_head + layout.heads
    heads = jnp.concatenate([sheet[first : first + layout.outputs], sheet[second : second + layout.outputs]])
    biases = jnp.concatenate([sheet[layout.biases + layout.layers + head, : layout.outputs] for head in (0, 1)])
    return (*layers, Layer(heads.T, biases))
