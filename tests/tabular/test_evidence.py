"""Pooling by evidence: tail counts, the fit, and how wide the result is."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln

from posterity.tabular import tails
from posterity.tabular.evidence import Evidence, doubt, fit_dirichlet, widened
from posterity.tabular.hyperprior import Hyperprior
from posterity.types import FloatArray

BEFORE = Hyperprior(1.5, 1.0, 2.0)  # weak, and no two numbers alike


def problem(counts: FloatArray, before: Hyperprior = BEFORE) -> Evidence:
    """The evidence of one row, with the counts [C, M] of C tasks."""
    bins = tails.edges(int(counts.sum(axis=1).max()))
    kept = [tails.tails_of(each, bins).sum(axis=0)[None] for each in (counts, counts.sum(axis=1))]
    return Evidence.of(kept[0], kept[1], tails.middles(bins), before)


def drawn(truth: FloatArray, tasks: int, steps: int, seed: int = 1) -> FloatArray:
    """[C, M] the counts of tasks whose rows come from Dirichlet(truth)."""
    generator = np.random.default_rng(seed)
    return np.stack([generator.multinomial(steps, generator.dirichlet(truth)) for _ in range(tasks)]).astype(float)


def polya(counts: FloatArray, alpha: FloatArray) -> float:
    """Log probability of the counts [C, M] of C tasks whose rows were drawn from Dirichlet(alpha)."""
    whole, total = alpha.sum(), counts.sum(axis=1)
    ends = gammaln(whole) - gammaln(whole + total) + (gammaln(counts + alpha) - gammaln(alpha)).sum(axis=1)
    return float(ends.sum())


def brute(counts: FloatArray, alpha: FloatArray, before: Hyperprior = BEFORE) -> float:
    """What the docstring of evidence.py says, from the counts of the tasks themselves."""
    whole, total = alpha.sum(), counts.sum(axis=1)
    worth = (total * (1.0 + whole) / (total + whole)).sum()
    seen = (counts.sum(axis=0) > 0).sum()
    return (
        polya(counts, alpha)
        + before.evenness * np.log(alpha / whole).sum() / len(alpha)
        - (np.log(whole) - before.log_mean) ** 2 / (2.0 * before.log_sd**2)
        - (seen - 1) / 2.0 * np.log(worth + before.evenness)
    )


def test_tails_say_how_many_tasks_had_a_count_above_a_level():
    bins = tails.edges(6)
    np.testing.assert_array_equal(tails.tails_of(np.array([0, 2, 6]), bins).sum(axis=0), [2, 2, 1, 1, 1, 1])


def test_bins_for_more_begin_with_those_for_fewer_and_tails_keep_the_sum_of_counts():
    few, many = tails.edges(100), tails.edges(5000)
    np.testing.assert_array_equal(many[: len(few)], few)
    counts = np.array([0, 1, 23, 24, 57, 4999])
    np.testing.assert_array_equal(tails.tails_of(counts, many).sum(axis=1), counts)


@pytest.mark.parametrize("alpha", [[0.3, 2.0, 5.0], [20.0, 3.0, 90.0]])
def test_the_evidence_of_tails_is_that_of_the_counts(alpha: list[float]):
    """Exactly below 24; with counts in the hundreds a difference of two values is off by less than 1 part in 200."""
    at, other = np.array(alpha), np.array([1.0, 1.0, 1.0])
    for steps, tolerance in ((20, 1e-9), (900, 1 / 200)):
        counts = drawn(np.array([1.5, 4.0, 0.5]), 50, steps)
        found = problem(counts)
        mine = found.value(at[None])[0] - found.value(other[None])[0]
        assert mine == pytest.approx(brute(counts, at) - brute(counts, other), rel=tolerance)


def test_slopes_are_those_of_the_value():
    found, alpha, small = problem(drawn(np.array([1.5, 4.0, 0.5]), 30, 60)), np.array([[0.7, 2.5, 0.4]]), 1e-5
    rise, fall, diagonal, common = found.slopes(alpha)
    for k in range(3):
        ahead, behind = alpha.copy(), alpha.copy()
        ahead[0, k] += small
        behind[0, k] -= small
        slope = (found.value(ahead) - found.value(behind))[0] / (2 * small)
        assert slope == pytest.approx(rise[0, k] - fall[0], rel=1e-4, abs=1e-4)
        up, down = found.slopes(ahead), found.slopes(behind)
        curve = ((up[0] - up[1][:, None]) - (down[0] - down[1][:, None]))[0] / (2 * small)
        np.testing.assert_allclose(curve, common[0] + diagonal[0] * (np.arange(3) == k), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("tasks", "steps"), [(1, 30), (4, 10), (60, 40), (5000, 30)])
def test_the_fit_is_the_maximum_that_a_general_optimiser_finds(tasks: int, steps: int):
    """To a thousandth of a nat, also with thousands of tasks, where an earlier one stopped 23 nats short."""
    found = problem(drawn(np.array([1.5, 4.0, 0.5]), tasks, steps))
    mine = found.value(fit_dirichlet(found, np.ones((1, 3))))[0]
    best = max(
        -minimize(
            lambda logs: -found.value(np.exp(np.clip(logs, -12, 12))[None])[0],
            start,
            method="Nelder-Mead",
            options={"maxiter": 4000, "fatol": 1e-9, "xatol": 1e-6},
        ).fun
        for start in (np.zeros(3), np.full(3, 2.0))
    )
    assert mine >= best - 1e-3


def test_with_many_tasks_the_fit_finds_the_world_they_come_from():
    """400 tasks of 40 observations."""
    truth = np.array([1.5, 4.0, 0.5])
    found = problem(drawn(truth, 400, 40))
    np.testing.assert_allclose(fit_dirichlet(found, np.ones((1, 3)))[0], truth, rtol=0.15)


def test_few_tasks_do_not_look_more_alike_than_they_are():
    """Three tasks of a world with concentration 6: in the middle of many worlds the fit is within a factor of two."""
    fits = [
        fit_dirichlet(problem(drawn(np.array([1.5, 4.0, 0.5]), 3, 60, seed)), np.ones((1, 3))).sum()
        for seed in range(40)
    ]
    assert 3.0 < np.median(fits) < 12.0


def test_with_counts_of_nothing_the_fit_is_the_prior_before_any_task():
    """Whatever its concentration: nothing in the fit has a scale of its own."""
    for centre in (0.03, 3.0, 300.0):
        found = problem(np.array([[1.0, 0.0, 0.0]]), Hyperprior.first(centre))
        nothing = found._replace(tails=0 * found.tails, total=0 * found.total, seen=0 * found.seen)
        fitted = fit_dirichlet(nothing, np.array([[centre / 2, centre / 6, centre / 9]]), tolerance=1e-10)
        np.testing.assert_allclose(fitted, centre / 3, rtol=1e-2)
        np.testing.assert_allclose(widened(nothing, fitted, centre), fitted, rtol=1e-2)
        assert doubt(nothing, fitted)[0] == pytest.approx(1.0)  # as unsure of ln c as before


def test_doubt_is_the_variance_of_the_logarithm_of_the_concentration():
    """By brute force: the density along c at the mean that was found, on a grid. 40 tasks leave a deviation of 0.2."""
    found = problem(drawn(np.array([1.5, 4.0, 0.5]), 40, 60))
    fitted = fit_dirichlet(found, np.ones((1, 3)))
    logs = np.linspace(-2.0, 2.0, 801)
    weight = np.exp([found.value(fitted * np.exp(at))[0] - found.value(fitted)[0] for at in logs])
    mean = (weight * logs).sum() / weight.sum()
    variance = (weight * (logs - mean) ** 2).sum() / weight.sum()
    assert doubt(found, fitted)[0] == pytest.approx(variance, rel=0.1)


def test_the_error_of_the_mean_widens_the_prior_of_few_tasks_and_not_of_many():
    truth = np.array([30.0, 80.0, 10.0])
    ratio = []
    for tasks in (2, 1000):
        found = problem(drawn(truth, tasks, 50))
        fitted = fit_dirichlet(found, np.ones((1, 3)))
        ratio.append(widened(found, fitted, 3.0).sum() / fitted.sum())
    assert ratio[0] < 0.7
    assert ratio[1] > 0.98
