"""Differences between runs, and between what a run scores when and when it goes back.

    paired   the mean over seeds of (ours - theirs), seed by seed, of the seeds that both have
    Welch    the difference of two means of different seeds, whose variances may differ

Both are over the same tasks: those that all seeds which count have finished. A paired interval is Student's over seeds,
since tasks of one seed are not independent of each other; with a single seed it is over tasks, and says so.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from posterity.errors import UserError
from posterity.experiment.records import Run
from posterity.report.metrics import Interval, called, interval, welch
from posterity.report.robust import Bootstrapped, probability_of_improvement
from posterity.report.scores import head, known
from posterity.report.sheet import Sheet
from posterity.report.tables import View, iteration_scores, keys_of, numbers
from posterity.types import BoolArray, FloatArray, IntArray

BETTER = "P(better): probability of improvement, with its 95 % stratified bootstrap"
Sample = dict[int, FloatArray]  # seed -> [K] a score in each task; NaN where there is none


class Difference(NamedTuple):
    """A score of one run minus a score of another, or of the same."""

    run: Run
    score: str
    against: Run
    against_score: str
    how: Literal["paired", "Welch"]
    seeds: tuple[int, int]  # how many of each side count
    tasks: IntArray  # counted from 1
    value: Interval
    better: Bootstrapped = Bootstrapped(np.nan, np.nan, np.nan)  # probability of improvement, between two runs


def samples(run: Run, view: View) -> dict[str, Sample]:
    """Every score of a run, for each seed that has any; while learning, of finished tasks only."""
    returns = view.of(run).returns
    finished = np.where(np.isfinite(returns).all(axis=2, keepdims=True), returns, np.nan)
    values = iteration_scores(finished, view.early) | {name: part.returns for name, part in known(run, view).items()}
    return {
        name: {seed: row for seed, row in zip(run.seeds, array, strict=True) if np.isfinite(row).any()}
        for name, array in values.items()
    }


class _Side(NamedTuple):
    """A score of a run, to be compared."""

    run: Run
    score: str
    sample: Sample


def between(ours: Run, theirs: Run, view: View) -> list[Difference]:
    """Every score that both have: paired over the seeds that both have and, where seeds differ, by Welch over all."""
    mine, other = samples(ours, view), samples(theirs, view)
    found: list[Difference | None] = []
    for name in (name for name in mine if name in other):
        left, right = _Side(ours, name, mine[name]), _Side(theirs, name, other[name])
        better = _improvement(left, right)
        pairs = [_paired(left, right, view)]
        if left.sample.keys() != right.sample.keys():
            pairs.append(_welch(left, right, view))
        found += [None if each is None else each._replace(better=better) for each in pairs]
    return [each for each in found if each is not None]


def _improvement(ours: _Side, theirs: _Side) -> Bootstrapped:
    """That a seed of ours beats a seed of theirs, over the tasks that all seeds have."""
    tasks = _common([row for side in (ours, theirs) for row in side.sample.values()])
    if not tasks.any() or not ours.sample or not theirs.sample:
        return Bootstrapped(np.nan, np.nan, np.nan)
    first, second = (_rows(side.sample, sorted(side.sample), tasks) for side in (ours, theirs))
    return probability_of_improvement(first, second)


def within(run: Run, view: View) -> list[Difference]:
    """Back minus Train, what is forgotten or gained by later tasks; and other ways of playing Back minus Back."""
    mine = samples(run, view)
    back = [name for name in mine if name.startswith("back")]
    pairs = [(name, "train") for name in back] + [(name, "back") for name in back if name != "back"]
    found = [
        _paired(_Side(run, name, mine[name]), _Side(run, other, mine[other]), view)
        for name, other in pairs
        if other in mine
    ]
    return [each for each in found if each is not None]


def _paired(ours: _Side, theirs: _Side, view: View) -> Difference | None:
    seeds = sorted(ours.sample.keys() & theirs.sample.keys())
    tasks = _common([side.sample[seed] for side in (ours, theirs) for seed in seeds])
    if not tasks.any():
        return None
    value = interval(_rows(ours.sample, seeds, tasks) - _rows(theirs.sample, seeds, tasks))
    place = view.first_task + np.flatnonzero(tasks)
    return Difference(*ours[:2], *theirs[:2], "paired", (len(seeds), len(seeds)), place, value)


def _welch(ours: _Side, theirs: _Side, view: View) -> Difference | None:
    samples = ours.sample, theirs.sample
    tasks = _common([row for sample in samples for row in sample.values()])
    if not tasks.any() or not all(samples):
        return None
    first, second = (_rows(sample, sorted(sample), tasks).mean(axis=1) for sample in samples)
    place = view.first_task + np.flatnonzero(tasks)
    counts = len(first), len(second)
    return Difference(*ours[:2], *theirs[:2], "Welch", counts, place, welch(first, second))


def _common(rows: Sequence[FloatArray]) -> BoolArray:
    """[K] the tasks that all the rows have."""
    count = min((len(row) for row in rows), default=0)
    known = np.stack([np.isfinite(row[:count]) for row in rows]) if rows else np.zeros((1, 0), dtype=np.bool_)
    return np.asarray(known.all(axis=0))


def _rows(sample: Sample, seeds: Sequence[int], tasks: BoolArray) -> FloatArray:
    """[seeds, tasks]."""
    return np.stack([sample[seed][: len(tasks)][tasks] for seed in seeds])


def compare(ours: Sequence[Run], theirs: Sequence[Run], view: View) -> list[Difference]:
    """Every one of ours against every one of theirs that is of its family."""
    pairs = [(run, other) for run in ours for other in theirs if run is not other and run.family == other.family]
    found = [difference for run, other in pairs for difference in between(run, other, view)]
    if theirs and not found:
        raise UserError("There is nothing to compare: no family, or no finished task of one, is on both sides")
    return found


def sheets(found: Sequence[Difference]) -> list[Sheet]:
    """A table for every pair of runs, and one for what lies within runs."""
    runs = {id(run): run for each in found for run in (each.run, each.against)}
    names = dict(zip(runs, called(list(runs.values())), strict=True))
    pairs = {(id(each.run), id(each.against)): each for each in found if each.run is not each.against}
    made = []
    for (left, right), one in pairs.items():
        mine = [each for each in found if (id(each.run), id(each.against)) == (left, right)]
        rows = [
            (_label(each.score), _how(each), _tasks(each), str(each.value), probability(each.better)) for each in mine
        ]
        title = f"{names[left]} minus {names[right]}"
        notes = (_over(mine), *_caveats(one.run, one.against), BETTER)
        keys = [keys_of(one.run)] * len(rows)
        titles = ("score", "how", "tasks", "difference", "P(better)")
        made.append(Sheet(title, titles, rows, notes, 3, keys))
    inside = [each for each in found if each.run is each.against]
    if inside:
        what = [f"{head(each.score)} - {head(each.against_score)}" for each in inside]
        rows = [
            (names[id(each.run)], scores, _how(each), _tasks(each), str(each.value))
            for scores, each in zip(what, inside, strict=True)
        ]
        columns = ("run", "scores", "how", "tasks", "difference")
        keys = [keys_of(each.run) for each in inside]
        made.append(Sheet("Going back, within each run", columns, rows, (_over(inside),), 4, keys))
    return made


def probability(value: Bootstrapped) -> str:
    """A probability and the ends of its bootstrap, for people."""
    ends = f" [{value.low:.2f}, {value.high:.2f}]" if np.isfinite(value.low) else ""
    return f"{value.value:.2f}{ends}" if np.isfinite(value.value) else "-"


def _over(found: Sequence[Difference]) -> str:
    return f"± 95 % interval over {' or '.join(sorted({each.value.over for each in found}))}"


def _label(score: str) -> str:
    """An iteration score or an evaluated one, for people."""
    return score.replace("_", " ") if score.startswith(("first", "last", "all")) else head(score)


def _how(each: Difference) -> str:
    ours, theirs = each.seeds
    if each.how == "Welch":
        return f"Welch, {ours} and {theirs} seeds"
    return f"paired, {ours} seeds" if ours > 1 else "paired, one seed, over its tasks"


def _tasks(each: Difference) -> str:
    first, last = int(each.tasks[0]), int(each.tasks[-1])
    whole = last - first + 1 == len(each.tasks)
    return str(first) if first == last else f"{first}-{last}" if whole else f"{len(each.tasks)} of {first}-{last}"


def _caveats(ours: Run, theirs: Run) -> list[str]:
    """Settings in which a comparison is not like for like."""
    names = {"steps_per_iteration": "steps an iteration", "iterations": "iterations a task"}
    return [
        f"They have {ours.config[name]} and {theirs.config[name]} {words}"
        for name, words in names.items()
        if ours.config[name] != theirs.config[name]
    ]


def write_csv(found: Sequence[Difference], path: Path) -> None:
    """One line per difference."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ("family", "method", "score", "against", "against_score", "how", "seeds", "against_seeds")
        more = ("first_task", "last_task", "tasks", "mean", "low", "high", "over", "run", "against_run")
        chance = ("probability_of_improvement", "probability_low", "probability_high")
        writer.writerow((*names, *more, *chance))
        for each in found:
            what = (each.run.family, each.run.method, each.score, each.against.method, each.against_score, each.how)
            tasks = (each.tasks[0], each.tasks[-1], len(each.tasks))
            better = (f"{x:.4g}" if np.isfinite(x) else "" for x in each.better)
            both = each.run.folders, each.against.folders
            writer.writerow((*what, *each.seeds, *tasks, *numbers(each.value), *both, *better))
