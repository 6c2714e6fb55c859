import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import elbo, network, posterior
from posterity.models.elbo import Batch, LearnerSettings
from posterity.models.mlp import NetworkSettings

LINEAR = NetworkSettings(hidden=())


def test_local_noise_has_the_moments_of_drawn_weights():
    """For a linear map both give N(x W + b, x^2 W_var + b_var). 20,000 draws; 5 standard errors of the mean."""
    q = posterior.init(jax.random.key(0), 1, 1, LINEAR, 0.3)
    x = jnp.array([[0.7, -1.3]])
    keys = jax.random.split(jax.random.key(1), 20_000)
    local = jax.vmap(lambda k: elbo.local_forward(k, q, x, LINEAR, 1.0).mean[0])(keys)
    drawn = jax.vmap(lambda k: network.forward(posterior.sample(k, q), x, LINEAR).mean[0])(keys)
    spread = 0.3 * np.sqrt(1 + 0.7**2 + 1.3**2)
    assert np.abs(local.mean(axis=0) - drawn.mean(axis=0)).max() < 5 * spread * np.sqrt(2 / 20_000)
    np.testing.assert_allclose(local.std(axis=0), spread, rtol=0.03)
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.03)


def test_the_log_likelihood_is_the_gaussian_density_with_the_reward_weighted():
    prediction = network.Prediction(jnp.array([[1.0, 2.0]]), jnp.log(jnp.array([[4.0, 0.25]])))
    got = elbo.log_likelihood(prediction, jnp.array([[3.0, 2.5]]), reward_weight=5.0)
    reward = -0.5 * (1.0 + np.log(4.0) + np.log(2 * np.pi))
    state = -0.5 * (1.0 + np.log(0.25) + np.log(2 * np.pi))
    np.testing.assert_allclose(got, [5 * reward + state], rtol=1e-5)


def test_the_posterior_of_a_linear_regression_is_recovered():
    """Orthogonal inputs: given the noise the exact posterior factorises, so mean-field is exact.

    y = W x + noise of deviation 0.5, prior N(0, 1), n = 200. Given noise precision t: precision 1 + n t, mean t x'y/it.
    The noise is learned along; t is what the posterior expects of it.
    """
    count, true_noise = 200, 0.5
    x = np.stack([np.tile([1.0, -1.0], 100), np.repeat([1.0, -1.0], 100)], axis=1)  # orthogonal, mean zero
    y = x @ np.array([[0.8, -0.4], [0.3, 0.6]]) + true_noise * np.random.default_rng(0).normal(size=(count, 2))
    settings = LearnerSettings(kl_weight=1.0 / count, samples=8)
    learned = elbo.begin(posterior.init(jax.random.key(0), 1, 1, LINEAR, 0.1))
    prior = posterior.gaussian(learned.posterior, 1.0)
    batch = Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    for rate in (0.02, 0.002):
        learned, _ = jax.jit(
            lambda s, rate=rate: elbo.fit(
                jax.random.key(1), s, prior, lambda _: batch, 3000, rate, LINEAR, settings, 1.0
            )
        )(learned)
    draws = jax.vmap(
        lambda k: network.forward(posterior.sample(k, learned.posterior), batch.inputs, LINEAR).log_variance
    )(jax.random.split(jax.random.key(2), 500))
    noise_precision = np.asarray(jnp.exp(-draws).mean(axis=(0, 1)))
    np.testing.assert_allclose(noise_precision, 1 / true_noise**2, rtol=0.25)  # 200 rows tell a variance to 10 %
    precision = 1.0 + count * noise_precision
    weight = learned.posterior.mean[0].weight[:, :2]
    scale = jax.nn.softplus(learned.posterior.rho[0].weight[:, :2])
    np.testing.assert_allclose(scale, np.broadcast_to(1 / np.sqrt(precision), (2, 2)), rtol=0.1)
    assert (np.abs(weight - (x.T @ y) * noise_precision / precision) < 0.25 / np.sqrt(precision)).all()


def test_spreads_tell_lack_of_data_from_noise():
    """Noise of deviation 0.3 in the targets. With more data the epistemic part shrinks, the aleatory stays at 0.3."""
    shape = NetworkSettings(hidden=(32,))
    settings = LearnerSettings(kl_weight=1e-3)
    generator = np.random.default_rng(0)
    epistemic, aleatory = [], []
    for count in (8, 2000):
        x = generator.uniform(-1, 1, (count, 2)).astype(np.float32)
        y = np.stack([np.sin(3 * x[:, 0]), x[:, 1] ** 2], axis=1) + 0.3 * generator.normal(size=(count, 2))
        data = Batch(jnp.asarray(x), jnp.asarray(y, jnp.float32))

        def draw(k: jax.Array, data: Batch = data, count: int = count) -> Batch:
            place = jax.random.randint(k, (128,), 0, count)
            return Batch(data.inputs[place], data.targets[place])

        start = elbo.begin(posterior.init(jax.random.key(0), 1, 1, shape, 0.05))
        prior = posterior.gaussian(start.posterior, 0.5)
        weighed = settings.model_copy(update={"kl_weight": 1.0 / count})
        learned, _ = jax.jit(
            lambda s, prior=prior, draw=draw, weighed=weighed: elbo.fit(
                jax.random.key(2), s, prior, draw, 3000, 3e-3, shape, weighed, 1.0
            )
        )(start)
        inputs = jnp.asarray(generator.uniform(-1, 1, (200, 2)), jnp.float32)
        keys = jax.random.split(jax.random.key(3), 50)
        mean, log_variance = jax.vmap(
            lambda k, q=learned.posterior, inputs=inputs: network.forward(posterior.sample(k, q), inputs, shape)
        )(keys)
        epistemic.append(float(mean.std(axis=0).mean()))
        aleatory.append(float(jnp.exp(0.5 * log_variance).mean()))
    assert epistemic[1] < 0.5 * epistemic[0]
    assert abs(aleatory[1] - 0.3) < 0.05


def test_a_posterior_that_the_last_step_broke_has_no_finite_loss():
    """The loss of the only step is finite; the step is not."""
    start = elbo.begin(posterior.init(jax.random.key(0), 1, 1, LINEAR, 0.1))
    prior = posterior.gaussian(start.posterior, 1.0)
    batch = Batch(jnp.ones((4, 2)), jnp.ones((4, 2)))
    for rate, finite in ((1e-3, True), (float("inf"), False)):
        _, loss = elbo.fit(jax.random.key(1), start, prior, lambda _: batch, 1, rate, LINEAR, LearnerSettings(), 1.0)
        assert bool(jnp.isfinite(loss.total)) == finite


def test_rows_that_only_fill_up_do_not_count():
    q = posterior.init(jax.random.key(0), 1, 1, LINEAR, 0.1)
    prior = posterior.gaussian(q, 1.0)
    batch = Batch(jnp.ones((4, 2)), 2.0 * jnp.ones((4, 2)))
    plain, _ = elbo.loss(jax.random.key(1), q, prior, batch, LINEAR, LearnerSettings(), 0.0)
    filled, _ = elbo.loss(jax.random.key(1), q, prior, batch.filled(9), LINEAR, LearnerSettings(), 0.0)
    np.testing.assert_allclose(filled, plain, rtol=1e-6)
