"""The cross-entropy method: known optima, bounds, scores that are not finite, and one iteration by hand."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from posterity.planning import cem
from posterity.planning.cem import Plan, PlannerSettings
from posterity.planning.rollout import ImaginedStep, imagined_returns

LOW, HIGH = jnp.array([-1.0, -2.0]), jnp.array([1.0, 2.0])
SETTINGS = PlannerSettings(horizon=4, candidates=300, elites=30, cem_iterations=8)
ONCE = SETTINGS.model_copy(update={"cem_iterations": 1})
Score = Callable[[jax.Array, jax.Array], jax.Array]


def search(
    score: Score,
    low: jax.Array = LOW,
    high: jax.Array = HIGH,
    settings: PlannerSettings = SETTINGS,
) -> Plan:
    begin = cem.start(settings.horizon, low, high)
    return jax.jit(lambda key: cem.cem(key, score, begin, low, high, settings))(jax.random.key(0))


def searched(score: Score, settings: PlannerSettings) -> tuple[Plan, list[jax.Array]]:
    """The plan, and the candidates of every iteration."""
    seen: list[jax.Array] = []

    def watched(key: jax.Array, candidates: jax.Array) -> jax.Array:
        seen.append(candidates)
        return score(key, candidates)

    with jax.disable_jit():
        plan = cem.cem(jax.random.key(0), watched, cem.start(4, LOW, HIGH), LOW, HIGH, settings)
    return plan, seen


def test_the_optimum_of_a_quadratic_is_found():
    target = jnp.array([[0.5, -1.0], [-0.4, 1.2], [0.0, 0.3], [0.6, -0.7]])
    plan = search(lambda _, candidates: -((candidates - target[None]) ** 2).sum(axis=(1, 2)))
    np.testing.assert_allclose(plan.mean, target, atol=0.05)


def test_an_optimum_beyond_the_bounds_is_met_at_the_bounds_and_no_candidate_leaves_them():
    plan, seen = searched(lambda _, candidates: candidates.sum(axis=(1, 2)), SETTINGS)
    assert len(seen) == SETTINGS.cem_iterations
    low, high = LOW[None, None], HIGH[None, None]
    assert all((candidates >= low).all() and (candidates <= high).all() for candidates in seen)
    assert (plan.mean > 0.4 * HIGH[None]).all()  # the spread narrows towards a bound, so it is neared by shares
    assert (plan.mean / HIGH[None]).mean() > 0.75  # over 40 seeds: mean 0.86, least 0.46


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_candidate_without_a_finite_score_never_wins(bad: float):
    """Where the first action is positive, as of every second candidate at first: as if it had the worst of scores."""

    def score(worst: float) -> Score:
        return lambda _, candidates: jnp.where(candidates[:, 0, 0] > 0.0, worst, candidates[:, 0, 0] - 100.0)

    plan, worst = search(score(bad)), search(score(-1e6))
    assert plan.mean[0, 0] < 0.0
    for got, expected in zip(plan, worst, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_with_fewer_finite_scores_than_elites_these_few_are_the_elites():
    """The ten with the least first action have one."""

    def score(_: jax.Array, candidates: jax.Array) -> jax.Array:
        first = candidates[:, 0, 0]
        return jnp.where(first <= jnp.sort(first)[9], first, jnp.nan)

    plan, [candidates] = searched(score, ONCE)
    few = np.asarray(candidates)[np.argsort(candidates[:, 0, 0])[:10]]
    np.testing.assert_allclose(plan.mean, 0.9 * few.mean(axis=0), atol=1e-5)  # of the old plan's mean, 0, a tenth stays


def test_when_no_score_is_finite_the_plan_stays():
    plan = search(lambda _, candidates: jnp.full(candidates.shape[0], jnp.nan))
    fresh = cem.start(4, LOW, HIGH)
    np.testing.assert_array_equal(plan.mean, fresh.mean)
    np.testing.assert_array_equal(plan.variance, fresh.variance)


def test_the_best_are_those_a_sort_finds_and_of_equals_the_first():
    for seed in range(20):
        scores = jnp.round(4.0 * jax.random.normal(jax.random.key(seed), (50,))) / 4.0  # many are equal
        _, order = jax.lax.top_k(scores, 12)
        np.testing.assert_array_equal(jnp.flatnonzero(cem.best(scores, 12)), jnp.sort(order))
    assert cem.best(jnp.full(5, -jnp.inf), 2).tolist() == [True, True, False, False, False]


def test_an_iteration_moves_nine_tenths_of_the_way_to_the_mean_and_variance_of_its_elites():
    """In one pass over the candidates, so to 1 % where they are far from the plan's mean."""
    plan, [candidates] = searched(lambda _, candidates: -((candidates - 0.4) ** 2).sum(axis=(1, 2)), ONCE)
    candidates, fresh = np.asarray(candidates, np.float64), cem.start(4, LOW, HIGH)
    elites = candidates[np.argsort(((candidates - 0.4) ** 2).sum(axis=(1, 2)))[:30]]
    np.testing.assert_allclose(plan.mean, 0.1 * fresh.mean + 0.9 * elites.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(plan.variance, 0.1 * fresh.variance + 0.9 * elites.var(axis=0), rtol=0.01)


def test_shifting_drops_the_first_action_and_appends_the_middle():
    plan = cem.Plan(jnp.arange(8.0).reshape(4, 2), jnp.zeros((4, 2)))
    moved = cem.shifted(plan, cem.start(4, LOW, HIGH))
    np.testing.assert_array_equal(moved.mean, [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [0.0, 0.0]])
    np.testing.assert_array_equal(moved.variance, cem.start(4, LOW, HIGH).variance)


def test_a_linear_quadratic_problem_is_solved_within_two_percent():
    """x' = x + a, cost x'^2 + 0.1 a^2, ten steps from x = 1: the optimum is the finite-horizon Riccati solution."""
    horizon, weight = 10, 0.1
    value = 0.0
    for _ in range(horizon):  # cost-to-go value * x^2 after the step, going back
        value = (1.0 + value) * weight / (weight + 1.0 + value)
    settings = PlannerSettings(horizon=horizon, candidates=500, elites=50, cem_iterations=20)

    def step(_: jax.Array, obs: jax.Array, action: jax.Array) -> ImaginedStep:
        following = obs + action[None]
        return ImaginedStep(-(following[..., 0] ** 2) - weight * (following - obs)[..., 0] ** 2, following)

    def score(key: jax.Array, candidates: jax.Array) -> jax.Array:
        return imagined_returns(key, step, jnp.array([1.0]), candidates, 1, None)[0].mean(axis=0)

    plan = search(score, jnp.array([-2.0]), jnp.array([2.0]), settings)
    cost = -float(score(jax.random.key(0), plan.mean[None])[0])
    assert value <= cost + 1e-5
    assert cost < 1.02 * value


def test_more_elites_than_candidates_are_refused():
    with pytest.raises(ValidationError, match="31 elites cannot be chosen from 30 candidates"):
        PlannerSettings(candidates=30, elites=31)


def test_a_proposal_that_is_better_than_all_that_is_drawn_wins():
    """Only sequences near 0.9 score; none is drawn there, and the proposal is the one elite."""
    settings = PlannerSettings(horizon=2, candidates=20, elites=1, cem_iterations=3)
    low, high = jnp.array([-1.0]), jnp.array([1.0])
    begin = cem.start(2, low, high)._replace(variance=jnp.full((2, 1), 1e-4))
    proposal = jnp.full((1, 2, 1), 0.9)

    def score(key: jax.Array, candidates: jax.Array) -> jax.Array:
        return -jnp.abs(candidates - 0.9).sum(axis=(1, 2))

    found = cem.cem(jax.random.key(0), score, begin, low, high, settings, proposal)
    np.testing.assert_allclose(found.mean, 0.9, atol=0.01)
