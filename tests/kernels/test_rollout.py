"""The fused rollout against the plain one: the same returns without noise, the same distribution with it."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.kernels import rollout as fused
from posterity.kernels.weights import Precision
from posterity.models import normaliser
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.models.mlp import Layer, Layers
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.planning.rollout import Box, ImaginedStep, TerminalValue, imagined_returns

KEY = jax.random.key(0)
WORDS = jnp.array([3, 0x9ABCDEF0], jnp.uint32)
PARTICLES = 2
Arrays = tuple[Layers, Normaliser, jax.Array, jax.Array]  # networks, normaliser, observation, candidates
FAMILIES = {
    "pendulum": (3, 1),
    "reach": (39, 4),
    "hopper": (11, 3),
    "cheetah": (18, 6),
    "walker": (17, 6),
    "box": (4, 2),
}


class Problem:
    """P networks, units far from 0 and 1, and candidates."""

    def __init__(
        self,
        obs_dim: int = 3,
        action_dim: int = 1,
        hidden: tuple[int, ...] = (16,),
        count: int = 20,
        horizon: int = 4,
        activation: str = "elu",
    ) -> None:
        self.settings = NetworkSettings.model_validate({"hidden": hidden, "activation": activation})
        generator = np.random.default_rng(obs_dim + 100 * action_dim)

        def normal(*shape: int, scale: float = 1.0) -> jax.Array:
            return jnp.float32(scale) * generator.standard_normal(shape, dtype=np.float32)

        inputs, targets = obs_dim + action_dim, 1 + obs_dim
        self.networks: Layers = tuple(
            Layer(normal(PARTICLES, first, second, scale=first**-0.5), normal(PARTICLES, second, scale=0.3))
            for first, second in itertools.pairwise(self.settings.sizes(obs_dim, action_dim))
        )
        self.normaliser = Normaliser(
            normal(inputs, scale=5.0),
            jnp.exp(normal(inputs, scale=0.5)),
            normal(targets, scale=0.2),
            jnp.exp(normal(targets, scale=0.5) - 1.0),
        )
        self.obs = self.normaliser.input_mean[:obs_dim] + normal(obs_dim, scale=0.5)
        self.candidates = jnp.asarray(generator.uniform(-1.0, 1.0, (count, horizon, action_dim)), jnp.float32)

    def box(self, width: float) -> Box:
        return self.obs - width, self.obs + 2.0 * width

    def arrays(self) -> Arrays:
        return self.networks, self.normaliser, self.obs, self.candidates

    def plain(self, alive: Box | None = None, sample: bool = False, value: TerminalValue | None = None) -> jax.Array:
        return plain(self.settings, sample, value, self.arrays(), alive)

    def fused(
        self,
        alive: Box | None = None,
        sample: bool = False,
        precision: Precision = "f32",
        value: TerminalValue | None = None,
    ) -> jax.Array:
        return kernel(self.settings, sample, precision, value, True, WORDS, self.arrays(), alive)


@partial(jax.jit, static_argnums=(0, 1, 2))
def plain(
    settings: NetworkSettings, sample: bool, value: TerminalValue | None, arrays: Arrays, alive: Box | None
) -> jax.Array:
    """The plain rollout, by the steps of a dynamics model; of its posterior nothing is used."""
    networks, units, obs, candidates = arrays
    posterior = Posterior(networks, networks)
    model = DynamicsModel(posterior, units, jnp.float32(1.0), jnp.ones_like(units.target_mean))

    def step(key: jax.Array, place: jax.Array, action: jax.Array) -> ImaginedStep:
        return ImaginedStep(*model.step(key, place, model.predict(networks, place, action, settings), sample))

    return imagined_returns(KEY, step, obs, candidates, PARTICLES, alive, value)[0]


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def kernel(
    settings: NetworkSettings,
    sample: bool,
    precision: Precision,
    value: TerminalValue | None,
    interpret: bool,
    words: jax.Array,
    arrays: Arrays,
    alive: Box | None,
) -> jax.Array:
    networks, units, obs, candidates = arrays
    returns = fused.make_fused_returns(
        networks,
        units,
        obs,
        alive,
        settings,
        sample=sample,
        precision=precision,
        interpret=interpret,
        terminal_value=value,
    )
    return returns(words, candidates)


@pytest.mark.parametrize("dims", FAMILIES.values(), ids=FAMILIES.keys())
@pytest.mark.parametrize("ends", [False, True])
def test_without_noise_it_is_the_plain_rollout_in_every_familys_size(dims: tuple[int, int], ends: bool):
    problem = Problem(*dims)
    alive = problem.box(1.0) if ends else None
    want = problem.plain(alive)
    if ends:
        assert (want != problem.plain()).any()  # the box does end rollouts
    np.testing.assert_allclose(problem.fused(alive), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hidden", [(64, 64), (128, 128), (200, 200), (40,), (16, 32, 16)], ids=str)
def test_without_noise_it_is_the_plain_rollout_for_every_shape_of_network(hidden: tuple[int, ...]):
    problem = Problem(11, 3, hidden)
    np.testing.assert_allclose(problem.fused(), problem.plain(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["elu", "silu", "tanh", "relu"])
def test_without_noise_it_is_the_plain_rollout_for_every_activation(activation: str):
    problem = Problem(hidden=(40, 20), activation=activation)
    np.testing.assert_allclose(problem.fused(), problem.plain(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, fused.BLOCK, fused.BLOCK + 1, 3 * fused.BLOCK - 5])
def test_any_number_of_candidates_fits_the_blocks(count: int):
    problem = Problem(count=count)
    got = problem.fused()
    assert got.shape == (PARTICLES, count)
    np.testing.assert_allclose(got, problem.plain(), rtol=1e-5, atol=1e-5)


def test_bf16_is_near():
    """A product rounds its factors to 8 bits; four steps keep the error near 1 % of the spread of returns."""
    problem = Problem(11, 3, (64, 64))
    want = problem.plain()
    error = problem.fused(precision="bf16") - want
    assert 0.0 < float(jnp.abs(error).max()) < 0.03 * float(jnp.abs(want).max())


@pytest.mark.parametrize("ends", [False, True])
def test_with_noise_mean_and_spread_of_returns_are_the_plain_rollouts(ends: bool):
    """All candidates alike: their returns are 2,000 draws of one distribution, here and there."""
    problem = Problem(count=2000, horizon=5)
    problem.candidates = jnp.broadcast_to(problem.candidates[:1], problem.candidates.shape)
    alive = problem.box(2.0) if ends else None
    one, other = problem.fused(alive, sample=True), problem.plain(alive, sample=True)
    error = np.sqrt((one.var(axis=1) + other.var(axis=1)) / 2000)
    assert (np.abs(one.mean(axis=1) - other.mean(axis=1)) < 4.0 * error).all()
    np.testing.assert_allclose(one.std(axis=1), other.std(axis=1), rtol=4.0 * np.sqrt(2.0 / 2000))


def test_lanes_together_are_the_lanes_alone():
    problems = [Problem(), Problem()]
    problems[1].obs = problems[1].obs + 0.3
    problems[1].networks = jax.tree.map(lambda leaf: 0.7 * leaf, problems[1].networks)
    words = jnp.array([[1, 2], [3, 4]], jnp.uint32)

    def one(words: jax.Array, arrays: Arrays) -> jax.Array:
        box = arrays[2] - 1.0, arrays[2] + 1.0
        return kernel(problems[0].settings, True, "bf16", None, True, words, arrays, box)

    lanes = [(words[i], problem.arrays()) for i, problem in enumerate(problems)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)
    together = jax.jit(jax.vmap(one))(*stacked)
    for lane, alone in enumerate(lanes):
        np.testing.assert_allclose(together[lane], one(*alone), rtol=1e-5, atol=1e-5)
    assert np.abs(together[0] - together[1]).min() > 0.0


@pytest.mark.parametrize("activation", ["elu", "silu", "tanh", "relu"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_broken_particle_gives_no_number_and_spoils_no_other(activation: str, ends: bool):
    problem = Problem(activation=activation)
    alive = problem.box(5.0) if ends else None
    want = problem.fused(alive)
    broken = Layer(problem.networks[0].weight.at[1, 0, 0].set(jnp.nan), problem.networks[0].bias)
    problem.networks = (broken, *problem.networks[1:])
    got = problem.fused(alive)
    np.testing.assert_array_equal(got[0], want[0])
    assert not jnp.isfinite(got[1]).any()


def worth(last: jax.Array) -> jax.Array:
    """More than any return here."""
    return 100.0 + last.sum(axis=-1)


def test_what_is_still_going_is_worth_its_last_state():
    problem = Problem(11, 3, (16, 16), horizon=3)
    box = problem.box(2.5)
    expected = problem.plain(box, value=worth)
    np.testing.assert_allclose(problem.fused(box, value=worth), expected, rtol=1e-4, atol=1e-4)
    going = np.asarray(expected) > 50
    assert going.any()
    assert not going.all()


def test_a_rollout_that_comes_back_into_the_box_has_ended_all_the_same():
    """A network by hand: the place moves by the action, and every step earns 1."""
    problem = Problem(1, 1, (2,), activation="relu")
    moved = Layer(jnp.array([[0.0, 0.0], [1.0, -1.0]]), jnp.zeros(2))
    told = Layer(jnp.zeros((2, 4)).at[:, 1].set(jnp.array([1.0, -1.0])), jnp.array([1.0, 0.0, 0.0, 0.0]))
    problem.networks = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (PARTICLES, *leaf.shape)), (moved, told))
    problem.normaliser, problem.obs = normaliser.identity(1, 1), jnp.zeros(1)
    problem.candidates = jnp.array([[2.0, -2.0, 0.0, 0.0], [0.5, -0.5, 2.0, -2.0], [0.0, 0.0, 0.0, 0.0]])[..., None]
    box = -jnp.ones(1), jnp.ones(1)
    np.testing.assert_allclose(problem.fused(box), jnp.broadcast_to(jnp.array([1.0, 3.0, 4.0]), (PARTICLES, 3)))
    np.testing.assert_allclose(problem.plain(box), problem.fused(box))


@pytest.mark.parametrize("dims", FAMILIES.values(), ids=FAMILIES.keys())
@pytest.mark.parametrize("hidden", [(128, 128), (200, 200)], ids=str)
def test_it_can_do_the_networks_of_every_family(dims: tuple[int, int], hidden: tuple[int, ...]):
    assert fused.fallback_reason("on", NetworkSettings(hidden=hidden), *dims, "bf16") == ""


def test_what_it_cannot_do_it_says():
    for hidden, reason in (((512, 512), "KB for the weights"), ((), "needs a hidden layer")):
        assert reason in fused.fallback_reason("on", NetworkSettings(hidden=hidden), 3, 1, "bf16")
    assert fused.fallback_reason("off", NetworkSettings(), 3, 1, "bf16") == "kernels are off"


@pytest.mark.skipif(jax.__version_info__ > (0, 10, 2), reason="a later JAX compiles when it lowers, and needs the GPU")
@pytest.mark.parametrize("value", [None, worth], ids=["within", "beyond"])
@pytest.mark.parametrize("precision", ["bf16", "tf32", "f32"])
def test_the_gpus_compiler_takes_every_operation(value: TerminalValue | None, precision: Precision):
    """Lowering to Triton's language needs no GPU. It is done for lanes, which have a grid of three dimensions."""
    problem = Problem(11, 3, (64, 48), activation="silu" if precision == "tf32" else "elu")
    lanes = jax.jit(jax.vmap(partial(kernel, problem.settings, True, precision, value, False)))
    arrays = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (WORDS, problem.arrays(), problem.box(1.0)))
    text = lanes.trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text
