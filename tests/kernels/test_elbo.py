"""The fused fit against the plain one: the same numbers for the same noise, and what it cannot do it says."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posterity.kernels import common as kernels
from posterity.kernels.elbo import BLOCK, Form
from posterity.models import elbo, fitting, network, posterior
from posterity.models.elbo import Batch, Fit, LearnerSettings
from posterity.models.mlp import NetworkSettings
from posterity.models.posterior import Posterior

WORDS = jnp.array([7, 0x89ABCDEF], jnp.uint32)


class Problem:
    """A posterior with spreads of every size, and a batch."""

    def __init__(self, obs_dim=5, action_dim=2, hidden=(32, 32), rows=100, activation="elu", seed=0):
        self.shape = NetworkSettings.model_validate(
            {"hidden": hidden, "activation": activation, "log_variance_low": -5.0}
        )
        self.q = posterior.init(jax.random.key(seed), obs_dim, action_dim, self.shape, 0.1)
        keys = iter(jax.random.split(jax.random.key(seed + 1), 20))
        spread = jax.tree.map(lambda rho: rho + 0.5 * jax.random.normal(next(keys), rho.shape), self.q.rho)
        bias = jax.tree.map(lambda mean: mean + 0.1 * jax.random.normal(next(keys), mean.shape), self.q.mean)
        self.q = Posterior(bias, spread)
        generator = np.random.default_rng(seed)
        self.inputs = jnp.asarray(generator.normal(size=(rows, obs_dim + action_dim)), jnp.float32)
        self.targets = jnp.asarray(generator.normal(size=(rows, 1 + obs_dim)), jnp.float32)
        self.form = fitting.form_of(self.q.mean)
        self.words = WORDS

    def kernel(self, shares: jax.Array, noise: float = 1.0) -> fitting.Gradients:
        variance = jax.tree.map(lambda rho: jax.nn.softplus(rho) ** 2, self.q.rho)
        return fitting.gradients(
            self.words,
            fitting.laid(self.q.mean, self.form),
            fitting.laid(variance, self.form, fill=1.0),
            self.inputs,
            self.targets,
            shares,
            jnp.float32(noise),
            self.form,
            self.shape,
            5.0,
            exact=True,
            interpret=True,
        )

    def drawn(self, rows: int, width: int, stream: int) -> jax.Array:
        """The normals the kernel draws for a layer."""
        first, second = jax.lax.bitcast_convert_type(self.words, jnp.int32)
        blocks = []
        for number in range(-(-rows // BLOCK)):
            place = np.arange(BLOCK)[:, None] * width + np.arange(width) + stream * BLOCK * self.form.units
            words = kernels.seeds(first, second, jnp.int32(number))
            blocks.append(kernels.noise(kernels.TWO_LN_2, jnp.asarray(place, jnp.int32), words))
        return jnp.concatenate(blocks)[:rows]

    def plain(self, mean, variance, shares, noise=1.0):
        """Minus the log-likelihood with those normals, written as `elbo.local_forward` has it."""
        x, heads, layers = self.inputs, self.form.heads, self.form.layers
        for number, (layer, spread) in enumerate(zip(mean, variance, strict=True)):
            scale = jnp.sqrt(x**2 @ spread.weight + spread.bias)
            size = self.form.outputs
            if number < layers:
                e = self.drawn(len(x), self.form.units, number)
            else:
                e = jnp.concatenate([self.drawn(len(x), heads, layers + head)[:, :size] for head in (0, 1)], axis=1)
            x = x @ layer.weight + layer.bias + noise * scale * e
            x = x if number == layers else network.ACTIVATIONS[self.shape.activation](x)
        density = elbo.log_likelihood(network.split(x, self.shape), self.targets, 5.0)
        return -(shares * density).sum()


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"activation": "tanh", "rows": 64},
        {"activation": "relu", "hidden": (16,), "obs_dim": 3, "action_dim": 1},
        {"hidden": (64, 64, 64), "obs_dim": 18, "action_dim": 6, "rows": 130},
    ],
)
def test_gradients_are_those_of_automatic_differentiation_for_the_same_noise(sizes):
    problem = Problem(**sizes)
    rows = len(problem.inputs)
    shares = jnp.where(jnp.arange(rows) < rows - 20, 1.0, 0.0) / (rows - 20)  # the last ones only fill up
    variance = jax.tree.map(lambda rho: jax.nn.softplus(rho) ** 2, problem.q.rho)
    for noise in (1.0, 0.3):
        loss, (d_mean, d_variance) = jax.value_and_grad(problem.plain, argnums=(0, 1))(
            problem.q.mean, variance, shares, noise
        )
        found = problem.kernel(shares, noise)
        np.testing.assert_allclose(-found.log_likelihood, loss, rtol=1e-4)
        for sheet, tree in ((found.mean, d_mean), (found.variance, d_variance)):
            got = fitting.taken(sheet, problem.form)
            size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree))
            for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(tree), strict=True):
                np.testing.assert_allclose(one, other, atol=2e-4 * size, rtol=2e-3)


def test_without_noise_it_is_a_plain_network():
    problem = Problem()
    shares = jnp.full(100, 0.01)
    density = elbo.log_likelihood(
        network.forward(problem.q.mean, problem.inputs, problem.shape), problem.targets, 5.0
    ).mean()
    found = problem.kernel(shares, 0.0)
    np.testing.assert_allclose(found.log_likelihood, density, rtol=1e-4)
    assert (found.variance == 0.0).all()


def test_a_sheet_holds_all_weights_and_what_pads_it_gets_no_gradient():
    problem = Problem(obs_dim=3, action_dim=1)
    sheet = fitting.laid(problem.q.mean, problem.form, fill=7.0)
    assert sheet.shape == (problem.form.rows, 32)
    back = fitting.taken(sheet, problem.form)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(problem.q.mean), strict=True):
        np.testing.assert_array_equal(one, other)
    pads = fitting.laid(jax.tree.map(jnp.zeros_like, problem.q.mean), problem.form, fill=1.0) == 1.0
    assert pads.sum() == sheet.size - sum(leaf.size for leaf in jax.tree.leaves(problem.q.mean))
    found = problem.kernel(jnp.full(100, 0.01))
    assert (found.mean[pads] == 0.0).all()
    assert (found.variance[pads] == 0.0).all()


@pytest.mark.skipif(jax.__version_info__ > (0, 10, 2), reason="a later JAX compiles when it lowers, and needs the GPU")
@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden": (128, 128), "obs_dim": 18, "action_dim": 6},
        {"hidden": (16,), "obs_dim": 3, "action_dim": 1, "activation": "tanh"},
        {"hidden": (64, 64, 64), "activation": "relu"},
    ],
)
def test_the_gpus_compiler_takes_every_operation(sizes):
    """Lowering to Triton's language needs no GPU. It is done as in a run: two posteriors in every lane."""
    problem = Problem(**sizes)
    shares = jnp.full(len(problem.inputs), 0.01)

    def one(words, mean, variance, inputs, targets):
        args = (shares, jnp.float32(1.0), problem.form, problem.shape, 5.0)
        return fitting.gradients(words, mean, variance, inputs, targets, *args)

    sheet = fitting.laid(problem.q.mean, problem.form)
    arrays = (WORDS, sheet, sheet, problem.inputs, problem.targets)
    lanes = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2, 2, *leaf.shape)), arrays)
    text = jax.jit(jax.vmap(jax.vmap(one))).trace(*lanes).lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text


