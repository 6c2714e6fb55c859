"""The fused fit against the plain one: the same numbers for the same noise, and what it cannot do it says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posterity.kernels import common, layout
from posterity.kernels import elbo as fused
from posterity.kernels.elbo_block import BLOCK
from posterity.models import dynamics, elbo, posterior
from posterity.models.dynamics import NetworkSettings
from posterity.models.elbo import Batch, Fit, LearnerSettings, Learning, Loss
from posterity.models.mlp import ACTIVATIONS, Layers
from posterity.models.posterior import Posterior

WORDS = jnp.array([7, 0x89ABCDEF], jnp.uint32)
REWARD_WEIGHT = 5.0
Arrays = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]  # words, sheets of means and variances, rows


def variances(q: Posterior) -> Layers:
    return jax.tree.map(lambda rho: jax.nn.softplus(rho) ** 2, q.rho)


class Problem:
    """A posterior with spreads of every size, and a batch."""

    def __init__(
        self,
        obs_dim: int = 5,
        action_dim: int = 2,
        hidden: tuple[int, ...] = (32, 32),
        rows: int = 100,
        activation: str = "elu",
        seed: int = 0,
    ) -> None:
        self.shape = NetworkSettings.model_validate(
            {"hidden": hidden, "activation": activation, "log_variance_low": -5.0}
        )
        q = dynamics.init(jax.random.key(seed), obs_dim, action_dim, self.shape, 0.1)
        keys = iter(jax.random.split(jax.random.key(seed + 1), 20))
        spread = jax.tree.map(lambda rho: rho + 0.5 * jax.random.normal(next(keys), rho.shape), q.rho)
        bias = jax.tree.map(lambda mean: mean + 0.1 * jax.random.normal(next(keys), mean.shape), q.mean)
        self.q = Posterior(bias, spread)
        generator = np.random.default_rng(seed)
        self.inputs = jnp.asarray(generator.normal(size=(rows, obs_dim + action_dim)), jnp.float32)
        self.targets = jnp.asarray(generator.normal(size=(rows, 1 + obs_dim)), jnp.float32)
        self.layout = layout.layout_of(self.q.mean)
        self.words = WORDS

    def arrays(self) -> Arrays:
        mean = layout.pack(self.q.mean, self.layout)
        return self.words, mean, layout.pack(variances(self.q), self.layout, fill=1.0), self.inputs, self.targets

    def kernel(self, shares: jax.Array, noise: float | jax.Array = 1.0) -> fused.Gradients:
        return kernel(self, self.arrays(), shares, noise, interpret=True)

    def drawn(self, rows: int, width: int, stream: int) -> jax.Array:
        """The normals the kernel draws for a layer."""
        first, second = jax.lax.bitcast_convert_type(self.words, jnp.int32)
        blocks = []
        for number in range(-(-rows // BLOCK)):
            place = np.arange(BLOCK)[:, None] * width + np.arange(width) + stream * BLOCK * self.layout.units
            words = common.seeds(first, second, jnp.int32(number))
            blocks.append(common.noise(common.TWO_LN_2, jnp.asarray(place, jnp.int32), words))
        return jnp.concatenate(blocks)[:rows]

    def plain(self, mean: Layers, variance: Layers, shares: jax.Array, noise: float | jax.Array = 1.0) -> jax.Array:
        """Minus the log-likelihood with those normals, written as `elbo.local_forward` has it."""
        x, heads, layers = self.inputs, self.layout.heads, self.layout.layers
        for number, (layer, spread) in enumerate(zip(mean, variance, strict=True)):
            scale = jnp.sqrt(x**2 @ spread.weight + spread.bias[None])
            size = self.layout.outputs
            if number < layers:
                e = self.drawn(len(x), self.layout.units, number)
            else:
                e = jnp.concatenate([self.drawn(len(x), heads, layers + head)[:, :size] for head in (0, 1)], axis=1)
            x = x @ layer.weight + layer.bias[None] + noise * scale * e
            x = x if number == layers else ACTIVATIONS[self.shape.activation](x)
        density = elbo.log_likelihood(dynamics.gaussian(x, self.shape), self.targets, REWARD_WEIGHT)
        return -(shares * density).sum()


def kernel(
    problem: Problem, arrays: Arrays, shares: jax.Array, noise: float | jax.Array, interpret: bool
) -> fused.Gradients:
    """The kernel for networks of the problem's shape, on any arrays."""
    words, mean, variance, inputs, targets = arrays
    return fused.gradients(
        words,
        mean,
        variance,
        inputs,
        targets,
        shares,
        jnp.asarray(noise, jnp.float32),
        problem.layout,
        problem.shape,
        REWARD_WEIGHT,
        exact=interpret,
        interpret=interpret,
    )


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"activation": "tanh", "rows": 64},
        {"activation": "relu", "hidden": (16,), "obs_dim": 3, "action_dim": 1},
        {"hidden": (64, 64, 64), "obs_dim": 18, "action_dim": 6, "rows": 130},
    ],
    ids=str,
)
def test_gradients_are_those_of_automatic_differentiation_for_the_same_noise(sizes: dict[str, Any]):
    problem = Problem(**sizes)
    rows = len(problem.inputs)
    shares = jnp.where(jnp.arange(rows) < rows - 20, 1.0, 0.0) / (rows - 20)  # the last ones only fill up
    plain = jax.jit(jax.value_and_grad(problem.plain, argnums=(0, 1)))
    by_kernel = jax.jit(problem.kernel)
    for noise in (1.0, 0.3):
        loss, (d_mean, d_variance) = plain(problem.q.mean, variances(problem.q), shares, noise)
        found = by_kernel(shares, noise)
        np.testing.assert_allclose(-found.log_likelihood, loss, rtol=1e-4)
        for sheet, tree in ((found.mean, d_mean), (found.variance, d_variance)):
            got = layout.unpack(sheet, problem.layout)
            size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree))
            for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(tree), strict=True):
                np.testing.assert_allclose(one, other, atol=2e-4 * size, rtol=2e-3)


