import jax
import jax.numpy as jnp
import numpy as np

from posterity.planning import cem
from posterity.planning.cem import PlannerSettings
from posterity.planning.rollout import Imagined, imagined_returns

LOW, HIGH = jnp.array([-1.0, -2.0]), jnp.array([1.0, 2.0])
SETTINGS = PlannerSettings(horizon=4, candidates=300, elites=30, rounds=8)


def search(score, low=LOW, high=HIGH, settings=SETTINGS, seed=0):
    begin = cem.start(settings.horizon, low, high)
    return jax.jit(lambda key: cem.cem(key, score, begin, low, high, settings))(jax.random.key(seed))


def test_the_optimum_of_a_quadratic_is_found():
    target = jnp.array([[0.5, -1.0], [-0.4, 1.2], [0.0, 0.3], [0.6, -0.7]])
    plan, _ = search(lambda _, candidates: -((candidates - target) ** 2).sum(axis=(1, 2)))
    np.testing.assert_allclose(plan.mean, target, atol=0.05)


def test_an_optimum_beyond_the_bounds_is_met_at_the_bounds_and_no_candidate_leaves_them():
    seen = []

    def score(_, candidates):
        seen.append((candidates.min(axis=(0, 1)), candidates.max(axis=(0, 1))))
        return candidates.sum(axis=(1, 2))

    with jax.disable_jit():
        plan, _ = cem.cem(jax.random.key(0), score, cem.start(4, LOW, HIGH), LOW, HIGH, SETTINGS)
    assert all((low >= LOW).all() and (high <= HIGH).all() for low, high in seen)
    assert (plan.mean > 0.4 * HIGH).all()  # the spread narrows towards a bound, so it is neared by shares
    assert (plan.mean / HIGH).mean() > 0.75  # over 40 seeds: mean 0.86, least 0.46


def test_a_candidate_without_a_finite_score_never_wins():
    """Where the first action is positive the score is NaN, +inf or -inf; the rest would have it as large as can be."""
    for bad in (jnp.nan, jnp.inf, -jnp.inf):

        def score(_, candidates, bad=bad):
            first = candidates[:, 0, 0]
            return jnp.where(first > 0.0, bad, first - 100.0)

        plan, info = search(score)
        assert plan.mean[0, 0] <= 0.0
        assert jnp.isfinite(info.elite)
        assert info.finite < 1.0 or plan.mean[0, 0] < -0.02


def test_when_no_score_is_finite_the_plan_stays():
    plan, info = search(lambda _, candidates: jnp.full(candidates.shape[0], jnp.nan))
    fresh = cem.start(4, LOW, HIGH)
    np.testing.assert_array_equal(plan.mean, fresh.mean)
    np.testing.assert_array_equal(plan.variance, fresh.variance)
    assert info.finite == 0.0


def test_the_best_are_those_a_sort_finds_and_of_equals_the_first():
    for seed in range(20):
        scores = jnp.round(4.0 * jax.random.normal(jax.random.key(seed), (50,))) / 4.0  # many are equal
        _, order = jax.lax.top_k(scores, 12)
        np.testing.assert_array_equal(jnp.flatnonzero(cem._best(scores, 12)), jnp.sort(order))
    assert cem._best(jnp.full(5, -jnp.inf), 2).tolist() == [True, True, False, False, False]


def test_a_round_moves_to_the_mean_and_variance_of_its_elites():
    """One round, nothing kept of the old plan; in one pass, so to 1 % where they are far from the plan's mean."""
    settings = PlannerSettings(horizon=4, candidates=300, elites=30, rounds=1, smoothing=0.0)
    seen = []

    def score(_, candidates):
        seen.append(candidates)
        return -((candidates - 0.4) ** 2).sum(axis=(1, 2))

    with jax.disable_jit():
        plan, _ = cem.cem(jax.random.key(0), score, cem.start(4, LOW, HIGH), LOW, HIGH, settings)
    candidates = np.asarray(seen[0], np.float64)
    elites = candidates[np.argsort(((candidates - 0.4) ** 2).sum(axis=(1, 2)))[:30]]
    np.testing.assert_allclose(plan.mean, elites.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(plan.variance, elites.var(axis=0), rtol=0.01)
    for narrow in range(20):  # all elites in nearly one place
        alike = search(lambda _, c: jnp.round(c[:, 0, 0], 2), settings=SETTINGS, seed=narrow)[0]
        assert (alike.variance >= 0.0).all()


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
    settings = PlannerSettings(horizon=horizon, candidates=500, elites=50, rounds=20)

    def step(_, obs, action):
        following = obs + action
        return Imagined(-(following[..., 0] ** 2) - weight * (following - obs)[..., 0] ** 2, following)

    def score(key, candidates):
        return imagined_returns(key, step, jnp.array([1.0]), candidates, 1, None)[0].mean(axis=0)

    plan, _ = search(score, jnp.array([-2.0]), jnp.array([2.0]), settings)
    cost = -float(score(jax.random.key(0), plan.mean[None])[0])
    assert value <= cost + 1e-5
    assert cost < 1.02 * value