def test_a_step_is_adams_on_the_whole_loss():
    """KL with its factor, the reward's weight and an optimiser that has begun: against automatic differentiation."""
    problem = Problem(obs_dim=2, action_dim=1, hidden=(16, 16), rows=64)
    settings = LearnerSettings(kl_weight=0.1, reward_weight=5.0, fused="on")
    prior = posterior.gaussian(problem.q, 0.5)
    begun = elbo.begin(problem.q)
    moments = jax.tree.map(lambda leaf: 0.01 * jnp.ones_like(leaf), problem.q)
    begun = begun._replace(optimiser=begun.optimiser._replace(count=jnp.int32(7), mu=moments, nu=moments))  # pyright: ignore[reportAttributeAccessIssue]
    batch = Batch(problem.inputs, problem.targets)
    fit = Fit(jax.random.key(3), begun, prior, lambda _: batch, 0.003, 1.0, 0.25)
    [(learned, loss)] = elbo.fit_all([fit], 1, problem.shape, settings)

    key = jax.random.split(jax.random.split(fit.key, 1)[0])[1]
    problem.words = jax.random.key_data(key)  # those of the step

    def whole(q):
        variance = jax.tree.map(lambda rho: jax.nn.softplus(rho) ** 2, q.rho)
        return problem.plain(q.mean, variance, jnp.full(64, 1 / 64)) + 0.25 * 0.1 * posterior.kl(q, prior)

    total, gradient = jax.value_and_grad(whole)(problem.q)
    change, _ = optax.scale_by_adam().update(gradient, begun.optimiser)
    expected = jax.tree.map(lambda old, move: old - 0.003 * move, problem.q, change)
    np.testing.assert_allclose(loss.total, total, rtol=1e-4)
    for one, other in zip(jax.tree.leaves(learned.posterior), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_lanes_are_independent():
    one, other = Problem(seed=0), Problem(seed=5)
    shares = jnp.full(100, 0.01)
    alone = [problem.kernel(shares) for problem in (one, other)]

    def both(words, mean, variance, inputs, targets):
        return fitting.gradients(
            words, mean, variance, inputs, targets, shares, jnp.float32(1.0), one.form, one.shape, 5.0,
            exact=True, interpret=True,
        )  # fmt: skip

    def laid(problem):
        variance = jax.tree.map(lambda rho: jax.nn.softplus(rho) ** 2, problem.q.rho)
        mean = fitting.laid(problem.q.mean, problem.form)
        return WORDS, mean, fitting.laid(variance, problem.form, fill=1.0), problem.inputs, problem.targets

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), laid(one), laid(other))
    together = jax.vmap(both)(*stacked)
    for lane, found in enumerate(alone):
        for got, expected in zip(together, found, strict=True):
            np.testing.assert_allclose(got[lane], expected, rtol=1e-4, atol=1e-5)


