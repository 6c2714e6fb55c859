"""The dynamics model: its Gaussian, its steps, and the two kinds of uncertainty."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from posterity.models import dynamics, elbo, normaliser, posterior
from posterity.models.dynamics import DynamicsModel, Forecast, NetworkSettings, Prediction, calibration, forecast
from posterity.models.elbo import Batch, Fit, LearnerSettings, Learning
from posterity.models.mlp import Layer
from posterity.models.posterior import Posterior
from posterity.types import FloatArray

LINEAR = NetworkSettings(hidden=(), log_variance_low=-50, log_variance_high=50)
UNITS = normaliser.Normaliser(  # one observed, one done
    input_mean=jnp.array([1.0, 2.0]),
    input_scale=jnp.array([2.0, 4.0]),
    target_mean=jnp.array([10.0, 0.5]),
    target_scale=jnp.array([3.0, 0.1]),
)


def model(noise: float | None = 1.0, members: int = 1) -> DynamicsModel:
    keys = jax.random.split(jax.random.key(0), members)
    q = jax.vmap(lambda key: dynamics.init(key, 1, 1, LINEAR, 0.3))(keys)
    return DynamicsModel(q, UNITS, None if noise is None else jnp.float32(noise), jnp.ones(2))


def test_log_variance_stays_within_its_bounds_and_keeps_a_gradient():
    settings = NetworkSettings(hidden=(), log_variance_low=-9.0, log_variance_high=2.0)

    def log_variance(raw: jax.Array) -> jax.Array:
        weights = (Layer(jnp.zeros((2, 4)), jnp.stack([jnp.float32(0.0), jnp.float32(0.0), raw, raw])),)
        return dynamics.forward(weights, jnp.zeros(2), settings).log_variance[0]

    for raw in (-30.0, -5.0, 0.0, 15.0):
        assert -9.0 <= log_variance(jnp.float32(raw)) <= 2.001
    assert log_variance(jnp.float32(-5.0)) == pytest.approx(-5.0, abs=0.05), "between them it is what it is"
    assert jax.grad(log_variance)(jnp.float32(6.0)) > 0.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"log_variance_low": 2.0}, "not below 2"), ({"hidden": [8, 0]}, "1 unit or more")],
)
def test_a_network_that_makes_no_sense_is_refused(wrong: dict[str, object], said: str):
    with pytest.raises(ValidationError, match=said):
        NetworkSettings.model_validate(wrong)


def test_each_network_predicts_for_its_own_observations_in_the_normalisers_units():
    """The reward's mean is the input (s - 1) / 2, the state's (a - 2) / 4, each times the number of the network."""
    weight = jnp.stack([jnp.zeros((2, 4)).at[0, 0].set(p).at[1, 1].set(p) for p in (1.0, 2.0)])
    obs, action = jnp.array([[[3.0], [5.0]], [[7.0], [9.0]]]), jnp.array([[2.0], [6.0]])
    got = model().predict((Layer(weight, jnp.zeros((2, 4))),), obs, action, LINEAR)
    np.testing.assert_allclose(got.mean[..., 0], [[1.0, 2.0], [6.0, 8.0]], atol=1e-6)
    np.testing.assert_allclose(got.mean[..., 1], [[0.0, 1.0], [0.0, 2.0]], atol=1e-6)
    np.testing.assert_allclose(got.log_variance, 0.0, atol=1e-5)


def test_a_step_is_the_mean_or_a_draw_of_the_prediction_in_the_environments_units():
    """Mean (1, 2) is a reward of 10 + 3 and a change of 0.5 + 0.2; deviations 2 and 1 are 6 and 0.1. 5 std. errors."""
    count = 20_000
    told = Prediction(
        jnp.tile(jnp.array([1.0, 2.0]), (1, count, 1)), jnp.tile(jnp.log(jnp.array([4.0, 1.0])), (1, count, 1))
    )
    obs = jnp.full((1, count, 1), 7.0)
    reward, following = model().step(jax.random.key(0), obs, told, sample=False)
    np.testing.assert_allclose(reward, 13.0, rtol=1e-6)
    np.testing.assert_allclose(following[..., 0], 7.7, rtol=1e-6)
    reward, following = model().step(jax.random.key(0), obs, told, sample=True)
    for drawn, mean, deviation in ((reward, 13.0, 6.0), (following[..., 0], 7.7, 0.1)):
        assert abs(float(drawn.mean()) - mean) < 5 * deviation / np.sqrt(count)
        assert float(drawn.std()) == pytest.approx(deviation, rel=5 / np.sqrt(2 * count))
    assert abs(float(jnp.corrcoef(reward[0], following[0, :, 0])[0, 1])) < 5 / np.sqrt(count), "noise of their own"


def test_sampled_networks_differ_as_the_noise_says():
    drawn = model().sample(jax.random.key(1), 2000)
    np.testing.assert_allclose(drawn[0].weight.std(axis=0), 0.3, rtol=0.1)
    for noise in (0.0, None):
        alike = model(noise).sample(jax.random.key(1), 2)
        for leaf, mean in zip(jax.tree.leaves(alike), jax.tree.leaves(model().posterior.mean), strict=True):
            np.testing.assert_array_equal(leaf, jnp.concatenate([mean, mean]))


def test_members_take_turns():
    """Five networks of three members: as they are, or each drawn around its member."""
    means = jax.tree.leaves(model(members=3).posterior.mean)
    plain = model(None, members=3).sample(jax.random.key(1), 5)
    for leaf, mean in zip(jax.tree.leaves(plain), means, strict=True):
        np.testing.assert_array_equal(leaf, mean[jnp.array([0, 1, 2, 0, 1])])
    drawn = jax.tree.leaves(model(members=3).sample(jax.random.key(1), 3000))
    for leaf, mean in zip(drawn, means, strict=True):
        for member in range(3):
            assert np.abs(leaf[member::3].mean(axis=0) - mean[member]).max() < 5 * 0.3 / np.sqrt(1000)


def test_the_two_doubts_are_kept_apart_in_every_dimension():
    """Three constant networks: means (1, 5), (2, 5), (3, 5), variances (1, 4), (2, 4), (3, 4)."""
    bias = [[mean, 5.0, np.log(mean), np.log(4.0)] for mean in (1.0, 2.0, 3.0)]
    networks = (Layer(jnp.zeros((3, 2, 4)), jnp.asarray(bias, jnp.float32)),)
    got = forecast(networks, jnp.zeros((1, 2)), LINEAR)
    np.testing.assert_allclose(got.mean, [[2.0, 5.0]], rtol=1e-5)
    np.testing.assert_allclose(got.aleatoric, [[2.0, 4.0]], rtol=1e-5)
    np.testing.assert_allclose(got.epistemic, [[2 / 3, 0.0]], rtol=1e-5, atol=1e-6)


def test_a_true_forecast_is_calibrated():
    """90 % of 20,000 draws, to 1 %: five standard errors."""
    drawn = 3.0 + 2.0 * jax.random.normal(jax.random.key(0), (20_000, 1))
    true = Forecast(jnp.full((20_000, 1), 3.0), jnp.full((20_000, 1), 3.0), jnp.full((20_000, 1), 1.0))
    held = calibration(true, drawn)
    assert abs(float(held.coverage_90) - 0.9) < 0.01
    assert float(held.rmse) == pytest.approx(2.0, rel=0.02)
    assert float(held.aleatoric_std) == pytest.approx(np.sqrt(3.0), rel=1e-5)
    assert float(held.epistemic_std) == pytest.approx(1.0, rel=1e-5)
    sure = true._replace(aleatoric=true.aleatoric / 100, epistemic=true.epistemic / 100)
    assert float(calibration(sure, drawn).coverage_90) < 0.2


def test_a_models_calibration_is_that_of_its_forecast_in_the_normalisers_units():
    networks = model().sample(jax.random.key(1), 5)
    keys = jax.random.split(jax.random.key(2), 4)
    obs, action, reward, following = (jax.random.normal(k, shape) for k, shape in zip(keys, [(9, 1)] * 4, strict=True))
    held = model().calibration(networks, obs, action, reward[:, 0], following, LINEAR)
    told = forecast(networks, UNITS.inputs(obs, action), LINEAR)
    expected = calibration(told, UNITS.targets(obs, reward[:, 0], following))
    np.testing.assert_allclose(held, expected, rtol=1e-6)


def world_posterior(theta: FloatArray, rows: int, generator: np.random.Generator, shape: NetworkSettings) -> Posterior:
    """Learned from `rows` steps of each of the tasks y = theta a; reward and state change are both y."""
    action = generator.uniform(-1, 1, (len(theta), rows))
    outcome = (theta[:, None] * action).ravel()
    inputs = jnp.asarray(np.stack([np.zeros(action.size), action.ravel()], axis=1), jnp.float32)
    targets = jnp.asarray(np.stack([outcome, outcome], axis=1), jnp.float32)
    learned = elbo.begin(dynamics.init(jax.random.key(0), 1, 1, shape, 0.02))
    prior = posterior.gaussian(learned.posterior, 0.5)

    def draw(key: jax.Array) -> Batch:
        place = jax.random.randint(key, (256,), 0, len(inputs))
        return Batch(inputs[place], targets[place])

    @jax.jit
    def fit(key: jax.Array, start: Learning, rate: float) -> Learning:
        fit = Fit(key, start, prior, draw, rate, 1.0, kl_weight=1e-4)
        return elbo.fit([fit], 1500, elbo.gradient(shape, LearnerSettings()))[0][0]

    for seed, rate in ((1, 4e-3), (2, 3e-4)):
        learned = fit(jax.random.key(seed), learned, rate)
    return learned.posterior


def test_the_world_posterior_of_many_tasks_spreads_like_their_hidden_parameter():
    """Tasks y = theta a with theta ~ N(1, 0.5^2), 200 of them, 20 rows each, no other noise.

    What the world posterior says of a new task's outcome at action a must have mean a and deviation 0.5 |a|, to 20 %:
    200 draws tell a deviation to 5 %, and with other seeds the worst of four is off by up to 13 %. Of new tasks'
    outcomes its 90 % intervals must hold about 90 %.
    """
    generator = np.random.default_rng(0)
    theta = 1.0 + 0.5 * generator.normal(size=200)
    shape = NetworkSettings(hidden=(32, 32))
    world = world_posterior(theta, 20, generator, shape)
    networks = jax.vmap(lambda k: posterior.sample(k, world))(jax.random.split(jax.random.key(2), 100))
    actions = jnp.array([-0.8, -0.5, 0.5, 0.8])
    got = forecast(networks, jnp.stack([jnp.zeros(4), actions], axis=1), shape)
    deviation = jnp.sqrt(got.aleatoric + got.epistemic)[:, 0]
    np.testing.assert_allclose(got.mean[:, 0], actions * theta.mean(), atol=0.08)
    np.testing.assert_allclose(deviation, jnp.abs(actions) * theta.std(), rtol=0.2)
    fresh = 1.0 + 0.5 * generator.normal(size=4000)
    outcomes = jnp.asarray(fresh, jnp.float32)[:, None] * actions[None]
    inside = jnp.abs(outcomes - got.mean[None, :, 0]) < dynamics.NINETY * deviation[None]
    assert abs(float(inside.mean()) - 0.9) < 0.05
