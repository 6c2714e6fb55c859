import numpy as np
import pytest

from posterity.errors import UserError
from posterity.tabular.dirichlet import DirichletRows, Pooling
from posterity.tabular.sampling import sample_dirichlet
from posterity.types import Budget, FiniteSpec, Transition

SPEC = FiniteSpec(3, 2, np.array([0.0, 1.0]), np.zeros(3, dtype=bool), 10)


BUDGET = Budget(tasks=5, iterations=100, steps_per_iteration=100)


def belief(pooling: Pooling = "evidence") -> DirichletRows:
    return DirichletRows(SPEC, BUDGET, 1.0, pooling)


def step(state: int, action: int, reward: float, following: int) -> Transition:
    """One step, which ends nothing."""
    no = np.array([False])
    return Transition(np.array([state]), np.array([action]), np.array([reward]), np.array([following]), no, no)


def test_the_posterior_equals_counting():
    rows = belief()
    task = rows.begin(rows.prior())
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
    before = rows.begin(rows.prior())
    rows.observe(before, step(0, 0, 0.0, 1))
    assert not before.counts.next_state.any()


def test_a_reward_that_is_none_of_the_levels_is_refused():
    rows = belief()
    task = rows.begin(rows.prior())
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


def test_the_world_posterior_is_as_wide_as_the_tasks_differ_and_added_counts_are_not():
    """Tasks are certain coins, half of them always heads. `evidence` sees that they differ; `counts` narrows."""
    shape = (SPEC.states, SPEC.actions)
    spread = {}
    for pooling in ("evidence", "counts"):
        rows = belief(pooling)
        world = rows.prior()
        for number in range(20):
            task = rows.begin(world)
            for _ in range(10):
                for state, action in np.ndindex(shape):
                    task = rows.observe(task, step(state, action, float(number % 2), 0))
            world = rows.pool(world, task, final=True)
        draws = sample_dirichlet(np.random.default_rng(0), world.alpha.reward[0, 0], 4000)[:, 1]
        spread[pooling] = draws.std()
    assert spread["counts"] < 0.05
    assert spread["evidence"] > 0.3  # a fair mixture of 0 and 1 has standard deviation 0.5


def test_known_pairs_come_from_the_task_and_unknown_ones_from_the_world():
    rows = belief("counts")
    world = rows.prior()
    task = rows.begin(world)
    for pair in (0, 1):
        many = Transition(*(np.repeat(part, 5000) for part in step(pair, pair, 1.0, 2)))
        task = rows.observe(task, many)
    known = np.zeros((3, 2), dtype=bool)
    known[0, 0] = True
    models = rows.sample(np.random.default_rng(0), world, task, known, 200)
    assert models.probability[:, 0, 0, 2].min() > 0.99
    assert models.reward[:, 0, 0].min() > 0.99
    assert 0.25 < models.probability[:, 1, 1, 2].mean() < 0.42  # uniform over three states: 1/3, sd 0.24 / sqrt(200)


def test_added_counts_are_those_of_all_tasks():
    rows = belief("counts")
    world = rows.prior()
    for following in (0, 1, 1):
        world = rows.pool(world, rows.observe(rows.begin(world), step(2, 1, 0.0, following)), final=True)
    np.testing.assert_array_equal(world.alpha.next_state[2, 1], [2.0, 3.0, 1.0])
    assert world.alpha.next_state.sum() == 3 * 2 * 3 + 3


def test_more_counts_than_memory_should_hold_are_refused_before_the_run():
    with pytest.raises(UserError, match=r"10000 states x 2 actions x 10000 next states would take .* use fewer states"):
        DirichletRows(SPEC._replace(states=10_000, terminal=np.zeros(10_000, dtype=bool)), BUDGET, 1.0, "evidence")


def test_pooling_again_in_the_same_task_counts_it_once():
    rows = belief("counts")
    world = rows.prior()
    task = rows.observe(rows.begin(world), step(0, 0, 0.0, 1))
    world = rows.pool(rows.pool(rows.pool(world, task), task), task, final=True)
    assert world.alpha.next_state[0, 0, 1] == 2.0


