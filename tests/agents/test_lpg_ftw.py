"""LPG-FTW's own properties: the dictionary, the codes, and what is kept of a task."""

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from posterity import tree
from posterity.agents.base import Score
from posterity.agents.lpg_ftw import (
    LpgFtw,
    LpgFtwSettings,
    LpgFtwSnapshot,
    State,
    _grown,
    best_dictionary,
    quadratic,
)
from posterity.agents.policy_gradient import MeanPolicy
from posterity.models.policy import Batch, PolicyParams
from posterity.types import Budget, HostArray, Key, Spec, Transition

SPEC = Spec(obs_dim=3, low=-np.ones(2), high=np.ones(2), max_episode_steps=6, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=4, iterations=2, steps_per_iteration=12)


def made(hidden: tuple[int, ...] = (), code_penalty: float = 1e-5) -> LpgFtw:
    small: dict[str, Any] = {
        "value": {"hidden": [8], "batch_size": 4},
        "columns": 2,
        "hidden": hidden,
        "step_size": 0.1,
    }
    return LpgFtw(SPEC, LpgFtwSettings.model_validate(small | {"code_penalty": code_penalty}), BUDGET)


agent = cache(made)


def rows(seed: int, reward: float = 1.0) -> Transition:
    """Twelve steps that terminate all the time, in each of two lanes."""
    draw = np.random.default_rng(seed)
    obs, ends = draw.normal(size=(2, 12, 3)), np.ones((2, 12), dtype=bool)
    return Transition(obs, draw.uniform(-1, 1, (2, 12, 2)), reward * draw.normal(size=(2, 12)), obs, ends, ~ends)


def begun(learner: LpgFtw, state: State, task: int) -> State:
    return learner.begin_task([key.fold(task) for key in KEYS], state)


def learned(learner: LpgFtw, state: State, seed: int) -> State:
    return learner.update([key.fold(seed) for key in KEYS], state, rows(seed))[0]


def lived(learner: LpgFtw, tasks: int, iterations: int = BUDGET.iterations) -> State:
    """All but the last task to its end; of the last so many iterations."""
    state = learner.init(KEYS)
    for task in range(tasks):
        state = begun(learner, state, task)
        for iteration in range(iterations if task == tasks - 1 else BUDGET.iterations):
            state = learned(learner, state, 10 * task + iteration)
    return state


def theta_of(learner: LpgFtw, own: LpgFtwSnapshot, latest: LpgFtwSnapshot, score: Score) -> HostArray:
    policy = learner.policy(own, latest, score, "")
    assert isinstance(policy, MeanPolicy)
    return policy.theta


def test_the_dictionary_is_the_direct_least_squares_solution():
    """With H = -R' R the objective is -|R (L s - theta) - R^-T g / 2|^2 up to a constant: rows of one linear system."""
    draw = np.random.default_rng(0)
    d, k, tasks, penalty = 4, 3, 5, 1e-2
    a, b = np.zeros((k * d, k * d)), np.zeros(k * d)
    system, aims = [np.sqrt(penalty / 2) * np.eye(k * d)], [np.zeros(k * d)]
    for _ in range(tasks):
        code, theta, g = draw.normal(size=k), draw.normal(size=d), draw.normal(size=d)
        root = draw.normal(size=(d, d)) + 2 * np.eye(d)
        more = quadratic(code, theta, g, -root.T @ root)
        a, b = a + more[0], b + more[1]
        share = np.sqrt(1 / tasks)
        system.append(share * np.hstack([s * root for s in code]))  # R L s, L column after column
        aims.append(share * (root @ theta + np.linalg.solve(root.T, g) / 2))
    direct = np.linalg.lstsq(np.vstack(system), np.concatenate(aims), rcond=None)[0]
    found = best_dictionary(a / tasks, b / tasks, penalty, k)
    np.testing.assert_allclose(found, direct.reshape(k, d).T, rtol=1e-8)


