"""Algorithm 2 on a line whose left half one model knows, and whose right half the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents.base import STRATEGIES, Strategy
from posterity.agents.rollouts import Imagination, Model
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Kept, Vblrl
from posterity.errors import UserError
from posterity.models import normaliser
from posterity.models.confidence import BackwardSettings
from posterity.models.mlp import Layer, NetworkSettings
from posterity.models.posterior import Posterior, inverse_softplus
from posterity.planning.cem import PlannerSettings
from posterity.types import Budget, Key, Spec

KNOWN, GUESSED = 1e-4, 0.05
SPEC = Spec(obs_dim=1, low=-np.ones(2), high=np.ones(2), steps=40, alive=None)
SETTINGS = VblrlSettings.model_validate(
    {
        "planner": {"horizon": 6, "candidates": 60, "elites": 8, "rounds": 3, "particles": 8},
        "network": {"hidden": [5], "activation": "relu"},
    }
)


def push(x: float, a: np.ndarray, left: float = 0.05, right: float = 0.05) -> float:
    """How far an action moves from x: left of 0 its first part counts, right of 0 its second."""

    def relu(value: float) -> float:
        return max(value, 0.0)

    first, second = float(a[0]), float(a[1])
    return left * (relu(first - 5 * x) - relu(-first - 5 * x)) + right * (relu(second + 5 * x) - relu(-second + 5 * x))


def model(left: float, right: float, left_scale: float, right_scale: float) -> Posterior:
    """The network that computes `push` with these two coefficients, each known to within its scale; reward x."""
    taken = jnp.array([[-5.0, -5.0, 5.0, 5.0, 1.0], [1.0, -1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0, 0.0]])
    hidden = Layer(taken, jnp.array([0, 0, 0, 0, 5.0]))
    output = jnp.zeros((5, 4)).at[:4, 1].set(jnp.array([left, -left, right, -right])).at[4, 0].set(1.0)
    scale = jnp.full((5, 4), KNOWN).at[:2, 1].set(left_scale).at[2:4, 1].set(right_scale)
    mean = (hidden, Layer(output, jnp.array([-5.0, 0.0, -7.0, -7.0])))
    rho = jax.tree.map(lambda leaf: jnp.full_like(leaf, inverse_softplus(KNOWN)), mean)
    rho = (rho[0], Layer(jnp.log(jnp.expm1(scale)), rho[1].bias))
    return Posterior(mean, rho)


TASK = model(0.05, -0.05, KNOWN, GUESSED)  # knows the left; of the right it guesses the wrong sign
WORLD = model(-0.05, 0.05, GUESSED, KNOWN)  # knows the right


def lifted(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)


def test_weighing_two_models_beats_both_where_each_knows_one_half():
    """From x = -1, the reward is x: the return of 40 steps, noise-free. Standing still earns -40."""
    agent = Vblrl(SPEC, SETTINGS, Budget(tasks=2, iterations=2, steps=40))
    units = normaliser.identity(1, 2)
    kept = lifted(Kept(WORLD, TASK, units, jnp.ones(2), (), jnp.array(False)))
    returns: dict[Strategy, float] = {}
    shares: dict[Strategy, list[tuple[float, float]]] = {strategy: [] for strategy in STRATEGIES}
    for strategy in STRATEGIES:
        player = agent.player(kept, kept, "back", strategy)
        x, total = -1.0, 0.0
        for step in range(40):
            key = [Key.of(0).fold(step)]
            player, (action,) = agent.play(key, player, [np.array([x])], [step == 0])
            shares[strategy].append((x, float(player.chosen.state[0])))
            total += x
            x += push(x, np.asarray(action))
        returns[strategy] = total
    assert min(returns["confidence"], returns["blend"]) > returns["task-only"] + 5
    assert returns["task-only"] > returns["world-only"] + 5
    for both in (shares["confidence"], shares["blend"]):
        assert np.mean([share for x, share in both if x < -0.6]) < 0.1, "on the left the task model is trusted"
        assert np.mean([share for x, share in both if x > 0.5]) > 0.9, "on the right the world model is"


CANDIDATES = jnp.linspace(-1, 1, 36).reshape(6, 3, 2)


def imagination(**planner) -> Imagination:
    settings = PlannerSettings(**{"particles": 4, "horizon": 3, "candidates": 6, "elites": 2, **planner})
    return Imagination(settings, NetworkSettings(hidden=(5,), activation="relu"), BackwardSettings(), SPEC)


def imagine(settings: Imagination, noise: float = 1.0):
    model = Model(TASK, jnp.float32(noise))
    forward = settings.forward(jax.random.key(0), model, normaliser.identity(1, 2), jnp.array([1.0]))
    return forward(jax.random.key(1), CANDIDATES)[0]


def test_a_particle_keeps_its_network_over_the_horizon_unless_told_otherwise():
    """On the right the task model's networks differ: kept ones drift apart further than ones drawn anew each step."""
    kept = imagine(imagination(particles=200, output="mean"))
    anew = imagine(imagination(particles=200, output="mean", redraw=True))
    assert (kept.std(axis=0) > 1.15 * anew.std(axis=0)).all()


def test_without_noise_all_particles_are_the_mean_network():
    got = imagine(imagination(output="mean"), noise=0.0)
    np.testing.assert_allclose(got, np.broadcast_to(got[:1], got.shape), rtol=1e-6)
    x, total = 1.0, 0.0
    for action in np.asarray(CANDIDATES[0]):
        total += x
        x += push(x, action, 0.05, -0.05)
    np.testing.assert_allclose(got[0, 0], total, rtol=1e-4)


def test_a_sampled_output_spreads_returns_and_a_mean_one_does_not():
    drawn = imagine(imagination(output="sample"), noise=0.0)
    assert drawn[:, 0].std() > 1e-3


def test_the_kernel_imagines_what_the_plain_path_imagines():
    """In interpret mode, noise off: the same networks and candidates."""
    plain = imagine(imagination(output="mean", fused="off"))
    kernel = imagine(imagination(output="mean", fused="on", products="f32"))
    np.testing.assert_allclose(kernel, plain, rtol=1e-4, atol=1e-4)


def test_why_the_plain_path_is_taken_is_said_in_one_line():
    assert imagination(fused="on").why_plain == ""
    assert imagination(fused="off").why_plain == "planner.fused is off"
    assert imagination(fused="auto").why_plain == "there is no NVIDIA GPU"
    with pytest.raises(UserError, match="redraw"):
        imagination(fused="on", redraw=True)
