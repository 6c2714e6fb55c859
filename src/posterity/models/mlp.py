"""The dynamics network: an observation and an action to a Gaussian over reward and state change.

    (reward, next observation - observation)  ~  N(mean(s, a), exp(log_variance(s, a)))             (paper, appendix B)

A network is a bare tuple of layers. The reward is output 0, the state change the rest; one output layer serves both,
which is two linear heads side by side. Inputs and outputs are in the units of the run's normaliser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import model_validator

from posterity.settings import Settings, setting

ActivationName = Literal["elu", "silu", "tanh", "relu"]
Activation = Callable[[Any], Any]
ACTIVATIONS: dict[str, Activation] = {
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
}


class NetworkSettings(Settings):
    """The shape of the network."""

    hidden: tuple[int, ...] = setting((128, 128), "Units of each hidden layer (released code: 128 128).")
    activation: ActivationName = setting("elu", "Between layers (released code: elu).")
    log_variance_low: float = setting(-9.0, "Softest lower bound of the predicted log-variance (released code: -9).")
    log_variance_high: float = setting(2.0, "Softest upper bound of the predicted log-variance (released code: 2).")

    @model_validator(mode="after")
    def _sensible(self) -> NetworkSettings:
        if self.log_variance_low >= self.log_variance_high:
            raise ValueError(f"log_variance_low is {self.log_variance_low:g}, not below {self.log_variance_high:g}")
        if any(units < 1 for units in self.hidden):
            raise ValueError(f"hidden is {self.hidden}; a layer has 1 unit or more")
        return self


class Layer(NamedTuple):
    """An affine map. Leading axes hold several at once."""

    weight: Any  # [..., inputs, outputs]
    bias: Any  # [..., outputs]


Layers = tuple[Layer, ...]  # hidden layers, then the output layer
Weights = Layers


class Prediction(NamedTuple):
    """A Gaussian over (reward, state change), in the units of the normaliser."""

    mean: jax.Array  # [..., 1 + O]
    log_variance: jax.Array  # [..., 1 + O]


def init(key: jax.Array, obs_dim: int, action_dim: int, settings: NetworkSettings) -> Weights:
    """Weights drawn from N(0, 1 / fan-in), biases zero."""
    sizes = (obs_dim + action_dim, *settings.hidden, 2 * (1 + obs_dim))
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


def layer_norm(x: jax.Array) -> jax.Array:
    """Mean 0 and mean square 1 over the last axis."""
    x = x - x.mean(axis=-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)


def _affine(layer: Layer, x: Any) -> Any:
    return x @ layer.weight + (layer.bias if layer.bias.ndim == 1 else layer.bias[..., None, :])


def forward(weights: Weights, inputs: jax.Array, settings: NetworkSettings) -> Prediction:
    """What one network predicts for inputs [..., O + A]."""
    activation = ACTIVATIONS[settings.activation]
    *hidden, output = weights
    for layer in hidden:
        inputs = activation(inputs @ layer.weight + layer.bias)
    return split(inputs @ output.weight + output.bias, settings)


def split(outputs: jax.Array, settings: NetworkSettings) -> Prediction:
    """Raw outputs [..., 2 (1 + O)] as a prediction. The bounds are soft, so the gradient never dies."""
    mean, raw = jnp.split(outputs, 2, axis=-1)
    low, high = settings.log_variance_low, settings.log_variance_high
    below = high - jax.nn.softplus(high - raw)
    return Prediction(mean, low + jax.nn.softplus(below - low))
