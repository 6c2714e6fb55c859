"""Imagined rollouts, and Algorithm 2 on a line whose left half one model knows and whose right half the other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents import lanes
from posterity.agents.rollouts import Rollouts
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlSnapshot
from posterity.errors import UserError
from posterity.kernels.common import Mode
from posterity.models import critic, dynamics, normaliser
from posterity.models.confidence import BACK_VARIANTS
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.models.mlp import Layer
from posterity.models.posterior import Posterior, inverse_softplus
from posterity.planning.cem import PlannerSettings
from posterity.types import Budget, Key, Spec

KNOWN, GUESSED = 1e-4, 0.05
SPEC = Spec(obs_dim=1, low=-np.ones(2), high=np.ones(2), max_episode_steps=40, alive=None)
NETWORK = NetworkSettings(hidden=(5,), activation="relu")
SETTINGS = VblrlSettings(
    planner=PlannerSettings(horizon=6, candidates=60, elites=8, cem_iterations=3, particles=8), network=NETWORK
)


def push(x: float, a: np.ndarray, left: float = 0.05, right: float = 0.05) -> float:
    """How far an action moves from x: left of 0 its first part counts, right of 0 its second."""

    def relu(value: float) -> float:
        return max(value, 0.0)

    first, second = float(a[0]), float(a[1])
    return left * (relu(first - 5 * x) - relu(-first - 5 * x)) + right * (relu(second + 5 * x) - relu(-second + 5 * x))


def knows(left: float, right: float, left_scale: float, right_scale: float) -> Posterior:
    """The network that computes `push` with these two coefficients, each known to within its scale; reward x.

    There is one member.
    """
    taken = jnp.array([[-5.0, -5.0, 5.0, 5.0, 1.0], [1.0, -1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0, 0.0]])
    hidden = Layer(taken, jnp.array([0, 0, 0, 0, 5.0]))
    output = jnp.zeros((5, 4)).at[:4, 1].set(jnp.array([left, -left, right, -right])).at[4, 0].set(1.0)
    scale = jnp.full((5, 4), KNOWN).at[:2, 1].set(left_scale).at[2:4, 1].set(right_scale)
    mean = (hidden, Layer(output, jnp.array([-5.0, 0.0, -7.0, -7.0])))
    rho = jax.tree.map(lambda leaf: jnp.full_like(leaf, inverse_softplus(KNOWN)), mean)
    rho = (rho[0], Layer(jnp.log(jnp.expm1(scale)), rho[1].bias))
    return jax.tree.map(lambda leaf: leaf[None], Posterior(mean, rho))


TASK = knows(0.05, -0.05, KNOWN, GUESSED)  # knows the left; of the right it guesses the wrong sign
WORLD = knows(-0.05, 0.05, GUESSED, KNOWN)  # knows the right


def test_two_models_together_beat_each_alone_where_each_knows_one_half():
    """From x = -1, the reward is x: the return of 40 steps, noise-free. Standing still earns -40."""
    agent = Vblrl(SPEC, SETTINGS, Budget(tasks=2, iterations=2, steps_per_iteration=40))
    both = (WORLD, TASK, normaliser.identity(1, 2), jnp.ones(2))
    own = VblrlSnapshot(*lanes.repeated(both, 1), None, np.array([False]), None, None, np.array([0]))
    returns: dict[str, float] = {}
    shares: dict[str, list[tuple[float, float]]] = {}
    for variant in BACK_VARIANTS:
        policy = agent.policy(own, own, "back", variant)
        x, returns[variant], shares[variant] = -1.0, 0.0, []
        for step in range(40):
            (action,) = policy.act([Key.of(0).fold(step)], np.array([[x]]), np.array([step == 0]))
            shares[variant] += [(x, float(share[0])) for name, share in policy.facts().items() if name == "world_state"]
            returns[variant] += x
            x += push(x, action)
    assert min(returns["confidence"], returns["blend"]) > returns["task-only"] + 5
    assert returns["task-only"] > returns["world-only"] + 5
    for variant in ("confidence", "blend"):
        left = [share for x, share in shares[variant] if x < -0.6]
        right = [share for x, share in shares[variant] if x > 0.5]
        assert np.mean(left) < 0.1, "on the left the task model is trusted"
        assert np.mean(right) > 0.9, "on the right the world model is"


OBS = jnp.array([1.0])
CANDIDATES = jnp.linspace(-1, 1, 36).reshape(6, 3, 2)


def rollouts(kernels: Mode = "off", network: NetworkSettings = NETWORK, spec: Spec = SPEC, **planner: Any) -> Rollouts:
    settings = PlannerSettings(**{"particles": 4, "horizon": 3, "candidates": 6, "elites": 2, **planner})
    return Rollouts(spec, settings, network, kernels, "f32", gamma=0.9)


def model(noise: float = 1.0) -> DynamicsModel:
    return DynamicsModel(TASK, normaliser.identity(1, 2), jnp.float32(noise), jnp.ones(2))


def imagined(how: Rollouts, of: DynamicsModel) -> jax.Array:
    """[P, N] returns."""
    return how.forward(jax.random.key(0), of, OBS)(jax.random.key(1), CANDIDATES)[0]


def test_a_particle_keeps_its_network_over_the_horizon():
    """Particle p earns what the p-th network, applied again and again, says."""
    got = imagined(rollouts(output="mean"), model())
    networks = model().sample(jax.random.key(0), 4)
    for particle in range(4):
        weights = jax.tree.map(lambda leaf, p=particle: leaf[p], networks)
        place, total = jnp.broadcast_to(OBS, (6, 1)), jnp.zeros(6)
        for step in range(3):
            mean = dynamics.forward(weights, jnp.concatenate([place, CANDIDATES[:, step]], axis=1), NETWORK).mean
            place, total = place + mean[:, 1:], total + mean[:, 0]
        np.testing.assert_allclose(got[particle], total, rtol=1e-4)
    assert (got.std(axis=0) > 1e-2).all(), "and the networks differ"


def test_without_noise_all_particles_are_the_mean_network():
    got = imagined(rollouts(output="mean"), model(noise=0.0))
    np.testing.assert_allclose(got, np.broadcast_to(got[:1], got.shape), rtol=1e-6)
    x, total = 1.0, 0.0
    for action in np.asarray(CANDIDATES[0]):
        total += x
        x += push(x, action, 0.05, -0.05)
    np.testing.assert_allclose(got[0, 0], total, rtol=1e-4)


def test_a_sampled_output_spreads_returns():
    """Where the mean of the output does not: the test above."""
    drawn = imagined(rollouts(output="sample"), model(noise=0.0))
    assert (drawn.std(axis=0) > 1e-3).all()


def test_what_follows_the_horizon_counts_by_the_critic_while_the_episode_goes_on():
    """A critic that values everything at 7. Where the first step leaves the box nothing follows."""
    *hidden, last = critic.init(jax.random.key(2), 1, (4,)).critic.layers
    layers = (*hidden, last._replace(bias=jnp.array([100.0])))
    worth_7 = critic.Critic(layers, jnp.float32(0.0), jnp.float32(7.0))
    plain, valued = model(0.0), model(0.0)._replace(critic=worth_7)
    going_on = rollouts(output="mean")
    np.testing.assert_allclose(imagined(going_on, valued), imagined(going_on, plain) + 7.0, rtol=1e-5)
    over = rollouts(output="mean", spec=SPEC._replace(alive=(np.array([-9.0]), np.array([-5.0]))))
    np.testing.assert_allclose(imagined(over, valued), imagined(over, plain), rtol=1e-6)
    np.testing.assert_allclose(imagined(over, plain), np.ones((4, 6)), rtol=1e-3)


def test_the_kernel_imagines_what_the_plain_path_imagines():
    """In interpret mode, nothing sampled: the same networks and candidates."""
    plain, kernel = (imagined(rollouts(kernels, output="mean"), model()) for kernels in ("off", "on"))
    np.testing.assert_allclose(kernel, plain, rtol=1e-4, atol=1e-4)


def test_why_the_plain_path_is_taken_is_said_in_one_line():
    assert rollouts("on").fallback_reason == ""
    assert rollouts("off").fallback_reason == "kernels are off"
    assert rollouts("auto").fallback_reason == "there is no NVIDIA GPU"


def test_kernels_that_are_on_and_cannot_imagine_are_refused():
    with pytest.raises(UserError, match=r"^kernels are on, but the fused planner needs a hidden layer$"):
        rollouts("on", NetworkSettings(hidden=()))


def test_a_known_reward_and_termination_take_the_place_of_what_was_learned():
    """The network of `knows` predicts the reward x; known is 10 + the first action, until x is below -1.02."""
    spec = SPEC._replace(
        reward=lambda obs, action, next_obs: 10.0 + action[:, 0],
        terminated=lambda obs, action, next_obs: next_obs[:, 0] < -1.02,
    )
    planner = SETTINGS.planner.model_copy(update={"output": "mean"})
    rollouts = Rollouts(spec, planner, NETWORK, "off", "f32", 0.99)
    own = DynamicsModel(TASK, normaliser.identity(1, 2), None, jnp.ones(2))
    stays, leaves = jnp.zeros((6, 2)), jnp.full((6, 2), -1.0)
    returns, _ = rollouts.forward(jax.random.key(0), own, jnp.array([-1.0]))(
        jax.random.key(1), jnp.stack([stays, leaves])
    )
    np.testing.assert_allclose(returns[:, 0], 60.0)
    np.testing.assert_allclose(returns[:, 1], 9.0)  # the first step leads to -1.05, and its reward counts


def test_a_known_function_that_jax_cannot_trace_is_refused_in_one_line():
    spec = SPEC._replace(reward=lambda obs, action, next_obs: np.array([float(x) for x in obs[:, 0]]))
    with pytest.raises(UserError, match="JAX cannot trace reward=") as refused:
        Rollouts(spec, SETTINGS.planner, NETWORK, "off", "f32", 0.99)
    assert "\n" not in str(refused.value)


def test_a_known_function_is_given_the_number_of_a_discrete_action():
    spec = Spec.discrete(1, 2, 40, reward=lambda obs, action, next_obs: jnp.where(action == 1, 5.0, 0.0))
    rollouts = Rollouts(spec, SETTINGS.planner, NETWORK, "off", "f32", 0.99)
    own = DynamicsModel(TASK, normaliser.identity(1, 2), None, jnp.ones(2))
    candidates = jax.nn.one_hot(jnp.array([[0] * 6, [1, 0, 0, 0, 0, 1]]), 2)
    returns, _ = rollouts.forward(jax.random.key(0), own, jnp.array([0.0]))(jax.random.key(1), candidates)
    np.testing.assert_allclose(returns[0], [0.0, 10.0])


def test_the_fused_planner_steps_back_with_a_reason_from_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("posterity.kernels.rollout.fallback_reason", lambda *_: "")
    assert not Rollouts(SPEC, SETTINGS.planner, NETWORK, "auto", "bf16", 0.99).fallback_reason
    learns = SPEC._replace(learn_termination=True)
    assert "fused planner" in Rollouts(learns, SETTINGS.planner, NETWORK, "auto", "bf16", 0.99).fallback_reason
