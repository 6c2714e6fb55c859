"""Modified policy iteration beside plain value iteration."""

import numpy as np
import pytest

from posterity.families.grid import Grid, GridSettings
from posterity.tabular.mdp import FiniteMDP, value_iteration
from posterity.tabular.solve import solve, solve_each
from posterity.types import Key

GAMMA = 0.95


def grid(side: int) -> FiniteMDP:
    family = Grid(GridSettings(side=side))
    truth = family.truth(family.tasks(Key.of(0), 1)[0])
    return FiniteMDP(truth.probability, truth.successor, truth.reward @ family.spec.levels, family.spec.terminal)


@pytest.mark.parametrize("side", [5, 30])  # evaluated by a linear solve, and by sparse sweeps
def test_it_agrees_with_value_iteration_from_any_guess(side: int):
    mdp = grid(side)
    right = value_iteration(mdp, GAMMA, 1e-10).values
    for seed in (None, 0, 1):
        guess = None if seed is None else 20 * np.random.default_rng(seed).standard_normal(len(right))
        found = solve(mdp, GAMMA, 1e-6, guess)
        np.testing.assert_allclose(found.values, right, atol=1e-6)
        assert found.values[-1] == 0.0


def test_from_the_answer_it_is_done_at_once():
    mdp = grid(5)
    answer = solve(mdp, GAMMA, 1e-6)
    assert solve(mdp, GAMMA, 1e-5, answer.values).sweeps == 1 < answer.sweeps


def test_several_processes_solved_together_are_those_solved_alone():
    generator = np.random.default_rng(0)
    terminal = np.arange(6) == 5
    models = FiniteMDP(generator.dirichlet(np.ones(6), (4, 6, 3)), None, generator.random((4, 6, 3)), terminal)
    together = solve_each(models, GAMMA, 1e-8, np.zeros(6))
    for k in range(4):
        alone = value_iteration(FiniteMDP(models.probability[k], None, models.reward[k], terminal), GAMMA, 1e-11)
        np.testing.assert_allclose(together[k], alone.action_values, atol=1e-6)
