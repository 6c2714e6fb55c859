import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import network, normaliser
from posterity.models.mlp import Layer, NetworkSettings
from posterity.models.normaliser import Normaliser
from posterity.planning import folding, fused, imagine

KEY = jax.random.key(0)
WORDS = jnp.array([3, 0x9ABCDEF0], jnp.uint32)


class Problem:
    """P networks, units far from 0 and 1, and candidates."""

    def __init__(
        self, obs_dim=3, action_dim=1, hidden=(16,), particles=2, count=20, horizon=4, activation: Any = "elu"
    ):
        self.settings = NetworkSettings(hidden=hidden, activation=activation)
        generator = np.random.default_rng(obs_dim + 100 * action_dim)

        def normal(*shape, scale: float = 1.0) -> Any:
            return np.float32(scale) * generator.standard_normal(shape, dtype=np.float32)

        inputs, targets = obs_dim + action_dim, 1 + obs_dim
        sizes = (inputs, *hidden, 2 * targets)
        self.networks = tuple(
            Layer(normal(particles, first, second, scale=first**-0.5), normal(particles, second, scale=0.3))
            for first, second in itertools.pairwise(sizes)
        )
        self.units = Normaliser(
            normal(inputs, scale=5.0),
            np.exp(normal(inputs, scale=0.5)),
            normal(targets, scale=0.2),
            np.exp(normal(targets, scale=0.5) - 1.0),
        )
        self.obs = self.units.input_mean[:obs_dim] + normal(obs_dim, scale=0.5)
        self.candidates = generator.uniform(-1.0, 1.0, (count, horizon, action_dim)).astype(np.float32)

    def box(self, width):
        return self.obs - width, self.obs + 2.0 * width

    def arrays(self):
        return self.networks, self.units, self.obs, self.candidates

    def plain(self, alive=None, sample=False):
        return plain(self.settings, sample, KEY, *self.arrays(), alive)

    def fused(self, alive=None, sample=False, words=WORDS, **options):
        options = {"precision": "f32", "block": 16, "interpret": True} | options
        return kernel(self.settings, sample, tuple(options.items()), words, *self.arrays(), alive)


@partial(jax.jit, static_argnums=(0, 1))
def plain(settings, sample, key, networks, units, obs, candidates, alive):
    """The plain rollout with the agent's step."""

    def step(k, obs, action):
        actions = jnp.broadcast_to(action, (obs.shape[0], *action.shape))
        taken = normaliser.inputs(units, obs, actions)
        mean, log_variance = jax.vmap(lambda w, x: network.forward(w, x, settings))(networks, taken)
        if sample:
            mean = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(k, mean.shape)
        return imagine.Imagined(*normaliser.outcome(units, obs, mean))

    return imagine.imagined_returns(key, step, obs, candidates, networks[0].weight.shape[0], alive)[0]


@partial(jax.jit, static_argnums=(0, 1, 2))
def kernel(settings, sample, options, words, *arrays):
    return fused.imagined_returns(
        words,
        *arrays,
        activation=settings.activation,
        log_variance_low=settings.log_variance_low,
        log_variance_high=settings.log_variance_high,
        sample=sample,
        **dict(options),
    )


FAMILIES = {
    "pendulum": (3, 1),
    "reach": (39, 4),
    "hopper": (11, 3),
    "cheetah": (18, 6),
    "walker": (17, 6),
    "box": (4, 2),
}


