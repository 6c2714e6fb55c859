"""The natural policy gradient and its parts: values, advantages, the Fisher matrix, the step."""

from functools import cache
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from posterity.agents.npg import Npg, NpgSettings
from posterity.errors import UserError
from posterity.experiment.collect import collect
from posterity.models import policy as gaussian
from posterity.models import value as critic
from posterity.models.natural import conjugate_gradient, natural_step
from posterity.models.policy import Batch, Policy
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(obs_dim=3, low=np.array([-1.0, -2.0]), high=np.array([1.0, 4.0]), steps=6, alive=None)
KEYS = [Key.of(0), Key.of(1)]


@cache
def agent(fine_tune: bool = False) -> Npg:
    small = {"value": {"hidden": [8], "rows": 4}, "fine_tune": fine_tune}
    return Npg(SPEC, NpgSettings.model_validate(small), Budget(tasks=3, iterations=2, steps=12))


def rows(seed: int) -> Transition:
    """Twelve steps of two episodes."""
    draw = np.random.default_rng(seed)
    obs, following = draw.normal(size=(12, 3)), draw.normal(size=(12, 3))
    following[:5], following[6:11] = obs[1:6], obs[7:12]
    return Transition(obs, draw.uniform(-1, 1, (12, 2)), draw.normal(size=12), following, np.zeros(12, dtype=bool))


def begun(learner: Npg, tasks: int = 1):
    state = learner.init(KEYS)
    for task in range(tasks):
        state = learner.begin_task([key.fold(task) for key in KEYS], state)
        for iteration in range(2):
            keys = [key.fold(task, iteration) for key in KEYS]
            state, _ = learner.learn(keys, state, [rows(10 * task + iteration), rows(50 + 10 * task + iteration)])
    return state


def spd(size: int, seed: int = 0) -> jax.Array:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return jnp.asarray(root @ root.T / size + 0.5 * np.eye(size), jnp.float32)


# The step ------------------------------------------------------------------------------------------------------------


def test_conjugate_gradients_solve_what_a_direct_solver_solves():
    matrix, b = spd(8), jnp.arange(1.0, 9.0)
    found = conjugate_gradient(lambda v: matrix @ v, b, iterations=20)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-3)


def test_conjugate_gradients_stop_at_nothing_to_solve():
    np.testing.assert_array_equal(conjugate_gradient(lambda v: v, jnp.zeros(3), iterations=5), np.zeros(3))


def test_a_step_is_the_damped_solution_of_normalised_length():
    fisher, g, damping, size = spd(6), jnp.arange(1.0, 7.0), 0.1, 0.02
    step = natural_step(g, lambda v: fisher @ v, size, damping, iterations=20)
    direct = np.linalg.solve(fisher + damping * np.eye(6), g)
    np.testing.assert_allclose(step, direct * np.sqrt(size / (g @ direct)), rtol=1e-3)


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_the_fisher_product_is_the_hessian_of_the_kl(hidden: tuple[int, ...]):
    """F v against a central difference of the KL's gradient. Two action dimensions with different deviations."""
    layers = gaussian.shape(3, hidden, 2)
    d = gaussian.size(layers)
    draw = np.random.default_rng(1)
    obs = jnp.asarray(draw.normal(size=(20, 3)), jnp.float32)
    at = jnp.asarray(draw.normal(size=d + 2) * 0.5, jnp.float32)

    def policy_of(x: jax.Array) -> Policy:
        return Policy(x[:d], x[d:])

    product = gaussian.fisher_product(policy_of, at, obs, layers)
    slope = jax.grad(lambda x: gaussian.kl(policy_of(at), policy_of(x), obs, layers))
    for _ in range(3):
        v = jnp.asarray(draw.normal(size=d + 2), jnp.float32)
        v /= jnp.linalg.norm(v)
        np.testing.assert_allclose(product(v), (slope(at + 0.01 * v) - slope(at - 0.01 * v)) / 0.02, atol=2e-3)
        far = gaussian.kl(policy_of(at), policy_of(at + 0.03 * v), obs, layers)
        assert float(far) == pytest.approx(float(0.5 * 0.03**2 * v @ product(v)), rel=0.1)


def test_the_gradient_is_that_of_the_log_likelihood_of_the_action_as_drawn():
    """d/dtheta of the surrogate at the old policy is the mean of advantage x score, however much was clipped."""
    layers = gaussian.shape(3, (), 2)
    draw = np.random.default_rng(2)
    old = Policy(jnp.asarray(draw.normal(size=8), jnp.float32), jnp.array([0.3, -0.5]))
    obs, noise, advantage = (jnp.asarray(draw.normal(size=s), jnp.float32) for s in ((30, 3), (30, 2), (30,)))
    got = jax.grad(lambda p: gaussian.surrogate(p, old, Batch(obs, noise, advantage), layers))(old)
    score = noise / jnp.exp(old.log_std) * advantage[:, None] / 30
    np.testing.assert_allclose(got.theta, jnp.concatenate([(obs.T @ score).ravel(), score.sum(0)]), atol=1e-5)
    np.testing.assert_allclose(got.log_std, ((noise**2 - 1) * advantage[:, None]).mean(0), atol=1e-5)