def test_fitting_by_it_comes_out_where_fitting_without_it_does():
    """Two posteriors in one scan, one of them with rows that only fill up; other noise, so alike and not equal."""
    problem = Problem(obs_dim=2, action_dim=1, hidden=(16, 16), rows=128)
    truth = jnp.tanh(problem.inputs @ jnp.array([[1.0, 0.2, -0.5], [0.3, -1.0, 0.4], [0.1, 0.6, 0.8]]))
    whole, part = Batch(problem.inputs, truth), Batch(problem.inputs[:64], truth[:64])
    q = posterior.init(jax.random.key(1), 2, 1, problem.shape, 0.02)
    prior = posterior.gaussian(q, 0.5)
    fits = [
        Fit(jax.random.key(n), elbo.begin(q), prior, lambda _, batch=batch: batch, 0.003, noise)
        for n, (batch, noise) in enumerate(((whole, 1.0), (part, 0.5)))
    ]
    found = {}
    for fused in ("off", "on"):
        settings = LearnerSettings(kl_weight=1e-3, fused=fused)
        found[fused] = jax.jit(lambda s=settings: elbo.fit_all(fits, 400, problem.shape, s))()
    for (plain, loss), (by_kernel, its) in zip(found["off"], found["on"], strict=True):
        assert jax.tree.structure(plain) == jax.tree.structure(by_kernel)
        np.testing.assert_allclose(its.log_likelihood, loss.log_likelihood, atol=0.25)
        np.testing.assert_allclose(its.kl, loss.kl, rtol=0.02)
        np.testing.assert_array_equal(by_kernel.optimiser.count, plain.optimiser.count)
        answers = [
            network.forward(each.posterior.mean, problem.inputs, problem.shape).mean for each in (plain, by_kernel)
        ]
        assert float(jnp.abs(answers[0] - truth).mean()) < 0.15
        np.testing.assert_allclose(answers[0], answers[1], atol=0.25)


@pytest.mark.parametrize(
    ("change", "inputs", "reason"),
    [
        ({"activation": "silu"}, 10, "no activation 'silu'"),
        ({"hidden": (64, 32)}, 10, "layers of one size"),
        ({"hidden": (200, 200)}, 10, "not 200"),
        ({"hidden": (16, 16)}, 40, "no room for 40 inputs"),
    ],
)
def test_what_it_cannot_do_it_says(change, inputs, reason):
    shape = NetworkSettings.model_validate(change)
    assert reason in fitting.why_plain(shape, inputs, inputs - 2)
    assert not fitting.why_plain(NetworkSettings(), 24, 19)


def test_the_plan_of_the_papers_networks():
    form = Form(inputs=14, outputs=12, layers=2, units=128)
    assert (form.wide, form.heads, form.first_head, form.biases, form.rows) == (16, 16, 144, 176, 180)