@pytest.mark.parametrize("dims", FAMILIES.values(), ids=FAMILIES.keys())
@pytest.mark.parametrize("ends", [False, True])
def test_without_noise_it_is_the_plain_rollout_in_every_familys_size(dims, ends):
    problem = Problem(*dims)
    alive = problem.box(1.0) if ends else None
    want = problem.plain(alive)
    if ends:
        assert (want != problem.plain()).any()  # the box does end rollouts
    np.testing.assert_allclose(problem.fused(alive), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hidden", [(64, 64), (128, 128), (200, 200), (40,), (16, 32, 16)], ids=str)
def test_without_noise_it_is_the_plain_rollout_for_every_shape_of_network(hidden):
    problem = Problem(11, 3, hidden)
    np.testing.assert_allclose(problem.fused(), problem.plain(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["elu", "silu", "tanh", "relu"])
def test_without_noise_it_is_the_plain_rollout_for_every_activation(activation):
    problem = Problem(hidden=(40, 20), activation=activation)
    np.testing.assert_allclose(problem.fused(), problem.plain(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("count", "block"), [(1, 16), (16, 16), (33, 32), (20, 64)])
def test_any_number_of_candidates_fits_any_block(count, block):
    problem = Problem(count=count)
    got = problem.fused(block=block)
    assert got.shape == (2, count)
    np.testing.assert_allclose(got, problem.plain(), rtol=1e-5, atol=1e-5)


def test_bf16_is_near():
    """A product rounds its factors to 8 bits; four steps keep the error near 1 % of the spread of returns."""
    problem = Problem(11, 3, (64, 64))
    want = problem.plain()
    error = problem.fused(precision="bf16") - want
    assert 0.0 < float(jnp.abs(error).max()) < 0.03 * float(jnp.abs(want).max())


def test_weights_read_in_every_step_give_the_same():
    problem = Problem()
    np.testing.assert_array_equal(problem.fused(sample=True, extras=("reload",)), problem.fused(sample=True))


@pytest.mark.parametrize("ends", [False, True])
def test_with_noise_mean_and_spread_of_returns_are_the_plain_rollouts(ends):
    """All candidates alike: their returns are 2,000 draws of one distribution, here and there."""
    problem = Problem(count=2000, horizon=5)
    problem.candidates[:] = problem.candidates[0]
    alive = problem.box(2.0) if ends else None
    one, other = problem.fused(alive, sample=True, block=256), problem.plain(alive, sample=True)
    error = np.sqrt((one.var(axis=1) + other.var(axis=1)) / 2000)
    assert (np.abs(one.mean(axis=1) - other.mean(axis=1)) < 4.0 * error).all()
    np.testing.assert_allclose(one.std(axis=1), other.std(axis=1), rtol=4.0 * np.sqrt(2.0 / 2000))


def test_lanes_together_are_the_lanes_alone():
    problems = [Problem(), Problem()]
    problems[1].obs = problems[1].obs + 0.3
    problems[1].networks = jax.tree.map(lambda leaf: 0.7 * leaf, problems[1].networks)
    words = jnp.array([[1, 2], [3, 4]], jnp.uint32)

    def one(words, networks, units, obs, candidates):
        options = (("block", 16), ("interpret", True))
        box = obs - 1.0, obs + 1.0
        return kernel(problems[0].settings, True, options, words, networks, units, obs, candidates, box)

    lanes = [(words[i], p.networks, p.units, p.obs, p.candidates) for i, p in enumerate(problems)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)
    together = jax.jit(jax.vmap(one))(*stacked)
    for lane, alone in enumerate(lanes):
        np.testing.assert_allclose(together[lane], one(*alone), rtol=1e-5, atol=1e-5)
    assert np.abs(together[0] - together[1]).min() > 0.0


@pytest.mark.parametrize("activation", ["elu", "silu", "tanh", "relu"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_broken_particle_gives_no_number_and_spoils_no_other(activation, ends):
    problem = Problem(activation=activation)
    alive = problem.box(5.0) if ends else None
    want = problem.fused(alive)
    broken = Layer(jnp.asarray(problem.networks[0].weight).at[1, 0, 0].set(jnp.nan), problem.networks[0].bias)
    problem.networks = (broken, *problem.networks[1:])
    got = problem.fused(alive)
    np.testing.assert_array_equal(got[0], want[0])
    assert not jnp.isfinite(got[1]).any()


def test_what_it_cannot_do_it_says():
    def why(*args, **options):
        problem = Problem(*args, **options)
        return folding.supported(problem.networks, args[0], args[1], problem.settings.activation)

    for dims in FAMILIES.values():
        assert why(*dims, (128, 128)) == ""
        assert why(*dims, (200, 200)) == ""
    assert "KB" in why(3, 1, (512, 512), particles=1)
    assert "hidden" in why(3, 1, ())
    assert "'gelu'" in folding.supported(Problem().networks, 3, 1, "gelu")


def test_what_is_still_going_is_worth_its_last_state():
    problem = Problem(11, 3, (16, 16), horizon=3)
    box = problem.box(2.5)

    def final(last):
        return 100.0 + last.sum(axis=-1)

    def step(k, obs, action):
        actions = jnp.broadcast_to(action, (obs.shape[0], *action.shape))
        taken = normaliser.inputs(problem.units, obs, actions)
        mean, _ = jax.vmap(lambda w, x: network.forward(w, x, problem.settings))(problem.networks, taken)
        return imagine.Imagined(*normaliser.outcome(problem.units, obs, mean))

    expected, _ = imagine.imagined_returns(KEY, step, problem.obs, jnp.asarray(problem.candidates), 2, box, final)
    got = problem.fused(box, final=final)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    going = np.asarray(expected) > 50
    assert going.any()
    assert not going.all()


@pytest.mark.skipif(jax.__version_info__ > (0, 10, 2), reason="a later JAX compiles when it lowers, and needs the GPU")
@pytest.mark.parametrize("extras", [(), ("no-asm", "reload"), ("no-noise", "no-activation", "no-variance")], ids=str)
@pytest.mark.parametrize("precision", ["bf16", "tf32", "f32"])
def test_the_gpus_compiler_takes_every_operation(extras, precision):
    """Lowering to Triton's language needs no GPU. It is done for lanes, which have a grid of three dimensions."""
    problem = Problem(11, 3, (64, 48), activation="silu" if precision == "tf32" else "elu")
    options = (("precision", precision), ("extras", extras))
    lanes = jax.jit(jax.vmap(partial(kernel, problem.settings, True, options)))
    arrays = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (WORDS, *problem.arrays(), problem.box(1.0)))
    traced = lanes.trace(*arrays)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text