def test_without_noise_it_is_a_plain_network():
    problem = Problem()
    prediction = dynamics.forward(problem.q.mean, problem.inputs, problem.shape)
    density = elbo.log_likelihood(prediction, problem.targets, REWARD_WEIGHT).mean()
    found = problem.kernel(jnp.full(100, 0.01), noise=0.0)
    np.testing.assert_allclose(found.log_likelihood, density, rtol=1e-4)
    assert (found.variance == 0.0).all()


def test_what_pads_a_sheet_gets_no_gradient():
    problem = Problem(obs_dim=3, action_dim=1)
    pads = layout.pack(jax.tree.map(jnp.zeros_like, problem.q.mean), problem.layout, fill=1.0) == 1.0
    assert pads.any()
    found = problem.kernel(jnp.full(100, 0.01))
    for sheet in (found.mean, found.variance):
        assert (sheet[pads] == 0.0).all()
        assert (sheet != 0.0).any()


@pytest.mark.skipif(jax.__version_info__ > (0, 10, 2), reason="a later JAX compiles when it lowers, and needs the GPU")
@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden": (128, 128), "obs_dim": 18, "action_dim": 6},
        {"hidden": (16,), "obs_dim": 3, "action_dim": 1, "activation": "tanh"},
        {"hidden": (64, 64, 64), "activation": "relu"},
    ],
    ids=str,
)
def test_the_gpus_compiler_takes_every_operation(sizes: dict[str, Any]):
    """Lowering to Triton's language needs no GPU. It is done as in a run: two posteriors in every lane."""
    problem = Problem(**sizes)
    shares = jnp.full(len(problem.inputs), 0.01)

    def one(arrays: Arrays) -> fused.Gradients:
        return kernel(problem, arrays, shares, 1.0, interpret=False)

    lanes = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2, 2, *leaf.shape)), problem.arrays())
    text = jax.jit(jax.vmap(jax.vmap(one))).trace(lanes).lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text


def test_a_step_is_adams_on_the_whole_loss():
    """KL with its weight, the reward's weight and an optimiser that has begun: against automatic differentiation."""
    problem = Problem(obs_dim=2, action_dim=1, hidden=(16, 16), rows=64)
    settings = LearnerSettings(reward_weight=REWARD_WEIGHT)
    prior = posterior.gaussian(problem.q, 0.5)
    begun = elbo.begin(problem.q)
    moments = jax.tree.map(lambda leaf: 0.01 * jnp.ones_like(leaf), problem.q)
    begun = begun._replace(optimiser=begun.optimiser._replace(count=jnp.int32(7), mu=moments, nu=moments))  # pyright: ignore[reportAttributeAccessIssue]
    batch = Batch(problem.inputs, problem.targets)
    fit = Fit(jax.random.key(3), begun, prior, lambda _: batch, 0.003, 1.0, 0.025)
    [(learned, loss)] = jax.jit(lambda: fused.fit([fit], 1, problem.shape, settings, exact=True))()

    key = jax.random.split(jax.random.split(fit.key, 1)[0])[1]
    problem.words = jax.random.key_data(key)  # those of the step

    def whole(q: Posterior) -> jax.Array:
        return problem.plain(q.mean, variances(q), jnp.full(64, 1 / 64)) + 0.025 * posterior.kl(q, prior)

    total, gradient = jax.jit(jax.value_and_grad(whole))(problem.q)
    change, _ = optax.scale_by_adam().update(gradient, begun.optimiser)
    expected = jax.tree.map(lambda old, move: old - 0.003 * move, problem.q, change)
    np.testing.assert_allclose(loss.loss, total, rtol=1e-4)
    np.testing.assert_allclose(loss.kl, posterior.kl(problem.q, prior), rtol=1e-5)
    for one, other in zip(jax.tree.leaves(learned.posterior), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_lanes_are_independent():
    one, other = Problem(seed=0), Problem(seed=5)

    def found_of(arrays: Arrays) -> fused.Gradients:
        return kernel(one, arrays, jnp.full(100, 0.01), 1.0, interpret=True)

    alone = [jax.jit(found_of)(problem.arrays()) for problem in (one, other)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), one.arrays(), other.arrays())
    together = jax.jit(jax.vmap(found_of))(stacked)
    for lane, found in enumerate(alone):
        for got, expected in zip(together, found, strict=True):
            np.testing.assert_allclose(got[lane], expected, rtol=1e-4, atol=1e-5)


