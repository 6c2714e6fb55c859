"""Tasks of several kinds: coins that are always heads, or always tails."""

import numpy as np

from posterity.tabular.dirichlet import DirichletRows
from posterity.tabular.kinds import DirichletKinds, KindsTask, Worlds
from posterity.types import Budget, FiniteSpec, Transition

SPEC = FiniteSpec(2, 2, np.array([0.0, 1.0]), np.zeros(2, dtype=bool), 10)
ROWS = DirichletRows(SPEC, Budget(10, 10, 10), 1.0, "evidence")
KINDS = DirichletKinds(ROWS, 3)
ALL = np.ones((2, 2), dtype=bool)


def tosses(level: int, count: int, action: int = 0) -> Transition:
    """Steps in state 0 that pay `level` and lead to the state of the same number."""
    no = np.zeros(count, dtype=bool)
    same = np.full(count, level)
    return Transition(np.zeros(count, int), np.full(count, action), same.astype(float), same, no, no)


def learned() -> Worlds:
    """Six tasks, heads and tails in turn, in both actions."""
    worlds = KINDS.prior()
    for number in range(6):
        task = KINDS.begin(worlds)
        for action in (0, 1):
            task = KINDS.observe(task, tosses(number % 2, 20, action))
        worlds = KINDS.pool(worlds, task, final=True)
    return worlds


def after(worlds: Worlds, level: int, count: int) -> KindsTask:
    return KINDS.observe(KINDS.begin(worlds), tosses(level, count))


def test_tasks_are_sorted_into_as_many_kinds_as_there_are():
    assert sorted(learned().tasks.tolist()) == [0.0, 3.0, 3.0]


def test_a_few_steps_tell_the_kind_and_with_it_what_was_not_tried_yet():
    """After three heads by action 0, action 1 is believed to give heads as well; with one kind for all it is open."""
    worlds = learned()
    for level in (0, 1):
        task = after(worlds, level, 3)
        assert KINDS.probabilities(task).max() > 0.9
        untried = KINDS.mean(worlds, task, ALL).reward[0, 1]
        assert abs(untried - level) < 0.25
        draws = KINDS.sample(np.random.default_rng(0), worlds, task, ALL, 200).reward[:, 0, 1]
        assert abs(draws.mean() - level) < 0.3


def test_the_probabilities_of_kinds_are_bayes_rule():
    """Weights 3, 3 and 1 for a new kind, times the evidence of the counts in each."""
    worlds = learned()
    task = after(worlds, 1, 2)
    logs = []
    for kind in range(3):
        rows = [(part[kind][0, 0], counts[0, 0]) for part, counts in zip(task.prior, task.counts, strict=True)]
        predicted = [np.prod([(a[1] + n) / (a.sum() + n) for n in range(2)]) for a, _ in rows]  # two heads in a row
        logs.append(np.log(np.prod(predicted) * max(worlds.tasks[kind], 1.0)))
    expected = np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_allclose(KINDS.probabilities(task), expected, rtol=1e-9)


def test_the_variance_of_what_a_pair_is_worth_is_that_of_sampled_models_of_all_kinds():
    worlds, values = learned(), np.array([0.0, 3.0])
    task = after(worlds, 1, 1)
    drawn = KINDS.sample(np.random.default_rng(0), worlds, task, ALL, 20_000)
    brute = (drawn.reward + 0.9 * (drawn.probability * values).sum(axis=-1)).var(axis=0)
    np.testing.assert_allclose(KINDS.variance(worlds, task, ALL, values, 0.9), brute, rtol=0.08)
