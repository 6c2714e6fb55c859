"""Learning a posterior: the bound by hand, known posteriors recovered, and several fits in one scan."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import dynamics, elbo, posterior
from posterity.models.dynamics import NetworkSettings, Prediction
from posterity.models.elbo import Batch, Fit, LearnerSettings, Learning
from posterity.models.posterior import Posterior

LINEAR = NetworkSettings(hidden=())


def linear(scale: float = 0.1, seed: int = 0) -> Posterior:
    return dynamics.init(jax.random.key(seed), 1, 1, LINEAR, scale)


def some_rows(count: int, seed: int = 0) -> Batch:
    generator = np.random.default_rng(seed)
    return Batch(*(jnp.asarray(generator.normal(size=(count, 2)), jnp.float32) for _ in range(2)))


def fitted(
    start: Learning,
    prior: Posterior,
    draw: Callable[[jax.Array], Batch],
    steps: int,
    rate: float,
    network: NetworkSettings,
    settings: LearnerSettings,
) -> tuple[Learning, elbo.Loss]:
    """One posterior by itself."""

    def program(begin: Learning, rate: float) -> tuple[Learning, elbo.Loss]:
        fit = Fit(jax.random.key(1), begin, prior, draw, rate, 1.0, settings.kl_weight)
        return elbo.fit([fit], steps, elbo.gradient(network, settings))[0]

    return jax.jit(program)(start, rate)


def test_local_noise_has_the_moments_of_drawn_weights():
    """For a linear map both give N(x W + b, x^2 W_var + b_var). 20,000 draws; 5 standard errors of the mean."""
    q = linear(0.3)
    x = jnp.array([[0.7, -1.3]])
    keys = jax.random.split(jax.random.key(1), 20_000)
    local = jax.vmap(lambda k: elbo.local_forward(k, q, x, LINEAR, 1.0).mean[0])(keys)
    drawn = jax.vmap(lambda k: dynamics.forward(posterior.sample(k, q), x, LINEAR).mean[0])(keys)
    spread = 0.3 * np.sqrt(1 + 0.7**2 + 1.3**2)
    assert np.abs(local.mean(axis=0) - drawn.mean(axis=0)).max() < 5 * spread * np.sqrt(2 / 20_000)
    np.testing.assert_allclose(local.std(axis=0), spread, rtol=0.03)
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.03)


def test_every_row_has_noise_of_its_own():
    """Two equal rows in 20,000 draws: their outputs are not correlated, to 5 standard errors."""
    keys = jax.random.split(jax.random.key(1), 20_000)
    got = jax.vmap(lambda k: elbo.local_forward(k, linear(0.3), jnp.ones((2, 2)), LINEAR, 1.0).mean[:, 0])(keys)
    assert abs(float(jnp.corrcoef(got.T)[0, 1])) < 5 / np.sqrt(20_000)


def test_the_log_likelihood_is_the_gaussian_density_with_the_reward_weighted():
    prediction = Prediction(jnp.array([[1.0, 2.0]]), jnp.log(jnp.array([[4.0, 0.25]])))
    got = elbo.log_likelihood(prediction, jnp.array([[3.0, 2.5]]), reward_weight=5.0)
    reward = -0.5 * (1.0 + np.log(4.0) + np.log(2 * np.pi))
    state = -0.5 * (1.0 + np.log(0.25) + np.log(2 * np.pi))
    np.testing.assert_allclose(got, [5 * reward + state], rtol=1e-5)


def test_the_loss_is_the_weighted_kl_less_the_log_likelihood():
    q, prior, batch = linear(), posterior.gaussian(linear(), 1.0), some_rows(4)
    settings = LearnerSettings(reward_weight=5.0)
    total, parts = elbo.loss(jax.random.key(1), q, prior, batch, LINEAR, settings, 1.0, kl_weight=0.025)
    np.testing.assert_allclose(parts.kl, posterior.kl(q, prior), rtol=1e-6)
    np.testing.assert_allclose(total, 0.025 * parts.kl - parts.log_likelihood, rtol=1e-6)
    np.testing.assert_array_equal(total, parts.loss)


@pytest.mark.parametrize("noise", [0.0, jnp.float32(0.0)], ids=["known before", "known when it runs"])
def test_without_noise_the_loss_is_a_plain_networks_likelihood_and_the_pull_to_its_priors_mean(
    noise: float | jax.Array,
):
    """With the prior N(0, 1) the pull is half the weights' squared length; with a weight of 0 there is none."""
    q, batch = linear(), some_rows(4)
    settings = LearnerSettings(reward_weight=5.0)
    density = elbo.log_likelihood(dynamics.forward(q.mean, batch.inputs, LINEAR), batch.targets, 5.0)
    pull = 0.5 * sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(q.mean))
    for scale in (1.0, 0.0):
        total, parts = elbo.loss(
            jax.random.key(1), q, posterior.gaussian(q, 1.0), batch, LINEAR, settings, noise, kl_weight=scale
        )
        np.testing.assert_allclose(parts.kl, pull, rtol=1e-5)
        np.testing.assert_allclose(total, scale * pull - density.mean(), rtol=1e-5)