def test_the_dictionary_is_where_the_sum_of_quadratic_models_is_highest():
    """Signs: any other dictionary is worse for the tasks' models of their returns."""
    draw = np.random.default_rng(1)
    d, k = 3, 2
    tasks = [(draw.normal(size=k), draw.normal(size=d), draw.normal(size=d), -np.eye(d) * w) for w in (0.5, 1.0, 2.0)]
    parts = [quadratic(*task) for task in tasks]
    found = best_dictionary(np.mean([p[0] for p in parts], axis=0), np.mean([p[1] for p in parts], axis=0), 1e-5, k)

    def models(dictionary: np.ndarray) -> float:
        off = [(dictionary @ code - theta, g, h) for code, theta, g, h in tasks]
        return sum(g @ o + o @ h @ o for o, g, h in off) / 3 - 1e-5 * (dictionary**2).sum() / 2

    for _ in range(20):
        assert models(found + 0.1 * draw.normal(size=(d, k))) < models(found)


def test_the_first_task_trains_the_first_column_and_later_ones_leave_the_dictionary_alone():
    start = begun(agent(), agent().init(KEYS), 0)
    first = learned(agent(), start, 0)
    assert (first.trained.dictionary[..., 0] != start.trained.dictionary[..., 0]).all()
    assert not first.trained.dictionary[..., 1].any()
    np.testing.assert_array_equal(first.trained.code, [[1, 0], [1, 0]])
    for tasks in (2, 3):
        before, after = lived(agent(), tasks, 0), lived(agent(), tasks, 1)
        np.testing.assert_array_equal(after.trained.dictionary, before.trained.dictionary)
        assert (after.trained.code[:, : tasks - 1] != before.trained.code[:, : tasks - 1]).all()
        assert after.trained.extra.any() == (tasks == 2), "a vector of its own while there are columns to come"


def test_a_new_column_leaves_the_policy_what_it_was():
    """theta = L s + extra before, L s after; the column has the length of the others."""
    before = lived(agent(), 2, 1).trained
    after = _grown(before, 1)
    for lane in (0, 1):
        theta = before.dictionary[lane] @ before.code[lane] + before.extra[lane]
        np.testing.assert_allclose(after.dictionary[lane] @ after.code[lane], theta, rtol=1e-5, atol=1e-7)
    lengths = np.linalg.norm(after.dictionary, axis=1)
    np.testing.assert_allclose(lengths[:, 0], lengths[:, 1], rtol=1e-5)
    assert not after.extra.any()
    assert _grown(before, 2) is before, "no column is left"


def test_the_policy_of_the_task_is_what_was_trained_though_the_dictionary_is_found_anew():
    before = lived(agent(), 2, 1)
    after = learned(agent(), before, 11)
    changed = (after.trained.dictionary @ after.trained.code[..., None])[..., 0]
    assert not np.allclose(changed, after.policy.theta, atol=1e-6)
    np.testing.assert_array_equal(agent().snapshot(KEYS, after).theta, after.policy.theta)


def test_a_task_starts_from_the_mean_of_the_codes_so_far():
    state = lived(agent(), 2)
    later = begun(agent(), state, 2)
    np.testing.assert_allclose(later.trained.code, state.memory.codes / 2, rtol=1e-6)
    np.testing.assert_allclose(later.trained.code[:, 1], state.trained.code[:, 1] / 2, rtol=1e-6)
    assert not later.policy.log_std.any(), "deviations are the task's own"


def quiet(penalty: float):
    """The second task begins, and nothing in it is better than anything else. The column is long: a step's length is
    measured in policies, so with a short one it would lead past zero."""
    learner = agent(code_penalty=penalty)
    state = lived(learner, 2, 0)
    trained = state.trained._replace(dictionary=1000 * state.trained.dictionary)
    value = jax.tree.map(np.zeros_like, state.value)
    state = state._replace(trained=trained, policy=jax.device_get(learner._compose(trained)), value=value)
    after, _ = learner.update(KEYS, state, rows(0, reward=0.0))
    return state.trained.code, after.trained.code


def test_a_coefficient_that_does_not_help_shrinks():
    before, after = quiet(penalty=1e-3)
    assert (np.abs(after[:, 0]) < np.abs(before[:, 0])).all()
    before, after = quiet(penalty=0.0)
    np.testing.assert_allclose(after, before, atol=1e-6)


