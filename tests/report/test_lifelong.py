"""What was transferred and forgotten: matrices worked out by hand, and the formulas once more, written as loops."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posterity.experiment.records import read_run
from posterity.report import lifelong
from posterity.report.tables import View

MakeUp = Callable[..., Path]

# After learning task 1, 2, 3 (rows), in task 1, 2, 3 (columns).
MATRIX = np.array([[[10.0, 4.0, 2.0], [8.0, 20.0, 7.0], [6.0, 23.0, 30.0]]])


def test_gem_s_backward_transfer_of_a_matrix_by_hand():
    """Task 1: 6 - 10 = -4. Task 2: 23 - 20 = 3. The last task has none. Mean -0.5."""
    got = lifelong.backward_transfer_gem(MATRIX)
    np.testing.assert_array_equal(got, [[-4.0, 3.0, np.nan]])
    assert np.nanmean(got) == -0.5


def test_gem_s_forward_transfer_of_a_matrix_by_hand():
    """Task 2 before it is learned: 4 - 1 = 3. Task 3: 7 - 1 = 6. The first task has none."""
    got = lifelong.forward_transfer_gem(MATRIX, np.array([[1.0]]))
    np.testing.assert_array_equal(got, [[np.nan, 3.0, 6.0]])


def test_continual_world_s_forgetting_has_the_last_task_in_its_mean():
    """(10 - 6, 20 - 23, 0): mean 1/3, where GEM's backward transfer has -0.5."""
    got = lifelong.forgetting_continual_world(MATRIX)
    np.testing.assert_array_equal(got, [[4.0, -3.0, 0.0]])


def test_only_the_last_row_the_diagonal_and_what_is_above_it_are_needed():
    sparse = MATRIX.copy()
    sparse[0, 1, 0] = sparse[0, 0, 2] = np.nan
    np.testing.assert_array_equal(lifelong.backward_transfer_gem(sparse), lifelong.backward_transfer_gem(MATRIX))
    nothing = np.full((2, 3, 3), np.nan)
    assert np.isnan(lifelong.backward_transfer_gem(nothing)).all()
    assert np.isnan(lifelong.forgetting_continual_world(nothing)).all()


def test_the_formulas_written_as_loops_give_the_same():
    generator = np.random.default_rng(1)
    for seeds, tasks in ((1, 2), (3, 5), (4, 9)):
        matrix, before = generator.normal(size=(seeds, tasks, tasks)), generator.normal(size=(seeds, tasks))
        for lane in range(seeds):
            back = sum(matrix[lane, tasks - 1, j] - matrix[lane, j, j] for j in range(tasks - 1)) / (tasks - 1)
            forward = sum(matrix[lane, j - 1, j] - before[lane, j] for j in range(1, tasks)) / (tasks - 1)
            lost = sum(matrix[lane, j, j] - matrix[lane, tasks - 1, j] for j in range(tasks)) / tasks
            assert np.nanmean(lifelong.backward_transfer_gem(matrix)[lane]) == pytest.approx(back)
            assert np.nanmean(lifelong.forward_transfer_gem(matrix, before)[lane]) == pytest.approx(forward)
            assert np.nanmean(lifelong.forgetting_continual_world(matrix)[lane]) == pytest.approx(lost)


def test_the_matrix_of_a_run_has_train_zero_shot_and_back_in_their_places(whole: MakeUp, tmp_path: Path):
    run = read_run(whole(tmp_path / "run", tasks=3))
    expected = [[5.0, 1.0, np.nan], [4.0, 6.0, 1.0], [3.0, 5.0, 7.0]]
    for lane in lifelong.transfer_matrix(run):
        np.testing.assert_array_equal(lane, expected)
    part = lifelong.transfer_matrix(View(2).of(run))
    np.testing.assert_array_equal(part[0], [[6.0, 1.0], [5.0, 7.0]])


def test_continual_world_s_forward_transfer_is_the_area_gained_of_what_could_be_gained(whole: MakeUp, tmp_path: Path):
    """Success 1 - 1 / (1 + i) of single-task: B is the mean over 5 iterations; ours is half way from there to 1."""
    single = read_run(whole(tmp_path / "single", "single-task"))
    run = single._replace(success=(single.success + 1.0) / 2)
    other = lifelong.reference(run, single)
    np.testing.assert_allclose(lifelong.forward_transfer_continual_world(run, other), 0.5)
    np.testing.assert_allclose(lifelong.forward_transfer_continual_world(single, other), 0.0)
    perfect = lifelong.reference(run, single._replace(success=np.ones_like(single.success)))
    assert np.isnan(lifelong.forward_transfer_continual_world(run, perfect)).all(), "nothing could be gained"


def test_scaled_returns_run_from_the_worst_iteration_to_the_best_of_both(made_up: MakeUp, tmp_path: Path):
    """One seed, one task: single-task 0, 1, 2, 3, 4; ours 4, 4, 4, 4, 4. Scaled: B = 0.5, A = 1."""
    single = read_run(made_up(tmp_path / "single", "single-task", seeds=1, tasks=1))
    run = single._replace(returns=np.full_like(single.returns, 4.0))
    other = lifelong.reference(run, single)
    scaled = lifelong.forward_transfer_continual_world_of_scaled_returns(run, other)
    np.testing.assert_allclose(scaled, [[1.0]])
    np.testing.assert_allclose(lifelong.area_difference(run, other), [[2.0]])


def test_single_task_is_paired_by_seed_unless_all_seeds_meet_the_same_tasks(made_up: MakeUp, tmp_path: Path):
    single = read_run(made_up(tmp_path / "single", "single-task", seed=8))  # seeds 8, 9, 10: 0, 100, 200
    run = read_run(made_up(tmp_path / "run", seed=7))  # seeds 7, 8, 9
    assert not run.same_tasks
    other = lifelong.reference(run, single)
    assert np.isnan(other.returns[0]).all(), "single-task has no seed 7"
    np.testing.assert_array_equal(other.returns[1:], single.returns[:2])
    alike = lifelong.reference(run._replace(same_tasks=True), single._replace(same_tasks=True))
    for lane in alike.returns:
        np.testing.assert_array_equal(lane, single.returns.mean(axis=0))
    np.testing.assert_allclose(other.level[1, 0], 3.0)  # the last three of 0, 1, 2, 3, 4


def test_iterations_to_a_level_count_the_window_and_may_never_come(made_up: MakeUp, tmp_path: Path):
    """A rise by 1 an iteration: the mean of two is 0.5, 1.5, 2.5, 3.5 after 2, 3, 4, 5 iterations."""
    run = read_run(made_up(tmp_path / "run", seeds=1, tasks=1))
    other = lifelong.reference(run, run)

    def reached(level: float) -> float:
        return float(lifelong.iterations_to_level(run, other._replace(level=np.array([[level]])), window=2)[0, 0])

    assert [reached(level) for level in (0.0, 0.5, 0.6, 3.5, 3.6)] == [2.0, 2.0, 3.0, 5.0, np.inf]
    assert np.isnan(reached(np.nan))
    waits = lifelong.iterations_to_level(run, other, window=1)[0, 0]
    assert waits == 4.0, "the level is the mean of 2, 3 and 4, which the fourth iteration has"


def test_the_first_episode_is_told_only_where_an_iteration_has_no_more(whole: MakeUp, tmp_path: Path):
    run = read_run(whole(tmp_path / "run"))
    np.testing.assert_array_equal(lifelong.first_episode(run), run.returns[:, :, 0])
    several = run._replace(episodes=np.full_like(run.episodes, 3.0))
    assert np.isnan(lifelong.first_episode(several)).all()
