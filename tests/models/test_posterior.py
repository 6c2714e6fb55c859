import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import network, posterior
from posterity.models.mlp import Layer, NetworkSettings
from posterity.models.posterior import Posterior

SHAPE = NetworkSettings(hidden=(5,))


def some(seed: int, scale: float) -> Posterior:
    return posterior.init(jax.random.key(seed), 2, 1, SHAPE, scale)


def log_density(weights: network.Weights, q: Posterior) -> jax.Array:
    def one(w: jax.Array, mean: jax.Array, rho: jax.Array) -> jax.Array:
        scale = jax.nn.softplus(rho)
        return (-0.5 * ((w - mean) / scale) ** 2 - jnp.log(scale)).sum()

    return jnp.stack(jax.tree.leaves(jax.tree.map(one, weights, q.mean, q.rho))).sum()


def test_kl_is_the_expected_log_ratio():
    """KL(q || p) = E_q[log q - log p]: sampling checks the closed form, to 4 standard errors of 4000 draws."""
    q, p = some(0, 0.3), some(1, 0.5)
    draws = jax.vmap(lambda key: posterior.sample(key, q))(jax.random.split(jax.random.key(2), 4000))
    ratio = np.asarray(jax.vmap(lambda w: log_density(w, q) - log_density(w, p))(draws))
    assert abs(ratio.mean() - posterior.kl(q, p)) < 4 * ratio.std() / np.sqrt(4000)


def test_kl_of_a_posterior_to_itself_is_zero():
    assert abs(posterior.kl(some(0, 0.3), some(0, 0.3))) < 1e-5


def test_draws_have_the_posteriors_mean_and_spread_and_no_noise_is_the_mean_network():
    q = some(0, 0.3)
    draws = jax.vmap(lambda key: posterior.sample(key, q))(jax.random.split(jax.random.key(1), 4000))
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
    np.testing.assert_allclose(jax.nn.softplus(prior.rho[0].bias), 0.5, rtol=1e-6)


def test_log_variance_stays_within_its_bounds_and_keeps_a_gradient():
    settings = NetworkSettings(hidden=(), log_variance_low=-9.0, log_variance_high=2.0)

    def log_variance(raw: jax.Array) -> jax.Array:
        weights = (Layer(jnp.zeros((2, 4)), jnp.stack([jnp.float32(0.0), jnp.float32(0.0), raw, raw])),)
        return network.forward(weights, jnp.zeros(2), settings).log_variance[0]

    for raw in (-30.0, -5.0, 0.0, 15.0):
        assert -9.0 <= log_variance(jnp.float32(raw)) <= 2.001
    assert jax.grad(log_variance)(jnp.float32(6.0)) > 0.0


def test_a_wider_prior_pulls_on_means_as_a_lighter_kl_does_and_draws_spreads_to_its_own():
    """A quarter of the KL, or twice the prior's deviation: the same gradient of means, to float tolerance."""
    q, p = some(0, 0.3), some(1, 0.3)
    twice = posterior.wider(p, jnp.float32(2.0))
    for rho in jax.tree.leaves(twice.rho):
        np.testing.assert_allclose(jax.nn.softplus(rho), 0.6, rtol=1e-5)
    lighter = jax.grad(lambda q: 0.25 * posterior.kl(q, p))(q)
    wider = jax.grad(lambda q: posterior.kl(q, twice))(q)
    for one, other in zip(jax.tree.leaves(lighter.mean), jax.tree.leaves(wider.mean), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert all((jnp.abs(leaf) < 1e-5).all() for leaf in jax.tree.leaves(lighter.rho)), "0.3 is where it would stay"
    assert all((leaf < -0.01).all() for leaf in jax.tree.leaves(wider.rho)), "towards 0.6"
