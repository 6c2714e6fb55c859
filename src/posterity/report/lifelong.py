"""What was transferred and what was forgotten. The name of a metric says whose formula it is (docs/metrics.md).

R[l, i, j] is the return of seed l in task j after task i was learned. Its diagonal is Train, what stands one above the
diagonal is zero-shot, and below the diagonal is Back.

    backward transfer, GEM             mean over j < T of R[T, j] - R[j, j]              (Lopez-Paz and Ranzato 2017)
    forward transfer, GEM              mean over j > 1 of R[j - 1, j] - b[j]             b: before anything was learned
    forgetting, Continual World        mean over all j of R[j, j] - R[T, j]              (Wolczyk et al. 2021)
    forward transfer, Continual World  mean over j of (A[j] - B[j]) / (1 - B[j])
        A, B: area under the curve of task j, as a share of the best possible, of this run and of single-task

A run that has gone back only after its last task has only the last row of R, its diagonal and what is above it. These
are all that the formulas need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity.experiment.records import Run
from posterity.report.metrics import mean_known
from posterity.types import FloatArray

WINDOW = 5  # iterations of a running mean, before a return is said to have reached a level


def transfer_matrix(run: Run) -> FloatArray:
    """[L, K, K] R[l, i, j]: rows are tasks learned so far, columns are tasks played; NaN where it was not played."""
    seeds, tasks = run.returns.shape[:2]
    matrix = np.full((seeds, tasks, tasks), np.nan)
    if run.back in run.scores:
        went = run.scores[run.back].after
        matrix[:, : went.shape[1], : went.shape[2]] = went
    each = np.arange(tasks)
    if "train" in run.scores:
        matrix[:, each, each] = run.scores["train"].returns
    if "zero-shot" in run.scores:
        matrix[:, each[:-1], each[1:]] = run.scores["zero-shot"].returns[:, 1:]
    return matrix


def _last(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """[L, K] the last row of each seed that Back was played in, and [L] its place; -1 where there is none."""
    each = np.arange(matrix.shape[1])
    below = each[:, None] > each
    played = np.asarray(np.any(np.isfinite(matrix) & below, axis=2))  # [L, K]
    place = np.where(played.any(axis=1), played.shape[1] - 1 - np.argmax(played[:, ::-1], axis=1), -1)
    return matrix[np.arange(len(matrix)), place], place


def backward_transfer_gem(matrix: FloatArray) -> FloatArray:
    """[L, K] R[T, j] - R[j, j]; NaN in the last task, which GEM's mean leaves out, and after it."""
    row, place = _last(matrix)
    diagonal = np.diagonal(matrix, axis1=1, axis2=2)
    earlier = np.arange(matrix.shape[1]) < place[:, None]
    return np.where(earlier, row - diagonal, np.nan)


def forgetting_continual_world(matrix: FloatArray) -> FloatArray:
    """[L, K] R[j, j] - R[T, j]; 0 in the last task, which Continual World's mean has in it."""
    lost = -backward_transfer_gem(matrix)
    _, place = _last(matrix)
    last = np.arange(matrix.shape[1]) == place[:, None]
    return np.where(last & np.isfinite(np.diagonal(matrix, axis1=1, axis2=2)), 0.0, lost)


def forward_transfer_gem(matrix: FloatArray, before: FloatArray) -> FloatArray:
    """[L, K] R[j - 1, j] - b[j]; NaN in the first task. `before` [L, K] or [L, 1]: with nothing learned."""
    gained = np.full(matrix.shape[:2], np.nan)
    gained[:, 1:] = np.diagonal(matrix, offset=1, axis1=1, axis2=2)
    return gained - before


def untrained(run: Run) -> FloatArray:
    """[L, 1] zero-shot in the first task: the one score of a run before anything was learned. GEM has it by task."""
    known = run.scores["zero-shot"].returns[:, :1] if "zero-shot" in run.scores else None
    return np.full((len(run.seeds), 1), np.nan) if known is None else known


