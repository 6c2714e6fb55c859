"""Numbers from runs.

An interval is a 95 % Student-t interval of the mean over seeds, each seed being one mean over the tasks looked at. With
a single seed it is over tasks instead, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from posterity.experiment.records import Run
from posterity.types import Facts, FloatArray


class Solved(NamedTuple):
    """How many tasks a run solved, for each seed."""

    over: FloatArray  # [L, iterations] solved in their i-th iteration; an iteration of several episodes counts in part
    most: FloatArray  # [L] the greatest of these: the paper's "maximum number of successfully completed tasks"
    last: FloatArray  # [L] the mean over the last iterations
    ever: FloatArray  # [L] solved at least once


class Interval(NamedTuple):
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float
    over: str  # "seeds" or "tasks"

    def __str__(self) -> str:
        """A Student-t interval is as wide above the mean as below it. One seed whose tasks are all alike has none."""
        if not np.isfinite(self.mean):
            return "-"
        digits, width = 0 if abs(self.mean) >= 100 else 3 if abs(self.mean) < 10 else 1, self.high - self.mean
        if not np.isfinite(width):
            return f"{self.mean:.{digits}f} (one value)"
        if width == 0 and self.over == "tasks":
            return f"{self.mean:.{digits}f}"
        while width > 0 and float(f"{width:.{digits}f}") == 0 and digits < 6:  # an interval that shows as 0 is not 0
            digits += 1
        return f"{self.mean:.{digits}f} ± {width:.{digits}f}"


def called(runs: Sequence[Run]) -> list[str]:
    """What runs are called: by the folder too, where family and method do not tell them apart."""
    return told_apart(runs, [f"{run.family} {run.method}" for run in runs])


def told_apart(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """Names of runs, each with its folder where several have it; not where the folder is called as the method is."""
    found: list[str] = []
    for run, name, folder in zip(runs, names, folders(runs), strict=True):
        plain = names.count(name) == 1 or folder in (run.method, f"{run.family}/{run.method}")
        found.append(name if plain else f"{name} ({folder})")
    return found


def flattened(config: Facts, before: str = "") -> dict[str, str]:
    """Settings by their whole names, as text."""
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{before}{name}.")
        else:
            found[before + name] = str(value)
    return found


def folders(runs: Sequence[Run]) -> list[str]:
    """The names of the folders, with as many folders above as it takes to tell them apart; of pooled runs the first."""
    deepest = max((len(run.path.parts) for run in runs), default=1)
    different = len({run.paths for run in runs})
    names: list[str] = []
    for depth in range(1, deepest + 1):
        more = [f" and {len(run.paths) - 1} more" if len(run.paths) > 1 else "" for run in runs]
        names = ["/".join(run.path.parts[-depth:]) + rest for run, rest in zip(runs, more, strict=True)]
        if len({*names}) == different:
            break
    return names


def tasks_of(count: Interval) -> str:
    """A number of tasks for a table: with its interval, if there are several seeds."""
    return f"{count.mean:.3g} ± {count.high - count.mean:.2g}" if np.isfinite(count.high) else f"{count.mean:.3g}"


def interval(values: FloatArray) -> Interval:
    """Of the mean of `values` [L, K]: over seeds if there are several, else over tasks. NaN is left out."""
    over = "seeds" if values.shape[0] > 1 else "tasks"
    sample = mean_known(values, axis=1) if over == "seeds" else values[0]
    sample = sample[np.isfinite(sample)]
    if sample.size == 0:
        return Interval(np.nan, np.nan, np.nan, over)
    low, high = band(sample[:, None])
    return Interval(float(sample.mean()), float(low[0]), float(high[0]), over)


def welch(ours: FloatArray, theirs: FloatArray) -> Interval:
    """Of the difference of the means of two independent samples [n], [m], whose variances may differ."""
    difference = float(ours.mean() - theirs.mean())
    if min(len(ours), len(theirs)) < 2:
        return Interval(difference, np.nan, np.nan, "seeds")
    first, second = ours.var(ddof=1) / len(ours), theirs.var(ddof=1) / len(theirs)
    error = first + second
    if error == 0:
        return Interval(difference, difference, difference, "seeds")
    freedom = error**2 / (first**2 / (len(ours) - 1) + second**2 / (len(theirs) - 1))
    width = float(stats.t.ppf(0.975, freedom) * np.sqrt(error))
    return Interval(difference, difference - width, difference + width, "seeds")


def band(sample: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends of the 95 % Student-t intervals of the means of the columns of `sample` [n, ...]; NaN for a single value."""
    count = np.isfinite(sample).sum(axis=0)
    mean = mean_known(sample, axis=0)
    squares = np.nansum((sample - mean) ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        width = stats.t.ppf(0.975, np.maximum(count - 1, 1)) * np.sqrt(squares / (count - 1) / count)
    return np.where(count > 1, mean - width, np.nan), np.where(count > 1, mean + width, np.nan)


def rolling(values: FloatArray, window: int) -> FloatArray:
    """Mean over the last `window` columns of [L, K], fewer at the beginning."""
    return np.stack(
        [mean_known(values[:, max(0, k + 1 - window) : k + 1], axis=1) for k in range(values.shape[1])], axis=1
    )


def suboptimal_steps(run: Run, epsilon: float) -> FloatArray:
    """[L, K] steps of each task after which the policy was not epsilon-optimal: what Proposition 4.4 bounds."""
    late = np.where(np.isfinite(run.value_gap), (run.value_gap > epsilon).astype(float), np.nan)
    return late.sum(axis=2) * run.config["steps_per_iteration"]


def solved(run: Run, late: int = 3) -> Solved | None:
    """The solved tasks of a run, if its family tells. `late` iterations of a task are its end; NaN is left out."""
    if not np.isfinite(run.success).any():
        return None
    over = np.nansum(run.success, axis=1)
    over[~np.isfinite(run.success).any(axis=1)] = np.nan
    ever = (np.nan_to_num(run.success) > 0).any(axis=2).sum(axis=1).astype(float)
    return Solved(over, np.fmax.reduce(over, axis=1), mean_known(over[:, -late:], axis=1), ever)


def mean_known(values: FloatArray, axis: int) -> FloatArray:
    """Mean without NaN, and NaN, without a warning, where there is nothing else."""
    count = np.isfinite(values).sum(axis=axis)
    return np.where(count > 0, np.nansum(values, axis=axis) / np.maximum(count, 1), np.nan)
