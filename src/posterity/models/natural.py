"""The natural gradient step with a normalised size (Kakade 2001; Rajeswaran et al. 2017).

    x = (F + damping I)^-1 g,        theta <- theta + sqrt(size / (g . x)) x

F is only ever multiplied with: x is found by conjugate gradients. The step has half its squared length in the metric F
equal to size / 2, which is the KL divergence it moves by, to second order.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from posterity.types import FloatArray

Product = Callable[[jax.Array], jax.Array]


def conjugate_gradient(product: Product, b: jax.Array, iterations: int, tolerance: float = 1e-10) -> jax.Array:
    """x with product(x) = b, by at most `iterations` steps; done when the squared residual is below `tolerance`."""

    def step(_: int, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        x, residual, direction, length = carry
        turned = product(direction)
        done = length < tolerance
        far = jnp.where(done, 0.0, length / jnp.where(done, 1.0, direction @ turned))
        residual = residual - far * turned
        shorter = residual @ residual
        turn = jnp.where(done, 0.0, shorter / jnp.where(done, 1.0, length))
        return x + far * direction, residual, residual + turn * direction, jnp.where(done, length, shorter)

    return jax.lax.fori_loop(0, iterations, step, (jnp.zeros_like(b), b, b, b @ b))[0]


def natural_step(gradient: jax.Array, product: Product, size: float, damping: float, iterations: int) -> jax.Array:
    """The change of parameters that climbs `gradient` by one step of normalised `size`."""
    x = conjugate_gradient(lambda v: product(v) + damping * v, gradient, iterations)
    return jnp.sqrt(jnp.abs(size / (gradient @ x + 1e-20))) * x


def hessian(gradient: FloatArray, fisher: FloatArray, size: float, least: float = 1e-3) -> FloatArray:
    """[d, d] H of the model that is kept of a finished task, J(theta) ~ g . (theta - theta_t) + |theta - theta_t|_H^2.

    H = -eta F / 2, with F's least eigenvalue lifted to `least` and eta = sqrt(2 g' F^-1 g / size), as published.
    """
    short = least - np.linalg.eigvalsh(fisher)[0]
    lifted = fisher + max(short, 0.0) * np.eye(len(fisher))
    eta = np.sqrt(2 * gradient @ np.linalg.solve(lifted, gradient) / size)
    return -eta * lifted / 2
