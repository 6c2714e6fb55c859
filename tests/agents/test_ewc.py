"""EWC's own properties: what it remembers of a task, and where that pulls."""

from functools import cache

import jax
import numpy as np
import pytest

from posterity import tree
from posterity.agents.base import Score
from posterity.agents.ewc import Ewc, EwcSettings, State
from posterity.agents.npg import Npg, NpgSettings
from posterity.agents.policy_gradient import MeanPolicy
from posterity.models import policy as gaussian
from posterity.models.policy import Batch, PolicyParams
from posterity.types import Budget, HostArray, Key, Spec, Transition

SPEC = Spec(obs_dim=3, low=-np.ones(2), high=np.ones(2), max_episode_steps=6, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=3, iterations=2, steps_per_iteration=12)
VALUE = {"hidden": [8], "batch_size": 4}


def made(penalty: float = 1.0, hidden: tuple[int, ...] = ()) -> Ewc:
    return Ewc(SPEC, EwcSettings.model_validate({"value": VALUE, "penalty": penalty, "hidden": hidden}), BUDGET)


agent = cache(made)


def rows(seed: int) -> Transition:
    """Twelve steps that terminate all the time, in each of two lanes."""
    draw = np.random.default_rng(seed)
    obs, ends = draw.normal(size=(2, 12, 3)), np.ones((2, 12), dtype=bool)
    return Transition(obs, draw.uniform(-1, 1, (2, 12, 2)), draw.normal(size=(2, 12)), obs, ends, ~ends)


def lived(learner: Ewc, tasks: int) -> State:
    state = learner.init(KEYS)
    for task in range(tasks):
        state = learner.begin_task([key.fold(task) for key in KEYS], state)
        for iteration in range(BUDGET.iterations):
            state, _ = learner.update([key.fold(task, iteration) for key in KEYS], state, rows(10 * task + iteration))
    return state


def theta_of(learner: Ewc, own: PolicyParams, latest: PolicyParams, score: Score) -> HostArray:
    policy = learner.policy(own, latest, score, "")
    assert isinstance(policy, MeanPolicy)
    return policy.theta


def test_the_penalty_is_zero_at_the_old_optimum_and_costs_elsewhere():
    state = lived(agent(), 1)
    terms, old = tree.lane(agent().regulariser_terms(state), 0), tree.lane(state.policy, 0)
    assert float(agent().regulariser(old, terms)) == pytest.approx(0.0, abs=1e-4)
    np.testing.assert_allclose(jax.grad(agent().regulariser)(old, terms).theta, 0.0, atol=1e-3)
    for axis in range(agent().size):
        off = old._replace(theta=old.theta + np.eye(agent().size, dtype=np.float32)[axis])
        assert float(agent().regulariser(off, terms)) < -1e-3


def test_the_penalty_is_the_sum_of_the_tasks_quadratics():
    one, two = lived(agent(), 1), lived(agent(), 2)
    first, second = one.memory.curvature, two.memory.curvature - one.memory.curvature
    theta = np.linspace(-1, 1, 8)
    for number in (0, 1):
        by_hand = sum(
            (theta - end.policy.theta[number]) @ h[number] @ (theta - end.policy.theta[number])
            for end, h in ((one, first), (two, second))
        )
        terms = tree.lane(agent().regulariser_terms(two), number)
        got = agent().regulariser(PolicyParams(theta.astype(np.float32), two.policy.log_std[number]), terms)
        assert float(got) == pytest.approx(by_hand, rel=1e-3)


