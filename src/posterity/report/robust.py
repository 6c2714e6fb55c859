"""Numbers that few odd seeds or tasks do not sway, and how sure they are (docs/metrics.md).

All are of scores [L, K]: L seeds, K tasks. NaN is what is not on record, and is left out.

    interquartile mean            the mean of the middle half of all L x K scores
    probability of improvement    the mean over tasks of P(x > y) + P(x = y) / 2, x a seed of ours and y one of theirs
    stratified bootstrap          seeds drawn anew within every task; the middle 95 % of what the statistic then is

The first and the last two are those of Agarwal et al. (NeurIPS 2021). The bootstrap takes the tasks of one seed as
independent of each other, which they are not in a lifelong stream. So it stands beside the interval over seeds
(`metrics.interval`), and not in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats

from posterity.report.metrics import Interval, mean_known
from posterity.types import FloatArray

Statistic = Callable[[FloatArray], FloatArray]  # [N, L, K] -> [N]
RESAMPLES = 1000  # of a bootstrap
SEED = 0  # the same records give the same numbers


class Bootstrapped(NamedTuple):
    """A statistic with the 95 % interval of its bootstrap, which need not be as wide above as below."""

    value: float
    low: float
    high: float

    def interval(self) -> Interval:
        """As an interval over strata."""
        return Interval(self.value, self.low, self.high, "strata")


def interquartile_mean(values: FloatArray) -> FloatArray:
    """[...] of `values` [..., L, K]: a quarter of all is cut at either end, rounded down, as SciPy's trim_mean does."""
    flat = np.sort(values.reshape(*values.shape[:-2], -1), axis=-1)  # NaN comes last
    count = np.isfinite(flat).sum(axis=-1, keepdims=True)
    cut = count // 4
    place = np.arange(flat.shape[-1])
    middle = np.where((place >= cut) & (place < count - cut), flat, np.nan)
    return mean_known(middle, axis=-1)


def mean(values: FloatArray) -> FloatArray:
    """[...] of `values` [..., L, K]: every seed counts alike, with its mean over tasks."""
    return mean_known(mean_known(values, axis=-1), axis=-1)


def bootstrap(values: FloatArray, statistic: Statistic = mean, resamples: int = RESAMPLES) -> Bootstrapped:
    """Stratified: tasks are strata, and within each the seeds that have it are drawn anew, with replacement."""
    known = np.isfinite(values)
    if not known.any():
        return Bootstrapped(np.nan, np.nan, np.nan)
    value = float(statistic(values[None])[0])
    if known.sum(axis=0).max() < 2:
        return Bootstrapped(value, np.nan, np.nan)
    low, high = np.percentile(statistic(_resampled(values, resamples)), [2.5, 97.5])
    return Bootstrapped(value, float(low), float(high))


def _resampled(values: FloatArray, resamples: int) -> FloatArray:
    """[N, L, K]. A task that some seeds lack is drawn from the others, and is lacking as often as before."""
    generator = np.random.default_rng(SEED)
    order = np.argsort(~np.isfinite(values), axis=0, kind="stable")  # those that have the task come first
    sorted_values = np.take_along_axis(values, order, axis=0)
    count = np.isfinite(values).sum(axis=0)  # [K]
    drawn = (generator.random((resamples, *values.shape)) * np.maximum(count, 1)).astype(np.intp)
    picked = sorted_values[drawn, np.arange(values.shape[1])]
    return np.where(np.arange(values.shape[0])[:, None] < count, picked, np.nan)


def probability_of_improvement(ours: FloatArray, theirs: FloatArray) -> Bootstrapped:
    """That a seed of ours [L, K] beats a seed of theirs [M, K] in a task drawn at random; both over the same tasks."""
    value = float(_improvement(ours[None], theirs[None])[0])
    if min(np.isfinite(each).sum(axis=0).max(initial=0) for each in (ours, theirs)) < 2:
        return Bootstrapped(value, np.nan, np.nan)
    both = _resampled(np.concatenate([ours]), RESAMPLES), _resampled(theirs[::-1], RESAMPLES)
    low, high = np.percentile(_improvement(*both), [2.5, 97.5])
    return Bootstrapped(value, float(low), float(high))


def _improvement(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    """[N] from [N, L, K] and [N, M, K]."""
    x, y = ours[:, :, None, :], theirs[:, None, :, :]
    known = np.isfinite(x) & np.isfinite(y)
    wins = np.where(known, (x > y) + 0.5 * (x == y), np.nan)
    by_task = mean_known(wins.reshape(wins.shape[0], -1, wins.shape[3]), axis=1)
    return mean_known(by_task, axis=1)


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Spearman's: the correlation of the ranks of two samples [n]; 0 where one of them does not vary."""
    if not np.ptp(first) or not np.ptp(second):
        return 0.0
    return float(np.corrcoef(stats.rankdata(first), stats.rankdata(second))[0, 1])