@pytest.mark.parametrize("pooling", ["evidence", "counts"])
def test_pooling_as_a_task_goes_on_comes_to_what_pooling_at_its_end_does(pooling: Pooling):
    """Only rows that changed are fitted again, from where the last fit ended: the same maximum."""
    rows, generator = belief(pooling), np.random.default_rng(0)
    often = once = rows.prior()
    for _ in range(3):
        task = rows.begin(often)
        other = rows.begin(once)
        for _ in range(60):
            state, action, following, level = (int(generator.integers(n)) for n in (2, 2, 3, 2))
            met = step(state, action, float(level), following)
            task, other = rows.observe(task, met), rows.observe(other, met)
            often = rows.pool(often, task)
        often, once = rows.pool(often, task, final=True), rows.pool(once, other, final=True)
    for one, two in zip(often.alpha, once.alpha, strict=True):
        np.testing.assert_allclose(one, two, rtol=0.01)
        np.testing.assert_array_equal(one[2], 1.0)  # nobody was in state 2


def test_rows_over_known_successors_are_those_of_the_dense_table():
    """Three possible next states out of five: the same draws of parameters, counted by name and by number."""
    successors = np.array([[[(s + a + m) % 5 for m in range(3)] for a in range(2)] for s in range(5)])
    spec = FiniteSpec(5, 2, np.array([0.0, 1.0]), np.zeros(5, dtype=bool), 10, successors=successors)
    rows = DirichletRows(spec, BUDGET, 1.0, "counts")
    task = rows.begin(rows.prior())
    task = rows.observe(task, step(4, 1, 1.0, 2))  # 4 by 1 leads to 0, 1 or 2
    np.testing.assert_array_equal(task.counts.next_state[4, 1], [0, 0, 1])
    mean = rows.mean(rows.prior(), task, np.ones((5, 2), dtype=bool))
    np.testing.assert_allclose(mean.probability[4, 1], [0.25, 0.25, 0.5])
    assert mean.successor is successors
    with pytest.raises(UserError, match="state 0 by action 0 led to 4, which is none of the spec's successors"):
        rows.observe(task, step(0, 0, 0.0, 4))


def test_the_posterior_is_bayes_rule_by_brute_force():
    """Prior Dirichlet(1, 1, 1) on a grid of rows, times the likelihood of what was seen: its mean is the belief's."""
    rows = belief()
    task = rows.begin(rows.prior())
    for following in (0, 1, 1, 2, 1):
        task = rows.observe(task, step(0, 1, 0.0, following))
    mean = rows.mean(rows.prior(), task, np.ones((3, 2), dtype=bool)).probability[0, 1]
    first, second = np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 1, 401))
    third = 1.0 - first - second
    weight = np.where(third >= 0, first * second**3 * np.maximum(third, 0), 0.0)
    brute = [(weight * part).sum() / weight.sum() for part in (first, second, third)]
    np.testing.assert_allclose(mean, brute, atol=2e-3)


def test_the_variance_of_what_a_pair_is_worth_is_that_of_sampled_models():
    """r + gamma p V of 20,000 draws, for a pair that was seen and for one that was not; 5 standard errors."""
    rows, values = belief(), np.array([0.0, 3.0, 1.0])
    task = rows.begin(rows.prior())
    for following in (0, 1, 1, 2, 1):
        task = rows.observe(task, step(0, 1, float(following == 1), following))
    known = np.ones((3, 2), dtype=bool)
    drawn = rows.sample(np.random.default_rng(0), rows.prior(), task, known, 20_000)
    brute = (drawn.reward + 0.9 * (drawn.probability * values).sum(axis=-1)).var(axis=0)
    np.testing.assert_allclose(rows.variance(rows.prior(), task, known, values, 0.9), brute, rtol=0.05)
