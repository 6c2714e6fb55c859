"""Draws from Dirichlet rows, also with parameters so small that plain gamma draws underflow."""

from __future__ import annotations

import numpy as np

from posterity.types import FloatArray


def sample_dirichlet(generator: np.random.Generator, alpha: FloatArray, count: int) -> FloatArray:
    """`count` draws [count, ..., M] from independent Dirichlet rows [..., M]. A parameter of zero: probability zero."""
    return normalised(log_gammas(generator, np.broadcast_to(alpha, (count, *alpha.shape))))


def log_gammas(generator: np.random.Generator, shapes: FloatArray) -> FloatArray:
    """Logarithms of gamma draws, which normalised are Dirichlet.

    With shapes near zero plain gammas underflow to rows of 0 / 0; the gamma of a small shape a is that of a + 1 times
    U^(1 / a), whose logarithm does not.
    """
    boost = np.full(shapes.shape, -np.inf)  # a shape of 0 is the outcome that never happens
    np.divide(generator.standard_exponential(shapes.shape), -shapes, out=boost, where=shapes > 0)
    return boost + np.log(generator.standard_gamma(shapes + 1.0))


def normalised(logs: FloatArray) -> FloatArray:
    """Probabilities proportional to the exponentials of `logs`, over the last axis."""
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
