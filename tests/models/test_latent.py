"""What is believed about a latent: against posteriors that can be written down."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import dynamics, latent, posterior
from posterity.models.dynamics import NetworkSettings
from posterity.models.latent import BANDWIDTH, DRAWS, Evidence
from posterity.models.mlp import Layer
from posterity.models.posterior import Latents

LINEAR = NetworkSettings(hidden=())
# One layer, inputs (observation, action, latent), outputs (mean, log-variance) of (reward, change): the reward is the
# latent, the change is nothing.
WEIGHTS = (Layer(jnp.zeros((3, 4)).at[2, 0].set(1.0), jnp.zeros(4)),)
VARIANCE = float(jnp.exp(dynamics.gaussian(jnp.zeros(4), LINEAR).log_variance[0]))
NOBODY = latent.no_latents(3, 1)


def rewards(values: np.ndarray, counts: float = 1.0) -> Evidence:
    """Transitions that differ by their reward alone."""
    targets = np.stack([values, np.zeros_like(values)], axis=1)
    return Evidence(jnp.zeros((len(values), 2)), jnp.asarray(targets, jnp.float32), jnp.full(len(values), counts))


@jax.jit
def infer(key: jax.Array, known: Latents, tasks: jax.Array, evidence: Evidence, before: jax.Array) -> jax.Array:
    """Draws [M, 1] after `before`."""
    return latent.infer(key, WEIGHTS, known, tasks, evidence, LINEAR, before)


def inferred(evidence: Evidence, known: Latents = NOBODY, tasks: int = 0, rounds: int = 1) -> np.ndarray:
    """Draws after so many updates with the same evidence, of 32 lanes together."""
    keys = jax.random.split(jax.random.key(0), 32)
    draws = jax.vmap(lambda key: latent.prior_draws(key, known, jnp.int32(tasks), DRAWS))(keys)
    for number in range(rounds):
        again = jax.vmap(lambda key, number=number: jax.random.fold_in(key, number))(keys)
        draws = jax.vmap(infer, in_axes=(0, None, None, None, 0))(again, known, jnp.int32(tasks), evidence, draws)
    return np.asarray(draws)[..., 0].ravel()


@pytest.mark.parametrize(("count", "rounds"), [(1, 1), (4, 1), (30, 5)])
def test_with_a_linear_network_the_draws_are_those_of_the_conjugate_posterior(count: int, rounds: int):
    """A normal prior and n normal rewards: mean n y / (n + variance), variance 1 / (1 + n / variance).

    2,048 draws, a few of them alike: 6 standard errors are 0.15 standard deviations.
    """
    values = np.random.default_rng(0).normal(0.8, 1.0, count)
    precision = 1.0 + count / VARIANCE
    mean, std = values.sum() / VARIANCE / precision, precision**-0.5
    draws = inferred(rewards(values), rounds=rounds)
    assert draws.mean() == pytest.approx(mean, abs=0.15 * std)
    assert draws.std() == pytest.approx(std, rel=0.15)


def test_rows_that_only_fill_up_tell_nothing():
    draws = inferred(rewards(np.full(10, 5.0), counts=0.0), rounds=1)
    assert draws.mean() == pytest.approx(0.0, abs=0.15)
    assert draws.std() == pytest.approx(1.0, rel=0.15)


def test_before_anything_is_seen_a_task_is_equally_likely_new_or_one_of_those_known():
    """Three of four draws lie near the known tasks, at -4, 4 and 8."""
    known = Latents(jnp.array([[-4.0], [4.0], [8.0]]), jnp.full((3, 1), posterior.inverse_softplus(0.01)))
    draws = np.asarray(latent.prior_draws(jax.random.key(0), known, jnp.int32(3), 4000))[:, 0]
    shares = [np.mean(abs(draws - place) < 4 * BANDWIDTH) for place in (-4.0, 4.0, 8.0)]
    np.testing.assert_allclose(shares, 0.25, atol=0.035)  # 5 standard errors
    assert draws[abs(draws - 4.0) < 4 * BANDWIDTH].std() == pytest.approx(BANDWIDTH, rel=0.1)
    met = np.asarray(latent.prior_draws(jax.random.key(0), known, jnp.int32(1), 4000))[:, 0]
    assert (met < 3.7).mean() > 0.99, "tasks that were not met yet are not known"


def test_what_a_known_task_does_is_recognised_at_once():
    """One reward of 4: the known task at 4 explains it better than a new one, whose prior is around 0."""
    known = Latents(jnp.array([[-4.0], [4.0], [0.0]]), jnp.full((3, 1), posterior.inverse_softplus(0.01)))
    draws = inferred(rewards(np.array([4.0])), known, tasks=2, rounds=1)
    assert np.mean(abs(draws - 4.0) < 4 * BANDWIDTH) > 0.9


def test_the_density_of_the_prior_is_that_of_its_draws():
    """By quadrature: it adds up to one (but for its constant), and draws fall where it is."""
    known = Latents(jnp.array([[-2.0], [1.0], [0.0]]), jnp.full((3, 1), posterior.inverse_softplus(0.2)))
    grid = np.linspace(-7, 7, 2001)
    log = jax.vmap(lambda one: latent.log_prior(one, known, jnp.int32(2)))(jnp.asarray(grid, jnp.float32)[:, None])
    density = np.exp(np.asarray(log, np.float64))
    density /= np.trapezoid(density, grid)
    draws = np.asarray(latent.prior_draws(jax.random.key(1), known, jnp.int32(2), 8000))[:, 0]
    for edge in (-2.0, -1.0, 0.0, 1.0):
        below = np.trapezoid(np.where(grid < edge, density, 0.0), grid)
        assert np.mean(draws < edge) == pytest.approx(below, abs=0.03)  # 5 standard errors


def test_two_explanations_are_both_kept_until_one_is_ruled_out():
    """A network that sees only the latent's size: a reward of 1 leaves z = 1 and z = -1, each half of the draws."""
    settings = NetworkSettings(hidden=(2,), activation="relu", log_variance_low=-4.0, log_variance_high=-3.9)
    first = Layer(jnp.zeros((3, 2)).at[2].set(jnp.array([1.0, -1.0])), jnp.zeros(2))
    weights = (first, Layer(jnp.zeros((2, 4)).at[:, 0].set(1.0), jnp.zeros(4)))
    keys = jax.random.split(jax.random.key(0), 32)
    draws = jax.vmap(lambda k: latent.infer(k, weights, NOBODY, jnp.int32(0), rewards(np.ones(3)), settings))(keys)
    above = np.mean(np.asarray(draws) > 0.0)
    assert 0.3 < above < 0.7
    np.testing.assert_allclose(abs(np.asarray(draws)), 1.0, atol=0.5)


def test_what_is_remembered_of_a_task_is_the_mean_of_its_hypotheses_and_no_other_task_changes():
    some = jnp.asarray(np.random.default_rng(0).normal(3.0, 0.1, (DRAWS, 1)), jnp.float32)
    known = latent.remembered(some, NOBODY, jnp.int32(1))
    np.testing.assert_allclose(known.mean[:, 0], [0.0, float(some.mean()), 0.0], rtol=1e-5)
    np.testing.assert_allclose(jax.nn.softplus(known.rho[:, 0]), [1.0, float(some.std()), 1.0], rtol=1e-4)
    drawn = latent.draws(jax.random.key(0), known, jnp.int32(1), 4000)
    assert float(drawn.mean()) == pytest.approx(3.0, abs=0.05)
