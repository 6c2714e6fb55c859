import numpy as np
import pytest

from posterity.tabular.mdp import FiniteMDP, greedy, policy_values, value_iteration

GAMMA = 0.9


def two_states() -> FiniteMDP:
    """Staying in state 1 pays 1 for ever, staying in 0 pays nothing; "go" moves over and pays nothing.

    V(1) = 1 / (1 - gamma), V(0) = gamma V(1).
    """
    probability = np.zeros((2, 2, 2))
    probability[0, 0, 0] = probability[1, 0, 1] = 1.0  # stay
    probability[0, 1, 1] = probability[1, 1, 0] = 1.0  # go
    return FiniteMDP(probability, None, np.array([[0.0, 0.0], [1.0, 0.0]]), np.zeros(2, dtype=bool))


def random_mdp(seed: int = 0, states: int = 7, actions: int = 3) -> FiniteMDP:
    generator = np.random.default_rng(seed)
    probability = generator.dirichlet(np.ones(states), (states, actions))
    return FiniteMDP(probability, None, generator.random((states, actions)), np.arange(states) == states - 1)


def test_value_iteration_solves_the_two_state_problem():
    solution = value_iteration(two_states(), GAMMA, 1e-10)
    np.testing.assert_allclose(solution.values, [GAMMA / (1 - GAMMA), 1 / (1 - GAMMA)], atol=1e-8)
    np.testing.assert_array_equal(greedy(solution.action_values), [[0.0, 1.0], [1.0, 0.0]])


def test_the_stated_tolerance_bounds_the_error():
    exact = value_iteration(two_states(), GAMMA, 1e-12).values
    for tolerance in (0.5, 0.1, 0.01):
        rough = value_iteration(two_states(), GAMMA, tolerance).values
        assert np.abs(rough - exact).max() <= tolerance * GAMMA / (1 - GAMMA)


def test_no_policy_is_better_than_the_greedy_one():
    mdp = random_mdp()
    solution = value_iteration(mdp, GAMMA, 1e-12)
    best = policy_values(mdp, greedy(solution.action_values), GAMMA)
    np.testing.assert_allclose(best, solution.values, atol=1e-9)
    generator = np.random.default_rng(1)
    for _ in range(50):
        policy = generator.dirichlet(np.ones(3), 7)
        assert (policy_values(mdp, policy, GAMMA) <= solution.values + 1e-9).all()


def test_a_terminal_state_is_worth_nothing():
    mdp = random_mdp()
    assert value_iteration(mdp, GAMMA, 1e-9).values[-1] == 0.0
    assert policy_values(mdp, np.full((7, 3), 1 / 3), GAMMA)[-1] == pytest.approx(0.0)


def test_outcomes_that_name_their_successors_are_the_same_process():
    """A shuffled list of outcomes with `successor` set says what the dense array says."""
    dense = random_mdp()
    order = np.random.default_rng(2).permuted(np.broadcast_to(np.arange(7), (7, 3, 7)), axis=-1)
    sparse = dense._replace(probability=np.take_along_axis(dense.probability, order, axis=-1), successor=order)
    policy = np.full((7, 3), 1 / 3)
    np.testing.assert_allclose(
        value_iteration(sparse, GAMMA, 1e-9).values, value_iteration(dense, GAMMA, 1e-9).values, atol=1e-12
    )
    np.testing.assert_allclose(policy_values(sparse, policy, GAMMA), policy_values(dense, policy, GAMMA), atol=1e-12)


def test_greedy_spreads_over_ties():
    np.testing.assert_allclose(greedy(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])), [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