def test_fitting_by_it_comes_out_where_fitting_without_it_does():
    """Two posteriors in one scan, one of them with rows that only fill up; other noise, so alike and not equal."""
    problem = Problem(obs_dim=2, action_dim=1, hidden=(16, 16), rows=128)
    truth = jnp.tanh(problem.inputs @ jnp.array([[1.0, 0.2, -0.5], [0.3, -1.0, 0.4], [0.1, 0.6, 0.8]]))
    whole, part = Batch(problem.inputs, truth), Batch(problem.inputs[:64], truth[:64])
    q = dynamics.init(jax.random.key(1), 2, 1, problem.shape, 0.02)
    prior, settings = posterior.gaussian(q, 0.5), LearnerSettings(kl_weight=1e-3)
    fits = [
        Fit(jax.random.key(n), elbo.begin(q), prior, lambda _, batch=batch: batch, 0.003, noise, settings.kl_weight)
        for n, (batch, noise) in enumerate(((whole, 1.0), (part, 0.5)))
    ]

    def both() -> tuple[list[tuple[Learning, Loss]], ...]:
        gradient = elbo.gradient(problem.shape, settings)
        return elbo.fit(fits, 400, gradient), fused.fit(fits, 400, problem.shape, settings, exact=True)

    for (plain, loss), (by_kernel, its) in zip(*jax.jit(both)(), strict=True):
        assert jax.tree.structure(plain) == jax.tree.structure(by_kernel)
        np.testing.assert_allclose(its.log_likelihood, loss.log_likelihood, atol=0.25)
        np.testing.assert_allclose(its.kl, loss.kl, rtol=0.02)
        np.testing.assert_array_equal(by_kernel.optimiser.count, plain.optimiser.count)  # pyright: ignore[reportAttributeAccessIssue]
        answers = [
            dynamics.forward(each.posterior.mean, problem.inputs, problem.shape).mean for each in (plain, by_kernel)
        ]
        assert float(jnp.abs(answers[0] - truth).mean()) < 0.15
        np.testing.assert_allclose(answers[0], answers[1], atol=0.25)


@pytest.mark.parametrize(
    ("change", "obs_dim", "reason"),
    [
        ({"activation": "silu"}, 8, "has no activation 'silu'; it has elu, tanh, relu"),
        ({"hidden": (64, 32)}, 8, "needs hidden layers of one size"),
        ({"hidden": ()}, 8, "needs hidden layers of one size"),
        ({"hidden": (200, 200)}, 8, "needs 16, 32, 64 or 128 units a layer, not 200"),
        ({"hidden": (16, 16)}, 38, "has no room for 40 inputs and 39 outputs"),
        ({}, 8, ""),
    ],
)
def test_what_it_cannot_do_it_says(change: dict[str, Any], obs_dim: int, reason: str):
    network = NetworkSettings.model_validate(change)
    said = fused.fallback_reason("on", network, obs_dim, 2, exact=True)
    assert said == (f"the fused fit {reason}" if reason else "")
    assert fused.fallback_reason("off", network, obs_dim, 2, exact=True) == "kernels are off"


@pytest.mark.parametrize(
    ("capability", "exact", "reason"),
    [((9, 0), True, "float32"), ((7, 5), False, "Ampere"), ((8, 0), False, ""), ((9, 0), False, "")],
)
def test_what_a_gpu_cannot_do_it_says(
    capability: tuple[int, int], exact: bool, reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(common, "nvidia", lambda: True)
    monkeypatch.setattr(common, "capability", lambda: capability)
    said = fused.fallback_reason("auto", NetworkSettings(), 18, 6, exact)
    assert reason in said if reason else not said
