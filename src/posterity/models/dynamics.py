"""What sampled networks predict together, and how sure they are of it, the two kinds of doubt apart.

    aleatory   mean over networks of the predicted variance     chance in the outcome: more data does not help
    epistemic  variance over networks of the predicted mean     lack of experience: more data does

Both are per dimension of (reward, state change), in the units of the normaliser.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.models import network
from posterity.models.mlp import NetworkSettings, Prediction, Weights

NINETY = 1.6449  # deviations either side that hold 90 % of a normal


class Forecast(NamedTuple):
    """A prediction and its two doubts."""

    mean: jax.Array  # [..., 1 + O]
    aleatory: jax.Array  # [..., 1 + O] a variance
    epistemic: jax.Array  # [..., 1 + O] a variance


def each(networks: Weights, inputs: jax.Array, shape: NetworkSettings) -> Prediction:
    """[P, ..., 1 + O] what each of P networks predicts for the same inputs [..., O + A]."""
    return jax.vmap(lambda weights: network.forward(weights, inputs, shape))(networks)


def predict(networks: Weights, inputs: jax.Array, shape: NetworkSettings) -> Forecast:
    """What P networks predict together for inputs [..., O + A]."""
    mean, log_variance = each(networks, inputs, shape)
    return Forecast(mean.mean(axis=0), jnp.exp(log_variance).mean(axis=0), mean.var(axis=0))


class Calibration(NamedTuple):
    """How well a forecast held: means over rows and dimensions."""

    error: jax.Array  # root mean square
    coverage: jax.Array  # share inside the 90 % interval
    aleatory: jax.Array  # a deviation
    epistemic: jax.Array  # a deviation


def calibration(forecast: Forecast, targets: jax.Array) -> Calibration:
    """`forecast` against what came, targets [..., 1 + O]."""
    error = targets - forecast.mean
    inside = jnp.abs(error) < NINETY * jnp.sqrt(forecast.aleatory + forecast.epistemic)
    root = jnp.sqrt
    return Calibration(
        root((error**2).mean()), inside.mean(), root(forecast.aleatory.mean()), root(forecast.epistemic.mean())
    )
