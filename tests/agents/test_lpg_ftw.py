"""LPG-FTW's own properties: the dictionary, the codes, and what is kept of a task."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from posterity.agents.lpg_ftw import LpgFtw, LpgFtwSettings, _grown, best_dictionary, quadratic
from posterity.experiment.config import resolve
from posterity.experiment.progress import Quiet
from posterity.experiment.folder import RunFolder
from posterity.experiment.run import lifelong
from posterity.models.policy import Batch, Policy
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(obs_dim=3, low=-np.ones(2), high=np.ones(2), steps=6, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=4, iterations=2, steps=12)


@cache
def agent(hidden: tuple[int, ...] = (), code_penalty: float = 1e-5) -> LpgFtw:
    small: dict[str, Any] = {"value": {"hidden": [8], "rows": 4}, "columns": 2, "hidden": hidden, "step_size": 0.1}
    return LpgFtw(SPEC, LpgFtwSettings.model_validate(small | {"code_penalty": code_penalty}), BUDGET)


def rows(seed: int, reward: float = 1.0) -> Transition:
    """Twelve steps that terminate all the time."""
    draw = np.random.default_rng(seed)
    obs = draw.normal(size=(12, 3))
    return Transition(obs, draw.uniform(-1, 1, (12, 2)), reward * draw.normal(size=12), obs, np.ones(12, dtype=bool))


def begun(learner: LpgFtw, state, task: int):
    return learner.begin_task([key.fold(task) for key in KEYS], state)


def learned(learner: LpgFtw, state, seed: int):
    keys = [key.fold(seed) for key in KEYS]
    return learner.learn(keys, state, [rows(seed), rows(seed + 500)])[0]


def lived(learner: LpgFtw, tasks: int, iterations: int = BUDGET.iterations):
    """All but the last task to its end; of the last so many iterations."""
    state = learner.init(KEYS)
    for task in range(tasks):
        state = begun(learner, state, task)
        for iteration in range(iterations if task == tasks - 1 else BUDGET.iterations):
            state = learned(learner, state, 10 * task + iteration)
    return state


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
    np.testing.assert_array_equal(agent().keep([], after).theta, after.policy.theta)


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
    state = state._replace(trained=trained, policy=jax.device_get(learner._composed(trained)), value=value)
    after, _ = learner.learn(KEYS, state, [rows(0, reward=0.0), rows(1, reward=0.0)])
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
    composed = jax.device_get(learner._composed(trained))
    noise = draw.normal(size=(2, 12, 2)).astype(np.float32)
    noise[..., 1] = np.sign(draw.normal(size=(2, 12)))  # mean score of the second is 0 given the first
    state = state._replace(trained=trained, policy=composed, noise=noise)
    state = state._replace(value=jax.tree.map(np.zeros_like, state.value))
    noise[:, 6:, 0], noise[:, 6:, 1] = noise[:, :6, 0], -noise[:, :6, 1]
    made = [rows(lane)._replace(reward=noise[lane, :, 0]) for lane in (0, 1)]
    after, _ = learner.learn(KEYS, state, made)
    assert (after.trained.code[:, 0] > 0.5).all()
    assert (after.trained.code[:, 1] < 0.5).all()


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_going_back_is_with_the_dictionary_as_it_is_now_and_the_tasks_own_code(hidden: tuple[int, ...]):
    learner = agent(hidden)
    own, latest = (learner.keep([], lived(learner, tasks)) for tasks in (2, 4))
    back = learner.player(own, latest, "back", "confidence").theta
    for lane in (0, 1):
        by_hand = latest.dictionary[lane] @ own.code[lane]
        np.testing.assert_allclose(back[lane, : learner.shared], by_hand, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(back[:, learner.shared :], own.theta[:, learner.shared :])
    assert not np.allclose(back, own.theta)
    np.testing.assert_array_equal(learner.player(own, latest, "train", "confidence").theta, own.theta)


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
    policy = Policy(draw.normal(size=(1, 8)).astype(np.float32), np.array([[0.2, -0.4]], np.float32))
    batch = Batch(obs, noise, draw.normal(size=(1, 50)).astype(np.float32))
    _, fisher = agent()._curve(policy, policy, batch)
    x = np.concatenate([obs[0], np.ones((50, 1))], axis=1)
    np.testing.assert_allclose(fisher[0], np.kron(x.T @ x / 50, np.diag(np.exp([-0.4, 0.8]))), rtol=1e-3, atol=1e-5)


def test_programs_compile_once_per_run():
    learner = agent((4,))
    lived(learner, 4)
    for program in (learner._update, learner._curve, learner._composed, learner._fresh):
        # JAX may have let go of it, under load seen once (0); more than one would be a shape that changes
        assert program._cache_size() <= 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_run_stopped_after_every_iteration_leaves_the_records_of_an_unbroken_one_bit_for_bit(tmp_path: Path):
    """The noise of the iteration to come, the memory of earlier tasks and the value network are all in the state."""
    small = {"value": {"hidden": [8], "rows": 10}, "hidden": [4], "columns": 2}
    config = resolve("pendulum-gravity", "lpg-ftw", "quick", {"tasks": 2, "iterations": 2, "steps": 20, "agent": small})
    folder = RunFolder.create(tmp_path / "whole", config, "test")
    assert lifelong(config, folder, Quiet(), lambda: "").finished
    folder.close()
    folder, sessions = RunFolder.create(tmp_path / "broken", config, "test"), 1
    while not lifelong(config, folder, Quiet(), lambda: "enough").finished:
        folder.close()
        folder, config = RunFolder.reopen(tmp_path / "broken", "test")
        sessions += 1
    folder.close()
    assert sessions == 4
    whole, broken = ((tmp_path / name / "records.jsonl").read_text() for name in ("whole", "broken"))
    assert re.sub(r', "wall": [^}]*', "", broken) == re.sub(r', "wall": [^}]*', "", whole)
