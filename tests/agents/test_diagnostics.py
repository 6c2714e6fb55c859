import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents import checks
from posterity.errors import UserError
from posterity.types import Transition

PROMISED = jnp.array([[6.0, 2.0, 2.0], [0.0, 0.0, 0.0]])


def rows(seed: int, episodes: int = 1) -> Transition:
    """Twelve steps of one long walk, or of several."""
    generator = np.random.default_rng(seed)
    place, obs, following = np.zeros(2), np.zeros((12, 2)), np.zeros((12, 2))
    for step in range(12):
        if step % (12 // episodes) == 0:
            place = generator.normal(size=2)
        obs[step] = place
        place = place + 0.1 * generator.normal(size=2)
        following[step] = place
    return Transition(obs, np.zeros((12, 1)), obs[:, 0], following, np.zeros(12, dtype=bool))


def twice(one: Transition) -> Transition:
    return Transition(*(np.stack([column, column]) for column in one))


def test_promises_are_means_over_plans():
    got = checks.forecasts(PROMISED, twice(rows(5)), 3)
    np.testing.assert_allclose(got["forecast"], [3.0, 0.0])
    np.testing.assert_allclose(got["forecast_spread"], [1.0, 0.0])


def test_what_came_is_measured_only_inside_episodes():
    whole = checks.forecasts(PROMISED, twice(rows(5)), 3)["forecast_came"][0]
    reward = rows(5).reward
    assert whole == pytest.approx(np.mean([reward[t : t + 3].sum() for t in range(10)]), rel=1e-5)
    cut = rows(5, episodes=2)
    got = checks.forecasts(PROMISED, twice(cut), 3)["forecast_came"][0]
    inside = [cut.reward[t : t + 3].sum() for t in (0, 1, 2, 3, 6, 7, 8, 9)]
    assert got == pytest.approx(np.mean(inside), rel=1e-5)
    short = checks.forecasts(PROMISED, twice(rows(5, episodes=6)), 3)
    assert np.isnan(short["forecast_came"]).all()


def test_a_number_that_is_not_finite_is_a_model_that_diverged():
    with pytest.raises(UserError, match=r"task 2, iteration 3 \(x is nan\)"):
        checks.infos({"x": np.array([1.0, np.nan])}, 2, 2, 3)
    assert checks.infos({"x": np.array([1.0, 2.0])}, 2, 0, 0) == [{"x": 1.0}, {"x": 2.0}]


def test_a_forecast_that_overflowed_is_left_out_and_is_no_divergence():
    told = checks.infos(
        {"forecast": np.array([np.inf]), "forecast_spread": np.array([np.nan]), "x": np.ones(1)}, 1, 0, 0
    )
    assert told == [{"x": 1.0}]