def test_what_helps_outweighs_the_penalty():
    """Two columns, of which the first helps: its coefficient grows, the other's shrinks."""
    learner, draw = agent(code_penalty=1e-3), np.random.default_rng(5)
    state = lived(learner, 3, 0)
    dictionary = np.zeros_like(state.trained.dictionary)
    dictionary[:, 6, 0], dictionary[:, 7, 1] = 1.0, 1.0  # the two biases
    trained = state.trained._replace(dictionary=dictionary, code=np.full((2, 2), 0.5, np.float32))
    composed = jax.device_get(learner._compose(trained))
    noise = draw.normal(size=(2, 12, 2)).astype(np.float32)
    noise[..., 1] = np.sign(draw.normal(size=(2, 12)))  # mean score of the second is 0 given the first
    state = state._replace(trained=trained, policy=composed, noise=noise)
    state = state._replace(value=jax.tree.map(np.zeros_like, state.value))
    noise[:, 6:, 0], noise[:, 6:, 1] = noise[:, :6, 0], -noise[:, :6, 1]
    after, _ = learner.update(KEYS, state, rows(0)._replace(reward=noise[..., 0]))
    assert (after.trained.code[:, 0] > 0.5).all()
    assert (after.trained.code[:, 1] < 0.5).all()


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_going_back_is_with_the_dictionary_as_it_is_now_and_the_tasks_own_code(hidden: tuple[int, ...]):
    learner = agent(hidden)
    own, latest = (learner.snapshot(KEYS, lived(learner, tasks)) for tasks in (2, 4))
    back = theta_of(learner, own, latest, "back")
    for lane in (0, 1):
        by_hand = latest.dictionary[lane] @ own.code[lane]
        np.testing.assert_allclose(back[lane, : learner.shared], by_hand, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(back[:, learner.shared :], own.theta[:, learner.shared :])
    assert not np.allclose(back, own.theta)
    np.testing.assert_array_equal(theta_of(learner, own, latest, "train"), own.theta)


def test_with_hidden_layers_each_task_has_an_output_layer_of_its_own():
    learner = agent((4,))
    one = lived(learner, 1)
    later = begun(learner, one, 1)
    assert learner.shared == 3 * 4 + 4
    assert one.trained.head.shape == (2, 4 * 2 + 2)
    assert not (later.trained.head == one.trained.head).any()
    np.testing.assert_allclose(
        later.policy.theta[:, : learner.shared], one.policy.theta[:, : learner.shared], atol=1e-6
    )


def test_the_curvature_is_that_of_a_linear_policy_in_closed_form():
    """F = mean of x x' kron diag(1 / variance), x = (s, 1), in the order of theta."""
    draw = np.random.default_rng(2)
    obs, noise = draw.normal(size=(1, 50, 3)).astype(np.float32), draw.normal(size=(1, 50, 2)).astype(np.float32)
    policy = PolicyParams(draw.normal(size=(1, 8)).astype(np.float32), np.array([[0.2, -0.4]], np.float32))
    batch = Batch(obs, noise, draw.normal(size=(1, 50)).astype(np.float32))
    _, fisher = agent()._curvature(policy, policy, batch)
    x = np.concatenate([obs[0], np.ones((50, 1))], axis=1)
    np.testing.assert_allclose(fisher[0], np.kron(x.T @ x / 50, np.diag(np.exp([-0.4, 0.8]))), rtol=1e-3, atol=1e-5)


def test_every_program_is_traced_once_in_a_run():
    learner = made((4,))
    lived(learner, 4)
    assert [p.traces for p in (learner._update, learner._curvature, learner._compose, learner._init_params)] == [1] * 4


def test_an_agent_made_anew_goes_on_from_the_state_bit_for_bit():
    """The noise of the iteration to come, the memory of earlier tasks and the value network are all in the state."""
    whole = broken = begun(agent((4,)), agent((4,)).init(KEYS), 0)
    for number in range(2 * BUDGET.iterations):
        if number == BUDGET.iterations:
            whole, broken = begun(agent((4,)), whole, 1), begun(made((4,)), broken, 1)
        other = made((4,))
        obs, first = np.ones((2, 3)), np.zeros(2, dtype=bool)
        whole, actions = agent((4,)).act(KEYS, whole, obs, first)
        broken, again = other.act(KEYS, broken, obs, first)
        np.testing.assert_array_equal(actions, again)
        whole, broken = learned(agent((4,)), whole, number), learned(other, broken, number)
    for (name, one), (_, same) in zip(tree.leaves(whole), tree.leaves(broken), strict=True):
        np.testing.assert_array_equal(one, same, err_msg=name)
