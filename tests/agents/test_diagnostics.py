"""What plans promised beside what came, and numbers that are not finite any more."""

import numpy as np
import pytest

from posterity.agents import diagnostics
from posterity.errors import UserError
from posterity.types import Transition

SUMS = np.array([[6.0, 2.0, 2.0], [0.0, 0.0, 0.0]])  # lane 0 made two plans, lane 1 none
REWARD = np.random.default_rng(5).normal(size=(2, 12))
LAST = [11]


def rows(truncated: list[int], terminated: list[int]) -> Transition:
    """Twelve steps in each of two lanes; in lane 0 episodes end after these steps, lane 1 is one long episode."""
    cut, over = np.zeros((2, 12), dtype=bool), np.zeros((2, 12), dtype=bool)
    cut[0, truncated], over[0, terminated], cut[1, -1] = True, True, True
    obs = np.zeros((2, 12, 2))  # nothing moves: where an episode ends is told by the flags alone
    return Transition(obs, np.zeros((2, 12, 1)), REWARD, obs, over, cut)


def windows(lane: int, starts: list[int]) -> float:
    """The mean return of three steps from each of these places."""
    return float(np.mean([REWARD[lane, t : t + 3].sum() for t in starts]))


def test_promises_are_means_over_plans():
    got = diagnostics.forecasts(SUMS, rows([], LAST), 3)
    np.testing.assert_allclose(got["forecast"], [3.0, 0.0])
    np.testing.assert_allclose(got["forecast_std"], [1.0, 0.0])


def test_what_came_is_the_mean_return_of_all_windows_of_a_long_episode():
    got = diagnostics.forecasts(SUMS, rows([], LAST), 3)["forecast_realised"]
    np.testing.assert_allclose(got, [windows(lane, [*range(10)]) for lane in (0, 1)], rtol=1e-5)


@pytest.mark.parametrize(("truncated", "terminated"), [([5, 11], []), ([], [5, 11]), ([11], [5])])
def test_what_came_is_measured_only_inside_episodes(truncated: list[int], terminated: list[int]):
    """Whether a time limit ended them or a fall; and each lane has episodes of its own."""
    got = diagnostics.forecasts(SUMS, rows(truncated, terminated), 3)["forecast_realised"]
    inside = windows(0, [0, 1, 2, 3, 6, 7, 8, 9])
    np.testing.assert_allclose(got, [inside, windows(1, [*range(10)])], rtol=1e-5)


def test_where_no_episode_holds_a_window_there_is_no_number():
    got = diagnostics.forecasts(SUMS, rows([1, 3, 5, 7, 9, 11], []), 3)["forecast_realised"]
    np.testing.assert_array_equal(np.isnan(got), [True, False])


def test_a_horizon_longer_than_an_iteration_is_measured_over_the_iteration():
    got = diagnostics.forecasts(SUMS, rows([], LAST), 50)["forecast_realised"]
    np.testing.assert_allclose(got, REWARD.sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_a_model_that_diverged(bad: float):
    """In any lane; the line says what, where and what to do."""
    with pytest.raises(UserError, match=rf"^The critic diverged in task 2, iteration 3 \(x is {bad}\); wait$"):
        diagnostics.checked({"x": np.array([1.0, bad])}, "critic", "task 2, iteration 3", "wait")
    info = diagnostics.checked({"x": np.array([1.0, 2.0])}, "critic", "here", "wait")
    assert set(info) == {"x"}
    np.testing.assert_array_equal(info["x"], [1.0, 2.0])


def test_a_forecast_that_overflowed_is_no_divergence():
    facts = {"forecast": np.array([np.inf, 1.0]), "forecast_std": np.array([np.nan, 1.0])}
    facts |= {"forecast_realised": np.array([np.nan, 1.0]), "x": np.ones(2)}
    assert diagnostics.checked(facts, "model", "here", "wait").keys() == facts.keys()