def test_the_posterior_of_a_linear_regression_is_recovered():
    """Orthogonal inputs: given the noise the exact posterior factorises, so mean-field is exact.

    y = W x + noise of deviation 0.5, prior N(0, 1), n = 200. Given noise precision t: precision 1 + n t, mean t x'y/it.
    The noise is learned along; t is what the posterior expects of it.
    """
    count, true_noise = 200, 0.5
    x = np.stack([np.tile([1.0, -1.0], 100), np.repeat([1.0, -1.0], 100)], axis=1)  # orthogonal, mean zero
    y = x @ np.array([[0.8, -0.4], [0.3, 0.6]]) + true_noise * np.random.default_rng(0).normal(size=(count, 2))
    batch = Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    settings = LearnerSettings(kl_weight=1.0 / count)
    learned = elbo.begin(linear())
    prior = posterior.gaussian(learned.posterior, 1.0)
    for rate in (0.02, 0.002, 0.0004):
        learned, _ = fitted(learned, prior, lambda _: batch, 2000, rate, LINEAR, settings)
    draws = jax.vmap(
        lambda k: dynamics.forward(posterior.sample(k, learned.posterior), batch.inputs, LINEAR).log_variance
    )(jax.random.split(jax.random.key(2), 500))
    noise_precision = np.asarray(jnp.exp(-draws).mean(axis=(0, 1)))
    np.testing.assert_allclose(noise_precision, 1 / true_noise**2, rtol=0.25)  # 200 rows tell a variance to 10 %
    precision = 1.0 + count * noise_precision
    weight = learned.posterior.mean[0].weight[:, :2]
    scale = jax.nn.softplus(learned.posterior.rho[0].weight[:, :2])
    np.testing.assert_allclose(scale, np.broadcast_to(1 / np.sqrt(precision), (2, 2)), rtol=0.1)
    assert (np.abs(weight - (x.T @ y) * noise_precision / precision) < 0.25 / np.sqrt(precision)).all()


def test_spreads_tell_lack_of_data_from_noise():
    """Noise of deviation 0.3 in the targets. With more data the epistemic part shrinks, the aleatoric stays at 0.3."""
    shape = NetworkSettings(hidden=(32,))
    generator = np.random.default_rng(0)
    epistemic, aleatoric = [], []
    for count in (8, 2000):
        x = generator.uniform(-1, 1, (count, 2)).astype(np.float32)
        y = np.stack([np.sin(3 * x[:, 0]), x[:, 1] ** 2], axis=1) + 0.3 * generator.normal(size=(count, 2))
        data = Batch(jnp.asarray(x), jnp.asarray(y, jnp.float32))

        def draw(k: jax.Array, data: Batch = data, count: int = count) -> Batch:
            place = jax.random.randint(k, (128,), 0, count)
            return Batch(data.inputs[place], data.targets[place])

        start = elbo.begin(dynamics.init(jax.random.key(0), 1, 1, shape, 0.05))
        prior, weighed = posterior.gaussian(start.posterior, 0.5), LearnerSettings(kl_weight=1.0 / count)
        learned, _ = fitted(start, prior, draw, 3000, 3e-3, shape, weighed)
        inputs = jnp.asarray(generator.uniform(-1, 1, (200, 2)), jnp.float32)
        keys = jax.random.split(jax.random.key(3), 50)
        mean, log_variance = jax.vmap(
            lambda k, q=learned.posterior, inputs=inputs: dynamics.forward(posterior.sample(k, q), inputs, shape)
        )(keys)
        epistemic.append(float(mean.std(axis=0).mean()))
        aleatoric.append(float(jnp.exp(0.5 * log_variance).mean()))
    assert epistemic[1] < 0.5 * epistemic[0]
    assert abs(aleatoric[1] - 0.3) < 0.05


@pytest.mark.parametrize(("rate", "finite"), [(1e-3, True), (float("inf"), False)])
def test_a_posterior_that_the_last_step_broke_has_no_finite_loss(rate: float, finite: bool):
    """The loss of the only step is finite; the step is not."""
    start = elbo.begin(linear())
    batch = Batch(jnp.ones((4, 2)), jnp.ones((4, 2)))
    _, loss = fitted(
        start, posterior.gaussian(start.posterior, 1.0), lambda _: batch, 1, rate, LINEAR, LearnerSettings()
    )
    assert bool(jnp.isfinite(loss.loss)) == finite
    assert jnp.isfinite(loss.log_likelihood)


def test_rows_that_only_fill_up_do_not_count():
    q = linear()
    prior = posterior.gaussian(q, 1.0)
    batch = Batch(jnp.ones((4, 2)), 2.0 * jnp.ones((4, 2)))
    plain, _ = elbo.loss(jax.random.key(1), q, prior, batch, LINEAR, LearnerSettings(), 0.0)
    filled, _ = elbo.loss(jax.random.key(1), q, prior, batch.filled(9), LINEAR, LearnerSettings(), 0.0)
    np.testing.assert_allclose(filled, plain, rtol=1e-6)


def test_posteriors_learned_in_one_scan_are_those_learned_one_after_the_other():
    """Each with a start, a prior, a rate, a KL weight and a batch of its own; the smaller one is filled up.

    The one with fewer rows is a plain network: noise for a batch that is filled up is other noise.
    """

    def one(number: int, rows: int, rate: float, noise: float, kl_weight: float) -> Fit:
        start, batch = elbo.begin(linear(seed=number)), some_rows(rows, seed=number)
        prior = posterior.gaussian(start.posterior, 0.5 + number)
        return Fit(jax.random.key(number), start, prior, lambda _: batch, rate, noise, kl_weight)

    fits = [one(0, 8, 1e-2, 1.0, 1.0), one(1, 8, 1e-3, 1.0, 0.1), one(2, 5, 1e-2, 0.0, 0.1)]
    gradient = elbo.gradient(LINEAR, LearnerSettings())
    together, alone = jax.jit(
        lambda: (elbo.fit(fits, 20, gradient), [elbo.fit([fit], 20, gradient)[0] for fit in fits])
    )()
    for leaf, expected in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-6)
