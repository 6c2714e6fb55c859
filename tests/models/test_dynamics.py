import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import elbo, network, posterior, uncertainty
from posterity.models.dynamics import Forecast, calibration, predict
from posterity.models.elbo import Batch, LearnerSettings
from posterity.models.mlp import NetworkSettings

LINEAR = NetworkSettings(hidden=())


def test_the_two_doubts_are_kept_apart_in_every_dimension():
    """Three constant networks: means (1, 5), (2, 5), (3, 5), variances (1, 4), (2, 4), (3, 4)."""
    bias = [[mean, 5.0, np.log(mean), np.log(4.0)] for mean in (1.0, 2.0, 3.0)]
    networks = (network.Layer(jnp.zeros((3, 2, 4)), jnp.asarray(bias, jnp.float32)),)
    wide = NetworkSettings(hidden=(), log_variance_low=-50, log_variance_high=50)
    got = predict(networks, jnp.zeros((1, 2)), wide)
    np.testing.assert_allclose(got.mean, [[2.0, 5.0]], rtol=1e-5)
    np.testing.assert_allclose(got.aleatory, [[2.0, 4.0]], rtol=1e-5)
    np.testing.assert_allclose(got.epistemic, [[2 / 3, 0.0]], rtol=1e-5, atol=1e-6)


def test_a_true_forecast_is_calibrated():
    """90 % of 20,000 draws, to 1 %: five standard errors."""
    drawn = 3.0 + 2.0 * jax.random.normal(jax.random.key(0), (20_000, 1))
    true = Forecast(jnp.full((20_000, 1), 3.0), jnp.full((20_000, 1), 3.0), jnp.full((20_000, 1), 1.0))
    held = calibration(true, drawn)
    assert abs(float(held.coverage) - 0.9) < 0.01
    assert float(held.error) == pytest.approx(2.0, rel=0.02)
    assert float(held.aleatory) == pytest.approx(np.sqrt(3.0), rel=1e-5)
    assert float(held.epistemic) == pytest.approx(1.0, rel=1e-5)
    sure = true._replace(aleatory=true.aleatory / 100, epistemic=true.epistemic / 100)
    assert float(calibration(sure, drawn).coverage) < 0.2


def test_the_world_posterior_of_many_tasks_spreads_like_their_hidden_parameter():
    """Tasks y = theta a with theta ~ N(1, 0.5^2), 200 of them, 20 rows each, no other noise.

    What the world posterior says of a new task's outcome at action a must have mean a and deviation 0.5 |a|, to 12 %
    (200 draws tell a deviation to 5 %). Of new tasks' outcomes its 90 % intervals must hold about 90 %.
    """
    generator = np.random.default_rng(0)
    theta = 1.0 + 0.5 * generator.normal(size=200)
    action = generator.uniform(-1, 1, (200, 20)).astype(np.float32)
    inputs = np.stack([np.zeros(action.size), action.ravel()], axis=1).astype(np.float32)
    outcome = (theta[:, None] * action).ravel().astype(np.float32)
    targets = np.stack([outcome, outcome], axis=1)
    shape = NetworkSettings(hidden=(32, 32))

    def draw(key: jax.Array) -> Batch:
        place = jax.random.randint(key, (512,), 0, len(inputs))
        return Batch(jnp.asarray(inputs)[place], jnp.asarray(targets)[place])

    start = elbo.begin(posterior.init(jax.random.key(0), 1, 1, shape, 0.02))
    prior = posterior.gaussian(start.posterior, 0.5)
    world, _ = jax.jit(
        lambda begin: elbo.fit(jax.random.key(1), begin, prior, draw, 4000, 2e-3, shape, LearnerSettings(), 1.0)
    )(start)
    networks = jax.vmap(lambda k: posterior.sample(k, world.posterior))(jax.random.split(jax.random.key(2), 100))
    actions = jnp.array([-0.8, -0.5, 0.5, 0.8])
    asked = jnp.stack([jnp.zeros(4), actions], axis=1)
    got = uncertainty.predict(networks, asked, shape)
    deviation = jnp.sqrt(got.aleatory + got.epistemic)[:, 0]
    np.testing.assert_allclose(got.mean[:, 0], actions * theta.mean(), atol=0.08)
    np.testing.assert_allclose(deviation, jnp.abs(actions) * theta.std(), rtol=0.12)
    fresh = 1.0 + 0.5 * generator.normal(size=4000)
    outcomes = jnp.asarray(fresh, jnp.float32)[:, None] * actions
    inside = jnp.abs(outcomes - got.mean[:, 0]) < uncertainty.NINETY * deviation
    assert abs(float(inside.mean()) - 0.9) < 0.04
