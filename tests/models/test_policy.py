"""The Gaussian policy: its mean, its likelihood, its KL divergence and its Fisher matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import policy as gaussian
from posterity.models.policy import ActionRange, Batch, PolicyParams


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
def test_the_mean_is_the_network_that_theta_spells_out_in_numpy_and_in_jax(hidden: tuple[int, ...]):
    """Layer after layer, weights row by row and then biases; lane after lane."""
    layers, draw = gaussian.shape(3, hidden, 2), np.random.default_rng(0)
    theta = draw.normal(size=(2, gaussian.size(layers))).astype(np.float32)
    obs = draw.normal(size=(2, 7, 3)).astype(np.float32)
    batched = gaussian.mean(theta, obs, layers)
    assert isinstance(batched, np.ndarray)
    for lane in (0, 1):
        numbers, x = iter(theta[lane].tolist()), obs[lane]
        for depth, (inputs, outputs) in enumerate(layers):
            weight = np.array([[next(numbers) for _ in range(outputs)] for _ in range(inputs)])
            x = x @ weight + [next(numbers) for _ in range(outputs)]
            x = np.tanh(x) if depth < len(layers) - 1 else x
        assert not list(numbers)
        np.testing.assert_allclose(batched[lane], x, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(gaussian.mean(jnp.asarray(theta[lane]), obs[lane], layers), x, rtol=1e-4, atol=1e-6)


def test_a_new_policy_has_means_near_zero():
    layers = gaussian.shape(3, (5,), 2)
    theta = gaussian.init(jax.random.key(0), layers, scale=0.01)
    assert theta.shape == (gaussian.size(layers),)
    assert float(jnp.abs(gaussian.mean(theta, jnp.ones((1, 3)), layers)).max()) < 0.03
    assert float(jnp.abs(theta[: 4 * 5]).max()) > 0.3, "the hidden layer is not scaled down"


def test_actions_are_scaled_to_the_environments_range_and_clipped_to_it():
    actions = ActionRange(np.array([-1.0, -2.0], np.float32), np.array([1.0, 4.0], np.float32))
    raw = np.array([[0.0, 0.0], [0.5, -1.0], [-7.0, 7.0]])
    np.testing.assert_array_equal(actions.clipped(raw), np.array([[0, 1], [0.5, -2], [-1, 4]], np.float32))


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_the_fisher_product_is_the_hessian_of_the_kl(hidden: tuple[int, ...]):
    """F v against a central difference of the KL's gradient. Two action dimensions with different deviations."""
    layers = gaussian.shape(3, hidden, 2)
    d = gaussian.size(layers)
    draw = np.random.default_rng(1)
    obs = jnp.asarray(draw.normal(size=(20, 3)), jnp.float32)
    at = jnp.asarray(draw.normal(size=d + 2) * 0.5, jnp.float32)

    def policy_of(x: jax.Array) -> PolicyParams:
        return PolicyParams(x[:d], x[d:])

    product = gaussian.fisher_product(policy_of, at, obs, layers)
    slope = jax.grad(lambda x: gaussian.kl(policy_of(at), policy_of(x), obs, layers))
    for _ in range(3):
        v = jnp.asarray(draw.normal(size=d + 2), jnp.float32)
        v /= jnp.linalg.norm(v)
        np.testing.assert_allclose(product(v), (slope(at + 0.01 * v) - slope(at - 0.01 * v)) / 0.02, atol=2e-3)
        far = gaussian.kl(policy_of(at), policy_of(at + 0.03 * v), obs, layers)
        assert float(far) == pytest.approx(float(0.5 * 0.03**2 * v @ product(v)), rel=0.1)


def test_the_gradient_is_that_of_the_log_likelihood_of_the_action_as_drawn():
    """d/dtheta of the surrogate at the old policy is the mean of advantage x score, however much was clipped."""
    layers = gaussian.shape(3, (), 2)
    draw = np.random.default_rng(2)
    old = PolicyParams(jnp.asarray(draw.normal(size=8), jnp.float32), jnp.array([0.3, -0.5]))
    obs, noise, advantage = (jnp.asarray(draw.normal(size=s), jnp.float32) for s in ((30, 3), (30, 2), (30,)))
    got = jax.grad(lambda p: gaussian.surrogate(p, old, Batch(obs, noise, advantage), layers))(old)
    score = noise / jnp.exp(old.log_std)[None] * advantage[:, None] / 30
    np.testing.assert_allclose(got.theta, jnp.concatenate([(obs.T @ score).ravel(), score.sum(0)]), atol=1e-5)
    np.testing.assert_allclose(got.log_std, ((noise**2 - 1) * advantage[:, None]).mean(0), atol=1e-5)
