"""The natural policy gradient as an agent: acting, tasks, going back, and a regulator with a known optimum."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from posterity.agents.npg import Npg, NpgSettings, State
from posterity.errors import UserError
from posterity.models import policy as gaussian
from posterity.types import Budget, HostArray, Key, Spec, Transition

SPEC = Spec(obs_dim=3, low=np.array([-1.0, -2.0]), high=np.array([1.0, 4.0]), max_episode_steps=6, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=3, iterations=2, steps_per_iteration=12)
FIRST = np.zeros(2, dtype=bool)


@cache
def agent(fine_tune: bool = False) -> Npg:
    small = {"value": {"hidden": [8], "batch_size": 4}, "fine_tune": fine_tune}
    return Npg(SPEC, NpgSettings.model_validate(small), BUDGET)


def rows(seed: int) -> Transition:
    """Twelve steps of two episodes in each of two lanes."""
    draw = np.random.default_rng(seed)
    obs, following = draw.normal(size=(2, 12, 3)), draw.normal(size=(2, 12, 3))
    following[:, :5], following[:, 6:11] = obs[:, 1:6], obs[:, 7:12]
    none, ends = np.zeros((2, 12), dtype=bool), np.tile(np.arange(12) % 6 == 5, (2, 1))
    return Transition(obs, draw.uniform(-1, 1, (2, 12, 2)), draw.normal(size=(2, 12)), following, none, ends)


def lived(learner: Npg, tasks: int = 1) -> State:
    state = learner.init(KEYS)
    for task in range(tasks):
        state = learner.begin_task([key.fold(task) for key in KEYS], state)
        for iteration in range(2):
            state, _ = learner.update([key.fold(task, iteration) for key in KEYS], state, rows(10 * task + iteration))
    return state


def test_actions_are_the_policys_draw_clipped_to_the_environments_range():
    state = lived(agent())
    loud = state._replace(policy=state.policy._replace(log_std=np.full((2, 2), 2.0, np.float32)))
    obs = np.array([np.ones(3), np.zeros(3)])
    seen = []
    for step in range(12):
        loud, actions = agent().act(KEYS, loud, obs, FIRST)
        assert actions.shape == (2, 2)
        for lane in (0, 1):
            mean = gaussian.mean(loud.policy.theta[lane], obs[lane][None], agent().layers)[0]
            raw = np.clip(mean + np.exp(2.0) * loud.noise[lane, step], -1, 1)
            np.testing.assert_allclose(actions[lane], [raw[0], 1 + 3 * raw[1]], rtol=1e-5)
            seen.append(actions[lane])
    assert (np.array(seen) == [1.0, 4.0]).any()
    assert (np.array(seen) >= SPEC.low).all()
    assert (np.array(seen) <= SPEC.high).all()


def test_a_task_begins_with_a_fresh_policy_or_goes_on_with_the_one_there_is():
    alone = lived(agent())
    later = agent().begin_task([key.fold(7) for key in KEYS], alone)
    assert not (later.policy.theta == alone.policy.theta).any()
    assert not later.policy.log_std.any()
    tuned = lived(agent(fine_tune=True))
    later = agent(fine_tune=True).begin_task([key.fold(7) for key in KEYS], tuned)
    np.testing.assert_array_equal(later.policy.theta, tuned.policy.theta)
    np.testing.assert_array_equal(later.policy.log_std, tuned.policy.log_std)
    assert not (later.value.weights[0].weight == tuned.value.weights[0].weight).any(), "with a fresh value network"


@pytest.mark.parametrize("fine_tune", [True, False])
def test_going_back_is_with_ones_own_policy_or_with_what_it_has_become(fine_tune: bool):
    learner = agent(fine_tune)
    own, latest = (learner.snapshot(KEYS, lived(learner, tasks)) for tasks in (1, 2))
    obs = np.random.default_rng(0).normal(size=(2, 3))

    def mean(theta: HostArray) -> HostArray:
        return learner.actions.clipped(gaussian.mean(theta, obs[:, None], learner.layers)[:, 0])

    assert not (mean(np.asarray(own.theta)) == mean(np.asarray(latest.theta))).any()
    for score in ("zero-shot", "start", "train"):
        actions = learner.policy(own, latest, score, "").act(KEYS, obs, FIRST)
        np.testing.assert_array_equal(actions, mean(np.asarray(own.theta)))
    policy = learner.policy(own, latest, "back", "")
    np.testing.assert_array_equal(
        policy.act(KEYS, obs, FIRST), mean(np.asarray(latest.theta if fine_tune else own.theta))
    )
    assert policy.facts() == {}
    far = policy.act(KEYS, np.array([np.full(3, 1e6), np.zeros(3)]), FIRST)
    assert np.isin(far[0], [*SPEC.low, *SPEC.high]).all(), "far off the scale: clipped"


def test_an_iteration_has_a_number_for_every_lane():
    state = lived(agent())
    _, info = agent().update(KEYS, state, rows(5))
    assert set(info) == {"kl", "std", "value_error"}
    for values in info.values():
        assert values.shape == (2,)
        assert np.isfinite(values).all()


def test_every_program_is_traced_once_in_a_run():
    learner = Npg(SPEC, NpgSettings.model_validate({"value": {"hidden": [8], "batch_size": 4}}), BUDGET)
    lived(learner, tasks=3)
    assert [p.traces for p in (learner._update, learner._init_params, learner._init_value, learner._compose)] == [1] * 4
    assert learner._curvature.traces == 0, "nothing is remembered"


def test_a_policy_that_diverges_ends_the_run_in_one_line():
    """In any lane."""
    state = lived(agent())
    theta = np.array(state.trained.theta)
    theta[1] = np.nan
    broken = state._replace(trained=state.trained._replace(theta=theta))
    with pytest.raises(UserError, match=r"The policy diverged in task 0, iteration 2 \(kl is nan\); try a smaller"):
        agent().update(KEYS, broken, rows(1))


def regulated(learner: Npg, keys: list[Key], state: State) -> tuple[State, Transition]:
    """An iteration of x <- x + u / 2 at a cost of x^2 + u^2 a step, in episodes of ten steps from x in [-1, 1]."""
    draw = keys[0].fold("episodes").generator()
    met, x = [], 0.0
    for step in range(learner.budget.steps_per_iteration):
        x = draw.uniform(-1, 1) if step % 10 == 0 else x
        state, action = learner.act(keys, state, np.array([[x]]), np.array([step % 10 == 0]))
        u = float(action[0, 0])
        met.append(([x], action[0], -(x**2) - u**2, [x + 0.5 * u], False, step % 10 == 9))
        x += 0.5 * u
    return state, Transition(*(np.array(part)[None] for part in zip(*met, strict=True)))


def test_npg_finds_the_regulator_that_the_riccati_equation_gives():
    """The best linear gain loses nothing; doing nothing costs 10 x^2. NPG ends within a twentieth of that range."""
    p = 1.0
    for _ in range(200):
        p = 1 + p - (0.5 * p) ** 2 / (1 + 0.25 * p)
    best = -0.5 * p / (1 + 0.25 * p)
    value = {"hidden": [32], "learning_rate": 1e-2, "epochs": 5}
    settings = NpgSettings.model_validate({"step_size": 0.1, "initial_log_std": -1.5, "value": value})
    spec = Spec(obs_dim=1, low=np.array([-2.0]), high=np.array([2.0]), max_episode_steps=10, alive=None)
    learner = Npg(spec, settings, Budget(tasks=1, iterations=25, steps_per_iteration=400))
    keys = [Key.of(3)]
    state = learner.begin_task(keys, learner.init(keys))
    for iteration in range(25):
        now = [key.fold(iteration) for key in keys]
        state, met = regulated(learner, now, state)
        state, _ = learner.update(now, state, met)

    def cost(act: Callable[[float], float]) -> float:
        """Of ten steps from x = 1."""
        x, total = 1.0, 0.0
        for _ in range(10):
            u = act(x)
            x, total = x + 0.5 * u, total + x**2 + u**2
        return total

    last = learner.snapshot(keys, state)
    policy = learner.policy(last, last, "train", "")
    learned = cost(lambda x: float(policy.act(keys, np.array([[x]]), FIRST[:1])[0, 0]))
    optimum, nothing = cost(lambda x: best * x), cost(lambda x: 0.0)
    assert learned < optimum + (nothing - optimum) / 20
