import numpy as np

from posterity.tabular.boss import merge, optimistic_values
from posterity.tabular.mdp import FiniteMDP, value_iteration

GAMMA, TOLERANCE = 0.95, 1e-10


def stack(count: int, states: int = 4, actions: int = 2) -> FiniteMDP:
    generator = np.random.default_rng(count)
    probability = generator.dirichlet(np.ones(states), (count, states, actions))
    return FiniteMDP(probability, None, generator.random((count, states, actions)), np.zeros(states, dtype=bool))


def one(models: FiniteMDP, k: int) -> FiniteMDP:
    return models._replace(probability=models.probability[k], reward=models.reward[k])


def test_action_a_k_of_the_merged_process_does_what_model_k_says_of_a():
    models = stack(3)
    merged = merge(models)
    assert merged.probability.shape == (4, 6, 4)
    for action in range(2):
        for k in range(3):
            np.testing.assert_array_equal(merged.probability[:, action * 3 + k], models.probability[k, :, action])
            np.testing.assert_array_equal(merged.reward[:, action * 3 + k], models.reward[k, :, action])


def test_one_model_merged_is_itself():
    models = stack(1)
    alone = value_iteration(one(models, 0), GAMMA, TOLERANCE).action_values
    np.testing.assert_allclose(optimistic_values(models, GAMMA, TOLERANCE), alone, atol=1e-9)


def test_the_merged_process_is_worth_at_least_the_best_model():
    models = stack(5)
    optimistic = optimistic_values(models, GAMMA, TOLERANCE).max(axis=1)
    for k in range(5):
        assert (optimistic >= value_iteration(one(models, k), GAMMA, TOLERANCE).values - 1e-9).all()


def test_two_models_that_each_know_half_of_the_way_are_merged_into_the_whole():
    """Model 0 says 'right' works in state 0, model 1 says it works in state 1; only together is the goal reached.

    States 0, 1, 2 (pays 1 and ends). Known answer: V(1) = 1, V(0) = gamma.
    """
    probability = np.zeros((2, 4, 2, 4))
    probability[:, :, 0, :] = np.eye(4)  # staying never fails
    probability[:, :, 1, :] = np.eye(4)
    probability[0, 0, 1] = [0.0, 1.0, 0.0, 0.0]
    probability[1, 1, 1] = [0.0, 0.0, 1.0, 0.0]
    reward = np.zeros((2, 4, 2))
    reward[1, 1, 1] = 1.0
    models = FiniteMDP(probability, None, reward, np.array([False, False, True, True]))
    np.testing.assert_allclose(
        optimistic_values(models, GAMMA, TOLERANCE).max(axis=1), [GAMMA, 1.0, 0.0, 0.0], atol=1e-8
    )
    assert value_iteration(one(models, 0), GAMMA, TOLERANCE).values[0] == 0.0


def test_merging_keeps_named_successors():
    models = stack(3)
    order = np.broadcast_to(np.arange(4)[::-1], (4, 2, 4)).copy()
    named = models._replace(probability=models.probability[..., ::-1], successor=order)
    np.testing.assert_allclose(
        optimistic_values(named, GAMMA, TOLERANCE), optimistic_values(models, GAMMA, TOLERANCE), atol=1e-9
    )
