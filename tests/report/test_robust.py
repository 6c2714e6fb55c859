"""Robust statistics, against SciPy and against the plainest loops."""

import numpy as np
import pytest
from scipy import stats

from posterity.report import robust


def test_the_interquartile_mean_is_scipy_s_trimmed_mean_of_all_scores():
    generator = np.random.default_rng(0)
    for shape in ((1, 4), (3, 5), (4, 7)):
        values = generator.normal(size=shape)
        assert robust.interquartile_mean(values) == pytest.approx(stats.trim_mean(values.ravel(), 0.25))
    values = np.array([[1.0, 2.0, np.nan], [3.0, 100.0, np.nan]])
    assert robust.interquartile_mean(values) == 2.5, "of 1, 2, 3, 100 the middle two; what is lacking does not count"
    assert np.isnan(robust.interquartile_mean(np.full((2, 2), np.nan)))


def test_the_probability_of_improvement_is_mann_and_whitney_s_u_by_task():
    generator = np.random.default_rng(1)
    ours, theirs = generator.integers(0, 6, (4, 5)).astype(float), generator.integers(0, 6, (3, 5)).astype(float)
    by_task = [stats.mannwhitneyu(ours[:, k], theirs[:, k]).statistic / 12 for k in range(5)]
    assert robust.probability_of_improvement(ours, theirs).value == pytest.approx(np.mean(by_task))
    assert robust.probability_of_improvement(ours, ours).value == 0.5
    assert robust.probability_of_improvement(ours + 10, theirs)[:3] == (1.0, 1.0, 1.0)


def test_the_probability_by_hand_counts_ties_by_half():
    """Task 1: 2 beats 1, ties with 2: (1 + 0.5) / 2. Task 2: 5 beats neither 6 nor 7: 0."""
    got = robust.probability_of_improvement(np.array([[2.0, 5.0]]), np.array([[1.0, 6.0], [2.0, 7.0]]))
    assert got.value == 0.375
    assert np.isnan(got.low), "one seed cannot be drawn anew"


def test_the_bootstrap_draws_seeds_within_tasks():
    """Written as loops, with other random numbers: the ends agree to a twentieth of the width."""
    values = np.random.default_rng(2).normal(size=(6, 4)) + np.array([0.0, 10.0, 20.0, 30.0])
    got = robust.bootstrap(values, robust.mean, resamples=4000)
    generator, means = np.random.default_rng(3), []
    for _ in range(4000):
        columns = [values[generator.integers(0, 6, 6), task] for task in range(4)]
        means.append(np.mean(columns))
    low, high = np.percentile(means, [2.5, 97.5])
    assert got.value == pytest.approx(values.mean())
    assert abs(got.low - low) < (high - low) / 20
    assert abs(got.high - high) < (high - low) / 20


def test_tasks_that_differ_widen_no_stratified_interval():
    """Each task is a stratum: only the spread within tasks counts."""
    noise = np.random.default_rng(4).normal(size=(5, 6))
    alike, apart = (robust.bootstrap(noise + scale * np.arange(6)) for scale in (0.0, 1000.0))
    assert apart.high - apart.low == pytest.approx(alike.high - alike.low)


def test_what_is_lacking_is_drawn_from_those_that_have_it_and_one_seed_has_no_bootstrap():
    values = np.array([[1.0, np.nan], [3.0, 7.0], [np.nan, 9.0]])
    drawn = robust._resampled(values, 200)
    assert (np.isfinite(drawn).sum(axis=1) == np.isfinite(values).sum(axis=0)).all()
    assert {*drawn[:, :, 0][np.isfinite(drawn[:, :, 0])]} == {1.0, 3.0}
    assert np.isnan(robust.bootstrap(np.ones((1, 4))).low)
    assert np.isnan(robust.bootstrap(np.full((2, 2), np.nan)).value)


def test_rank_correlation_is_spearman_s():
    first, second = np.random.default_rng(5).normal(size=(2, 20))
    assert robust.rank_correlation(first, second) == pytest.approx(stats.spearmanr(first, second)[0])
    assert robust.rank_correlation(np.ones(4), np.arange(4.0)) == 0.0