class Reference(NamedTuple):
    """Single-task, seed by seed as a run has them: [L, K, iterations], NaN for seeds and tasks that it lacks."""

    returns: FloatArray
    success: FloatArray
    level: FloatArray  # [L, K] the return that it ends with


def reference(run: Run, single: Run, late: int = 3) -> Reference:
    """What single-task does in the tasks of `run`.

    Where all seeds meet the same tasks it is the mean over all its seeds; else it is that of the same seed.
    """
    tasks, iterations = min(run.returns.shape[1], single.returns.shape[1]), single.returns.shape[2]
    whole = (len(run.seeds), run.returns.shape[1], iterations)
    found = {name: np.full(whole, np.nan) for name in ("returns", "success")}
    for name, array in found.items():
        values = single.returns if name == "returns" else single.success
        if run.same_tasks and single.same_tasks:
            array[:, :tasks] = mean_known(values, axis=0)[:tasks]
            continue
        for lane, seed in enumerate(run.seeds):
            if seed in single.seeds:
                array[lane, :tasks] = values[single.seeds.index(seed), :tasks]
    ended = np.isfinite(found["returns"]).all(axis=2)
    level = np.where(ended, found["returns"][:, :, -late:].mean(axis=2), np.nan)
    return Reference(found["returns"], found["success"], level)


def forward_transfer_continual_world(run: Run, other: Reference) -> FloatArray:
    """[L, K] (A - B) / (1 - B), of success rates; NaN where the family does not tell of success, or B is 1."""
    return _area_gained(run.success, other.success)


def forward_transfer_continual_world_of_scaled_returns(run: Run, other: Reference) -> FloatArray:
    """[L, K] the same of returns, scaled within each task: 0 the worst iteration of either curve, 1 the best.

    Continual World has success rates, which have a least and a best by themselves.
    """
    curves = (mean_known(run.returns, axis=0), mean_known(other.returns, axis=0))  # [K, iterations]
    both = np.concatenate(curves, axis=1)
    known = np.where(np.isfinite(both).any(axis=1, keepdims=True), both, 0.0)
    least, best = np.nanmin(known, axis=1), np.nanmax(known, axis=1)
    span = np.where(best > least, best - least, np.nan)[:, None]
    return _area_gained((run.returns - least[:, None]) / span, (other.returns - least[:, None]) / span)


def area_difference(run: Run, other: Reference) -> FloatArray:
    """[L, K] the mean return over a task's iterations, minus single-task's: no scale is needed."""
    return _area(run.returns) - _area(other.returns)


def _area_gained(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    mine, other = _area(ours), _area(theirs)
    room = 1.0 - other
    return np.where(room > 1e-12, (mine - other) / np.where(room > 1e-12, room, 1.0), np.nan)


def _area(curve: FloatArray) -> FloatArray:
    """[L, K] the mean over the iterations of a task, if all are on record."""
    return np.where(np.isfinite(curve).all(axis=2), np.nan_to_num(curve).mean(axis=2), np.nan)


def iterations_to_level(run: Run, other: Reference, window: int = WINDOW) -> FloatArray:
    """[L, K] iterations until the running mean over `window` of them reaches the level that single-task ends with.

    The window counts, so `window` is the least. Infinite if it is not reached within the task; NaN if it is not known.
    """
    returns = run.returns
    window = min(window, returns.shape[2])
    sums = np.cumsum(np.pad(returns, ((0, 0), (0, 0), (1, 0))), axis=2)
    running = (sums[:, :, window:] - sums[:, :, :-window]) / window
    reached = running >= other.level[:, :, None]
    first = np.where(reached.any(axis=2), np.argmax(reached, axis=2) + float(window), np.inf)
    known = np.isfinite(returns).all(axis=2) & np.isfinite(other.level)
    return np.where(known, first, np.nan)


def first_episode(run: Run) -> FloatArray:
    """[L, K] the return within the first episode of a task, while learning; NaN where an iteration has several.

    The records have the mean over an iteration's episodes. Where at most one ended, it is that of the first.
    """
    alone = np.nan_to_num(run.episodes[:, :, 0], nan=2.0) <= 1
    return np.where(alone, run.returns[:, :, 0], np.nan)
