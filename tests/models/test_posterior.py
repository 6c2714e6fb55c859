"""The Gaussian over weights: draws, divergence and the fixed prior."""

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import mlp, posterior
from posterity.models.mlp import Layers
from posterity.models.posterior import Posterior


def some(seed: int, scale: float) -> Posterior:
    return posterior.init(mlp.init(jax.random.key(seed), (3, 5, 6)), scale)


def log_density(weights: Layers, q: Posterior) -> jax.Array:
    def one(w: jax.Array, mean: jax.Array, rho: jax.Array) -> jax.Array:
        scale = jax.nn.softplus(rho)
        return (-0.5 * ((w - mean) / scale) ** 2 - jnp.log(scale)).sum()

    return jnp.stack(jax.tree.leaves(jax.tree.map(one, weights, q.mean, q.rho))).sum()


def test_kl_is_the_expected_log_ratio():
    """KL(q || p) = E_q[log q - log p]: sampling checks the closed form, to 4 standard errors of 4000 draws."""
    q, p = some(0, 0.3), some(1, 0.5)

    @jax.jit
    @jax.vmap
    def log_ratio(key: jax.Array) -> jax.Array:
        drawn = posterior.sample(key, q)
        return log_density(drawn, q) - log_density(drawn, p)

    ratio = np.asarray(log_ratio(jax.random.split(jax.random.key(2), 4000)))
    assert abs(ratio.mean() - posterior.kl(q, p)) < 4 * ratio.std() / np.sqrt(4000)


def test_kl_of_a_posterior_to_itself_is_zero():
    assert abs(posterior.kl(some(0, 0.3), some(0, 0.3))) < 1e-5


def test_without_noise_the_kl_is_the_distance_from_the_priors_mean():
    """Minus the prior's log density at the mean network, but for a constant, however wide the posterior is."""
    (near, p), far = (some(seed, 0.3) for seed in (0, 1)), some(2, 0.7)
    expected = log_density(near.mean, p) - log_density(far.mean, p)
    np.testing.assert_allclose(posterior.kl(far, p, 0.0) - posterior.kl(near, p, 0.0), expected, rtol=1e-4)
    assert posterior.kl(p, p, 0.0) == 0.0


def test_a_new_posterior_has_the_networks_means_and_one_scale():
    network = mlp.init(jax.random.key(0), (3, 5, 6))
    fresh = posterior.init(network, 0.02)
    for mean, rho, weight in zip(*map(jax.tree.leaves, (fresh.mean, fresh.rho, network)), strict=True):
        np.testing.assert_array_equal(mean, weight)
        np.testing.assert_allclose(jax.nn.softplus(rho), 0.02, rtol=1e-5)


def test_draws_have_the_posteriors_mean_and_spread_and_no_noise_is_the_mean_network():
    q = some(0, 0.3)
    draws = jax.jit(jax.vmap(lambda key: posterior.sample(key, q)))(jax.random.split(jax.random.key(1), 4000))
    for drawn, mean in zip(jax.tree.leaves(draws), jax.tree.leaves(q.mean), strict=True):
        assert np.abs(drawn.mean(axis=0) - mean).max() < 5 * 0.3 / np.sqrt(4000)
        np.testing.assert_allclose(drawn.std(axis=0), 0.3, rtol=0.08)
    for drawn, mean in zip(
        jax.tree.leaves(posterior.sample(jax.random.key(1), q, 0.0)), jax.tree.leaves(q.mean), strict=True
    ):
        np.testing.assert_array_equal(drawn, mean)


def test_the_fixed_prior_is_centred_with_its_scale():
    prior = posterior.gaussian(some(0, 0.3), 0.5)
    assert all(not leaf.any() for leaf in jax.tree.leaves(prior.mean))
    for rho in jax.tree.leaves(prior.rho):
        np.testing.assert_allclose(jax.nn.softplus(rho), 0.5, rtol=1e-6)
