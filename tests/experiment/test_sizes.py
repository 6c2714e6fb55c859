"""The preset quick of a family that has none."""

import numpy as np
import pytest

from posterity.experiment.sizes import OPERATIONS, operations, quick_sizes, steps_per_iteration, weights
from posterity.types import Spec


def spec(obs_dim: int, actions: int, steps: int) -> Spec:
    return Spec(obs_dim, -np.ones(actions), np.ones(actions), steps, None)


def plan_operations(sizes: dict, given: Spec) -> float:
    planner = sizes["agent"]["planner"]
    size = weights(given, sizes["agent"]["network"]["hidden"])
    names = ("candidates", "particles", "horizon", "cem_iterations")
    return operations(size, *(planner[name] for name in names))


@pytest.mark.parametrize("obs_dim", [3, 11, 17, 40])
def test_a_plan_costs_no_more_for_a_larger_body(obs_dim: int):
    given = spec(obs_dim, max(1, obs_dim // 3), 1000)
    assert plan_operations(quick_sizes(given), given) <= OPERATIONS


def test_a_pendulum_has_the_plan_that_pendulum_gravity_has():
    planner = quick_sizes(spec(3, 1, 200))["agent"]["planner"]
    assert planner == {"horizon": 20, "candidates": 100, "elites": 10, "cem_iterations": 3, "particles": 5}


def test_no_plan_is_longer_than_an_episode():
    assert quick_sizes(spec(3, 1, 7))["agent"]["planner"]["horizon"] == 7


@pytest.mark.parametrize(("episode", "steps"), [(200, 200), (50, 100), (30, 120), (1000, 400), (7, 105), (400, 400)])
def test_an_iteration_is_an_episode_or_several_short_ones_or_the_beginning_of_a_long_one(episode: int, steps: int):
    assert steps_per_iteration(episode) == steps


@pytest.mark.parametrize("episode", [10, 100, 200, 1000])
def test_a_whole_run_has_about_as_many_plans_whatever_the_length_of_an_episode(episode: int):
    sizes = quick_sizes(spec(8, 2, episode))
    assert 3000 <= sizes["tasks"] * sizes["iterations"] * sizes["steps_per_iteration"] <= 10_000
