"""The multilayer perceptron: the one network that dynamics, critic, baseline and policy are made of.

    x <- activation(x W + b)  for every hidden layer,        y = x W + b  for the last

A network is a bare tuple of layers. The same code runs on NumPy arrays, to act without the cost of a compiled call, and
on JAX arrays, to learn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Activation = Callable[[Any], Any]
ActivationName = Literal["elu", "silu", "tanh", "relu"]
ACTIVATIONS: dict[str, Activation] = {"elu": jax.nn.elu, "silu": jax.nn.silu, "tanh": jnp.tanh, "relu": jax.nn.relu}


class Layer(NamedTuple):
    """An affine map. Leading axes hold several at once."""

    weight: Any  # [..., inputs, outputs]
    bias: Any  # [..., outputs]


Layers = tuple[Layer, ...]  # hidden layers, then the output layer


def init(key: jax.Array, sizes: Sequence[int]) -> Layers:
    """Weights drawn from N(0, 1 / fan-in), biases zero; `sizes` are inputs, hidden units and outputs."""
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(
        Layer(jax.random.normal(k, (inputs, outputs)) / jnp.sqrt(jnp.float32(inputs)), jnp.zeros(outputs))
        for k, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    )


def init_uniform(key: jax.Array, sizes: Sequence[int]) -> Layers:
    """Weights and biases uniform within 1 / sqrt(fan-in)."""
    layers = []
    for k, inputs, outputs in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True):
        drawn = jax.random.uniform(k, (inputs + 1, outputs), minval=-1.0, maxval=1.0) / np.sqrt(inputs)
        layers.append(Layer(drawn[:-1], drawn[-1]))
    return tuple(layers)


def apply(layers: Sequence[Layer], x: Any, activation: Activation, normalise: bool = False) -> Any:
    """Outputs [..., outputs] for inputs [..., inputs]. `normalise`: hidden layers are normalised over their units."""
    *hidden, output = layers
    for layer in hidden:
        x = _affine(layer, x)
        x = activation(layer_norm(x) if normalise else x)
    return _affine(output, x)


def conditioned(layers: Layers, context: jax.Array) -> Layers:
    """The network whose last inputs [Z] are given: they move the first layer's bias, and no more."""
    (weight, bias), *rest = layers
    size = context.shape[-1]
    return (Layer(weight[:-size], bias + context @ weight[-size:]), *rest)


def layer_norm(x: jax.Array) -> jax.Array:
    """Mean 0 and mean square 1 over the last axis."""
    x = x - x.mean(axis=-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)


def across(vector: Any, rows: Any) -> Any:
    """Vectors [..., V] with as many axes as rows [..., B, V], each to be taken with all of its rows.

    Arrays of different ranks are never left to be matched by themselves: the tests have JAX refuse it.
    """
    return vector.reshape(*vector.shape[:-1], *(1 for _ in range(rows.ndim - vector.ndim)), vector.shape[-1])


def _affine(layer: Layer, x: Any) -> Any:
    y = x @ layer.weight
    return y + across(layer.bias, y)