# Advantages ----------------------------------------------------------------------------------------------------------

WAY = Transition(  # one lane: terminates after 2, is cut off by its limit after 3, and by the iteration's end after 2
    np.array([[[0.0], [1.0], [10.0], [11.0], [12.0], [20.0], [21.0]]]),
    np.zeros((1, 7, 1)),
    np.arange(1.0, 8.0)[None],
    np.array([[[1.0], [2.0], [11.0], [12.0], [13.0], [21.0], [22.0]]]),
    np.array([[False, True, False, False, False, False, False]]),
)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_an_iteration_is_cut_into_its_episodes(bootstrap: bool):
    steps = critic.course(WAY, limit=3, bootstrap=bootstrap)
    np.testing.assert_array_equal(steps.time[0], [0, 1, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(steps.last[0], [False, True, False, False, True, False, True])
    np.testing.assert_array_equal(steps.worth[0], [1, 0, 1, 1, float(bootstrap), 1, 1])


def test_an_episode_whose_end_does_not_show_ends_at_its_limit():
    """Observations that never change, in episodes of three steps; the last is at its limit, so nothing is cut."""
    still = Transition(np.zeros((1, 6, 2)), None, np.zeros((1, 6)), np.zeros((1, 6, 2)), np.zeros((1, 6), dtype=bool))
    steps = critic.course(still, limit=3, bootstrap=False)
    np.testing.assert_array_equal(steps.time[0], [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(steps.worth[0], [1, 1, 0, 1, 1, 0])


def test_advantages_and_returns_by_hand():
    """gamma = lambda = 1/2, V(s) = s. The tail after termination is worth 0, after a cut V."""
    steps = critic.course(WAY, limit=3, bootstrap=True)
    here, after = steps.obs[0, :, 0], steps.next_obs[0, :, 0] * steps.worth[0]
    advantage, target = critic.estimate(here, after, steps.reward[0], steps.last[0], 0.5, 0.5)
    delta = np.array([1 + 0.5 - 0, 2 - 1, 3 + 5.5 - 10, 4 + 6 - 11, 5 + 6.5 - 12, 6 + 10.5 - 20, 7 + 11 - 21])
    hand = [
        delta[0] + delta[1] / 4,
        delta[1],
        delta[2] + delta[3] / 4 + delta[4] / 16,
        delta[3] + delta[4] / 4,
        delta[4],
        delta[5] + delta[6] / 4,
        delta[6],
    ]
    np.testing.assert_allclose(advantage, hand, atol=1e-6)
    np.testing.assert_allclose(target, [2, 2, 3 + 2 + 11.5 / 4, 4 + 11.5 / 2, 11.5, 6 + 18 / 2, 18], atol=1e-6)
    steps = critic.course(WAY, limit=3, bootstrap=False)
    after = steps.next_obs[0, :, 0] * steps.worth[0]
    _, target = critic.estimate(here, after, steps.reward[0], steps.last[0], 0.5, 0.5)
    np.testing.assert_allclose(target, [2, 2, 3 + 2 + 5 / 4, 4 + 5 / 2, 5, 6 + 18 / 2, 18], atol=1e-6)


def test_the_value_network_learns_the_returns():
    settings = critic.ValueSettings(hidden=(32,), epochs=60, rate=1e-2)
    obs = jnp.asarray(np.random.default_rng(0).uniform(-10, 10, (256, 2)), jnp.float32)
    flat = jnp.zeros(256)
    steps = critic.Course(obs, flat, obs, flat, flat, flat)
    target = obs[:, 0] - 0.5 * obs[:, 1]
    fitted = critic.fit(jax.random.key(0), critic.init(jax.random.key(1), 2, settings), steps, target, settings)
    error = critic.predict(fitted.weights, obs, flat) - target
    assert float((error**2).mean()) < 0.01 * float(target.var())


# The agent -----------------------------------------------------------------------------------------------------------


def test_actions_are_the_policys_draw_clipped_to_the_environments_range():
    state = begun(agent())
    loud = state._replace(policy=state.policy._replace(log_std=np.full((2, 2), 2.0, np.float32)))
    obs = [np.ones(3), np.zeros(3)]
    seen = []
    for step in range(12):
        loud, actions = agent().act(KEYS, loud, obs, [False, False])
        for lane in (0, 1):
            mean = gaussian.mean(loud.policy.theta[lane], obs[lane][None], agent().layers)[0]
            raw = np.clip(mean + np.exp(2.0) * loud.noise[lane, step], -1, 1)
            np.testing.assert_allclose(actions[lane], [raw[0], 1 + 3 * raw[1]], rtol=1e-5)
            seen.append(actions[lane])
    assert (np.array(seen) == [1.0, 4.0]).any()
    assert (np.array(seen) >= SPEC.low).all()
    assert (np.array(seen) <= SPEC.high).all()


def test_a_task_begins_with_a_fresh_policy_or_goes_on_with_the_one_there_is():
    alone = begun(agent())
    later = agent().begin_task([key.fold(7) for key in KEYS], alone)
    assert not (later.policy.theta == alone.policy.theta).any()
    assert not later.policy.log_std.any()
    tuned = begun(agent(fine_tune=True))
    later = agent(fine_tune=True).begin_task([key.fold(7) for key in KEYS], tuned)
    np.testing.assert_array_equal(later.policy.theta, tuned.policy.theta)
    np.testing.assert_array_equal(later.policy.log_std, tuned.policy.log_std)
    assert not (later.value.weights[0].weight == tuned.value.weights[0].weight).any(), "with a fresh value network"


@pytest.mark.parametrize("fine_tune", [True, False])
def test_going_back_is_with_ones_own_policy_or_with_what_it_has_become(fine_tune: bool):
    own, latest = (agent(fine_tune).keep([], begun(agent(fine_tune), tasks)) for tasks in (1, 2))
    for score in ("zero-shot", "start", "train"):
        np.testing.assert_array_equal(agent(fine_tune).player(own, latest, score, "confidence").theta, own.theta)
    player = agent(fine_tune).player(own, latest, "back", "confidence")
    np.testing.assert_array_equal(player.theta, latest.theta if fine_tune else own.theta)
    player, actions = agent(fine_tune).play(KEYS, player, [np.full(3, 1e6), np.zeros(3)], [True, True])
    assert np.isin(actions[0], [*SPEC.low, *SPEC.high]).all(), "far off the scale: clipped"


def test_programs_compile_once_per_run():
    learner = agent()
    begun(learner, tasks=3)
    for program in (learner._update, learner._fresh, learner._fresh_value, learner._composed):
        # JAX may have let go of it, under load seen once (0); more than one would be a shape that changes
        assert program._cache_size() <= 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_policy_that_diverges_ends_the_run_in_one_line():
    state = begun(agent())
    broken = state._replace(trained=state.trained._replace(theta=state.trained.theta * np.nan))
    with pytest.raises(UserError, match="The policy diverged in task 0, iteration 2"):
        agent().learn(KEYS, broken, [rows(1), rows(2)])


class Regulator(gymnasium.Env[Any, Any]):
    """x <- x + u / 2, at a cost of x^2 + u^2 a step; ten steps from x in [-1, 1]."""

    action_space = spaces.Box(-2, 2, (1,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.x, self.moment = float(self.np_random.uniform(-1, 1)), 0
        return np.array([self.x]), {}

    def step(self, action: Any):
        reward = -(self.x**2) - float(action[0]) ** 2
        self.x, self.moment = self.x + 0.5 * float(action[0]), self.moment + 1
        return np.array([self.x]), reward, False, self.moment == 10, {}


def test_npg_finds_the_regulator_that_the_riccati_equation_gives():
    """The best linear gain loses nothing; doing nothing costs 10 x^2. NPG ends within a twentieth of that range."""
    p = 1.0
    for _ in range(200):
        p = 1 + p - (0.5 * p) ** 2 / (1 + 0.25 * p)
    best = -0.5 * p / (1 + 0.25 * p)
    settings = {"step_size": 0.1, "initial_log_std": -1.5, "value": {"hidden": [32], "rate": 1e-2, "epochs": 5}}
    spec = Spec(obs_dim=1, low=np.array([-2.0]), high=np.array([2.0]), steps=10, alive=None)
    learner = Npg(spec, NpgSettings.model_validate(settings), Budget(tasks=1, iterations=25, steps=400))
    keys, envs = [Key.of(3)], [Regulator()]
    state = learner.begin_task(keys, learner.init(keys))
    for iteration in range(25):
        now = [key.fold(iteration) for key in keys]
        state, met = collect(learner, now, state, envs, 400)
        state, _ = learner.learn(now, state, [lane.rows for lane in met])

    def cost(act: Any) -> float:
        x, total = 1.0, 0.0
        for _ in range(10):
            u = act(x)
            x, total = x + 0.5 * u, total + x**2 + u**2
        return total

    player = learner.player(learner.keep([], state), learner.keep([], state), "train", "confidence")
    learned = cost(lambda x: float(learner.play(keys, player, [np.array([x])], [False])[1][0][0]))
    optimum, nothing = cost(lambda x: best * x), cost(lambda x: 0.0)
    assert learned < optimum + (nothing - optimum) / 20