@pytest.mark.parametrize("action", [0, 1])
def test_what_was_used_is_pulled_back_and_nothing_else(action: int):
    """A task that only ever saw feature 1 holds the weights from feature 1, each action's its own, and lets go of the
    rest. The released code's order would pull at other weights here."""
    learner = agent(penalty=2.0)
    draw = np.random.default_rng(3)
    obs = np.zeros((1, 200, 3), np.float32)
    obs[..., 1] = 3 * draw.choice([-1.0, 1.0], size=(1, 200))
    noise, advantage = (draw.normal(size=(1, 200, *shape)).astype(np.float32) for shape in ((2,), ()))
    theta = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    policy = PolicyParams(theta, np.array([[0.2, -0.4]], np.float32))
    gradient, fisher = jax.device_get(learner._curvature(policy, policy, Batch(obs, noise, advantage)))
    state = learner.init(KEYS[:1])._replace(policy=policy)
    state = learner.end_task(state, gradient.astype(np.float64), fisher.astype(np.float64))
    held = 1 * 2 + action  # weights are [feature, action], row by row
    moved = policy._replace(theta=theta.copy())
    moved.theta[0, held] += 1.0
    change = gaussian.mean(moved.theta[0], np.eye(3), learner.layers) - gaussian.mean(
        theta[0], np.eye(3), learner.layers
    )
    assert np.argwhere(np.abs(change) > 1e-6).tolist() == [[1, action]], "the weight of feature 1 and this action"
    pull = jax.grad(learner.regulariser)(tree.lane(moved, 0), tree.lane(learner.regulariser_terms(state), 0)).theta
    assert pull[held] < 0, "back"
    others = np.delete(pull, held)
    assert np.abs(others).max() < 0.1 * abs(pull[held])
    free = policy._replace(theta=theta.copy())
    free.theta[0, 2 * 2 + action] += 1.0  # feature 2 was never seen
    loose = jax.grad(learner.regulariser)(tree.lane(free, 0), tree.lane(learner.regulariser_terms(state), 0)).theta
    assert np.abs(loose).max() < 0.01 * abs(pull[held])


def test_without_a_penalty_it_is_fine_tuning():
    tuner = Npg(SPEC, NpgSettings.model_validate({"value": VALUE, "fine_tune": True}), BUDGET)
    tuned = tuner.init(KEYS)
    for task in range(3):
        tuned = tuner.begin_task([key.fold(task) for key in KEYS], tuned)
        for iteration in range(BUDGET.iterations):
            tuned, _ = tuner.update([key.fold(task, iteration) for key in KEYS], tuned, rows(10 * task + iteration))
    np.testing.assert_allclose(lived(agent(penalty=0.0), 3).policy.theta, tuned.policy.theta, atol=1e-6)


def test_the_penalty_holds_the_policy_near_the_old_one():
    def drift(penalty: float) -> float:
        one, two = lived(agent(penalty), 1), lived(agent(penalty), 2)
        metric = -one.memory.curvature[0]
        moved = (two.policy.theta - one.policy.theta)[0].astype(np.float64)
        return float(moved @ metric @ moved)

    assert drift(10.0) < 0.7 * drift(0.0)


def test_with_hidden_layers_these_are_shared_and_a_task_has_its_own_output_layer():
    learner = agent(hidden=(4,))
    one = lived(learner, 1)
    begun = learner.begin_task([key.fold(9) for key in KEYS], one)
    shared = learner.shared
    assert shared == 3 * 4 + 4
    assert one.memory.curvature.shape == (2, shared, shared)
    np.testing.assert_array_equal(begun.policy.theta[:, :shared], one.policy.theta[:, :shared])
    assert not (begun.policy.theta[:, shared:] == one.policy.theta[:, shared:]).any()
    assert not begun.policy.log_std.any()


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_going_back_is_with_the_shared_part_as_it_is_now_and_the_tasks_own_part(hidden: tuple[int, ...]):
    learner = agent(hidden=hidden)
    own, latest = (learner.snapshot(KEYS, lived(learner, tasks)) for tasks in (1, 3))
    back = theta_of(learner, own, latest, "back")
    np.testing.assert_array_equal(back[:, : learner.shared], latest.theta[:, : learner.shared])
    np.testing.assert_array_equal(back[:, learner.shared :], own.theta[:, learner.shared :])
    np.testing.assert_array_equal(theta_of(learner, own, latest, "train"), own.theta)


def test_every_program_is_traced_once_in_a_run():
    learner = made()
    lived(learner, 3)
    assert [p.traces for p in (learner._update, learner._curvature, learner._compose, learner._init_params)] == [1] * 4


def test_the_record_has_the_penalty():
    state = lived(agent(), 2)
    _, info = agent().update(KEYS, state, rows(3))
    assert info["penalty"].shape == (2,)
    assert (info["penalty"] < 0).all(), "as it is added to the objective"
