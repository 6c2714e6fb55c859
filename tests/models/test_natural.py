"""The natural gradient step: conjugate gradients, a normalised length, the curvature that is kept of a task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models.natural import conjugate_gradient, hessian, natural_step


def spd(size: int, seed: int = 0) -> jax.Array:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return jnp.asarray(root @ root.T / size + 0.5 * np.eye(size), jnp.float32)


def test_conjugate_gradients_solve_what_a_direct_solver_solves():
    matrix, b = spd(8), jnp.arange(1.0, 9.0)
    found = conjugate_gradient(lambda v: matrix @ v, b, iterations=20)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-3)


def test_conjugate_gradients_stop_at_nothing_to_solve():
    np.testing.assert_array_equal(conjugate_gradient(lambda v: v, jnp.zeros(3), iterations=5), np.zeros(3))


def test_a_step_is_the_damped_solution_of_normalised_length():
    fisher, g, damping, size = spd(6), jnp.arange(1.0, 7.0), 0.1, 0.02
    step = natural_step(g, lambda v: fisher @ v, size, damping, iterations=20)
    direct = np.linalg.solve(fisher + damping * np.eye(6), g)
    np.testing.assert_allclose(step, direct * np.sqrt(size / (g @ direct)), rtol=1e-3)


def test_the_curvature_is_the_lifted_fisher_matrix_times_half_the_multiplier():
    fisher, g = np.diag([2.0, 1e-3, 0.0]), np.array([1.0, 0.1, 0.0])
    lifted = fisher + 1e-3 * np.eye(3)
    eta = np.sqrt(2 * (g**2 / np.diag(lifted)).sum() / 0.1)
    np.testing.assert_allclose(hessian(g, fisher, 0.1), -eta * lifted / 2)
    assert np.linalg.eigvalsh(hessian(g, np.eye(3), 0.1))[-1] == pytest.approx(-np.sqrt(2 * (g @ g) / 0.1) / 2)
