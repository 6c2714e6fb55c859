import numpy as np
import pytest
from scipy.special import gammaln

from posterity.errors import UserError
from posterity.tabular.dirichlet import DirichletRows, Pooling, fit_dirichlet, sample_dirichlet
from posterity.types import FiniteSpec, FloatArray, Transition

SPEC = FiniteSpec(3, 2, np.array([0.0, 1.0]), np.zeros(3, dtype=bool), 10)


def belief(pooling: Pooling = "evidence", tasks: int = 5) -> DirichletRows:
    return DirichletRows(SPEC, tasks, 1.0, pooling)


def step(state: int, action: int, reward: float, following: int) -> Transition:
    """One step of one lane, which ends nothing."""
    no = np.array(False)
    return Transition(np.array(state), np.array(action), np.array(reward), np.array(following), no, no)


def polya(counts: FloatArray, alpha: FloatArray) -> float:
    """Log probability of the counts [C, M] of C tasks whose rows were drawn from Dirichlet(alpha)."""
    whole, total = alpha.sum(), counts.sum(axis=1)
    ends = gammaln(whole) - gammaln(whole + total) + (gammaln(counts + alpha) - gammaln(alpha)).sum(axis=1)
    return float(ends.sum())


def test_the_posterior_equals_counting():
    rows = belief()
    _, task = rows.begin(rows.prior())
    generator = np.random.default_rng(0)
    counts, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2, 2))
    for _ in range(200):
        state, action, following, level = (int(generator.integers(n)) for n in (3, 2, 3, 2))
        task = rows.observe(task, step(state, action, float(level), following))
        counts[state, action, following] += 1
        rewards[state, action, level] += 1
    np.testing.assert_array_equal(task.prior.next_state + task.counts.next_state, 1.0 + counts)
    np.testing.assert_array_equal(task.prior.reward + task.counts.reward, 1.0 + rewards)


def test_observing_leaves_the_earlier_posterior_as_it_was():
    rows = belief()
    _, before = rows.begin(rows.prior())
    rows.observe(before, step(0, 0, 0.0, 1))
    assert not before.counts.next_state.any()


def test_a_reward_that_is_none_of_the_levels_is_refused():
    rows = belief()
    _, task = rows.begin(rows.prior())
    with pytest.raises(UserError, match=r"The environment paid 0\.5, which is none of the spec's levels"):
        rows.observe(task, step(0, 0, 0.5, 1))


def test_draws_have_the_moments_of_a_dirichlet():
    """Mean alpha / total, variance m (1 - m) / (total + 1); 4 standard errors of 40,000 draws."""
    alpha = np.array([[0.05, 0.5, 3.0], [2.0, 2.0, 2.0]])
    draws = sample_dirichlet(np.random.default_rng(0), alpha, 40_000)
    mean = alpha / alpha.sum(axis=1, keepdims=True)
    variance = mean * (1 - mean) / (alpha.sum(axis=1, keepdims=True) + 1)
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * np.sqrt(variance / 40_000)).all()
    assert (np.abs(draws.var(axis=0) / variance - 1) < 0.06).all()


def test_tiny_and_zero_parameters_give_rows_that_sum_to_one():
    draws = sample_dirichlet(np.random.default_rng(0), np.array([1e-8, 1e-8, 0.0]), 1000)
    np.testing.assert_allclose(draws.sum(axis=1), 1.0)
    assert (draws[:, 2] == 0.0).all()
    assert 0.3 < (draws[:, 0] > 0.5).mean() < 0.7  # nearly all of the mass in one outcome, either as often


def test_the_fitted_dirichlet_makes_the_counts_most_probable():
    """Against a grid around the optimum, with the prior's weight next to nothing."""
    generator = np.random.default_rng(1)
    truth = np.array([1.5, 4.0, 0.5])
    counts = np.stack([generator.multinomial(40, generator.dirichlet(truth)) for _ in range(400)]).astype(float)
    fitted = fit_dirichlet(counts, np.ones(3), mode=1.0, strength=1e-9, tolerance=1e-7)
    for factor in np.stack(np.meshgrid([0.97, 1.0, 1.03], [0.97, 1.0, 1.03], [0.97, 1.0, 1.03]), -1).reshape(-1, 3):
        assert polya(counts, fitted) >= polya(counts, fitted * factor) - 1e-6
    np.testing.assert_allclose(fitted, truth, rtol=0.15)  # 400 tasks of 40 observations


def test_a_row_nobody_visited_stays_at_the_prior():
    np.testing.assert_allclose(fit_dirichlet(np.zeros((6, 2, 3)), np.ones((2, 3)), mode=1.0), 1.0)


def test_the_world_posterior_is_as_wide_as_the_tasks_differ_and_added_counts_are_not():
    """Tasks are certain coins, half of them always heads. `evidence` sees that they differ; `counts` narrows."""
    shape = (SPEC.states, SPEC.actions)
    spread = {}
    for pooling in ("evidence", "counts"):
        rows = belief(pooling, tasks=20)
        world = rows.prior()
        for number in range(20):
            world, task = rows.begin(world)
            for _ in range(10):
                for state, action in np.ndindex(shape):
                    task = rows.observe(task, step(state, action, float(number % 2), 0))
            world = rows.pool(world, task)
        draws = sample_dirichlet(np.random.default_rng(0), world.alpha.reward[0, 0], 4000)[:, 1]
        spread[pooling] = draws.std()
    assert spread["counts"] < 0.05
    assert spread["evidence"] > 0.3  # a fair mixture of 0 and 1 has standard deviation 0.5


def test_known_pairs_come_from_the_task_and_unknown_ones_from_the_world():
    rows = belief("counts")
    world, task = rows.begin(rows.prior())
    for _ in range(5000):
        task = rows.observe(task, step(0, 0, 1.0, 2))
        task = rows.observe(task, step(1, 1, 1.0, 2))
    known = np.zeros((3, 2), dtype=bool)
    known[0, 0] = True
    models = rows.sample(np.random.default_rng(0), world, task, known, 200)
    assert models.probability[:, 0, 0, 2].min() > 0.99
    assert models.reward[:, 0, 0].min() > 0.99
    assert 0.25 < models.probability[:, 1, 1, 2].mean() < 0.42  # uniform over three states: 1/3, sd 0.24 / sqrt(200)


def test_more_tasks_than_there_is_room_for_are_refused():
    rows = belief(tasks=1)
    world, _ = rows.begin(rows.prior())
    with pytest.raises(ValueError, match="room for 1 tasks"):
        rows.begin(world)


def test_added_counts_are_those_of_all_tasks():
    rows = belief("counts")
    world = rows.prior()
    for following in (0, 1, 1):
        world, task = rows.begin(world)
        world = rows.pool(world, rows.observe(task, step(2, 1, 0.0, following)))
    np.testing.assert_array_equal(world.alpha.next_state[2, 1], [2.0, 3.0, 1.0])
    assert world.alpha.next_state.sum() == 3 * 2 * 3 + 3


def test_more_counts_than_memory_should_hold_are_refused_before_the_run():
    with pytest.raises(UserError, match="use fewer tasks or states, or pooling 'counts'"):
        DirichletRows(SPEC._replace(states=300), 500, 1.0, "evidence")


def test_pooling_again_in_the_same_task_counts_it_once():
    rows = belief("counts")
    world, task = rows.begin(rows.prior())
    task = rows.observe(task, step(0, 0, 0.0, 1))
    world = rows.pool(rows.pool(world, task), task)
    assert world.alpha.next_state[0, 0, 1] == 2.0
