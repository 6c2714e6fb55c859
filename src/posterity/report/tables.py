"""Returns while learning, and solved tasks: as tables and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity.errors import UserError
from posterity.experiment.records import ITERATION, LISTS, TASK, Run
from posterity.report.metrics import Interval, called, interval, solved, tasks_of
from posterity.report.sheet import Sheet
from posterity.types import FloatArray

SOLVED = ("most", "last", "ever")  # tasks solved: in the best iteration, in the last ones, in any
PLACE = (
    "family",
    "method",
    "preset",
    "seeds",
    "first_task",
    "last_task",
    "score",
)  # columns that every CSV begins with


class View(NamedTuple):
    """Which part of the runs a report is about; tasks are counted from 1, both ends in."""

    first_task: int = 1
    last_task: int | None = None
    early: int = 3  # iterations that count as the beginning, and as the end, of a task

    def of(self, run: Run) -> Run:
        """The run, with only the tasks of this view."""
        if self.first_task > run.returns.shape[1]:
            raise UserError(f"{run.path} has {run.returns.shape[1]} tasks; there is no task {self.first_task}")
        scores = {
            name: score._replace(
                returns=self.cut(score.returns),
                world_reward=self.cut(score.world_reward),
                world_state=self.cut(score.world_state),
                success=self.cut(score.success),
                after=self.cut(score.after)[:, :, self.first_task - 1 : self.last_task],
            )
            for name, score in run.scores.items()
        }
        arrays = run._asdict()
        return run._replace(scores=scores, **{name: self.cut(arrays[name]) for name in (*ITERATION, *TASK, *LISTS)})

    def cut(self, values: FloatArray) -> FloatArray:
        """Values [L, K, ...], only of the tasks of this view."""
        return values[:, self.first_task - 1 : self.last_task]

    def last(self, runs: Sequence[Run]) -> int:
        """The last task that this view has to show of any of the runs; the one before the first if there is none."""
        met = [np.flatnonzero(np.isfinite(self.of(run).returns).any(axis=(0, 2))) for run in runs]
        return max((self.first_task + int(tasks[-1]) for tasks in met if len(tasks)), default=self.first_task - 1)


EVERYTHING = View()


def spans(view: View, last: Sequence[int]) -> tuple[str, list[tuple[str, ...]]]:
    """Which tasks lines are about that end with these: said once of all, or in a cell of each line if they differ."""
    first = view.first_task
    each = [f"{first}-{task}" if task > first else str(task) if task == first else "-" for task in last]
    if len(set(last)) == 1:
        return f", tasks {each[0]}", [() for _ in each]
    return ", of each its tasks so far", [(tasks,) for tasks in each]


def opening(cells: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The first columns: the run and, where they differ, its tasks."""
    return ("run", "tasks")[: 1 + len(cells[0])]


class Row(NamedTuple):
    """One run's line in the table."""

    run: Run
    last_task: int  # of those the scores are over
    first: Interval  # iteration
    early: Interval
    late: Interval
    overall: Interval
    solved: tuple[Interval, ...]  # SOLVED, where the family tells of success; else empty


def rows(runs: Sequence[Run], view: View) -> list[Row]:
    """The table of `runs`."""
    return [_row(run, view) for run in runs]


def iteration_scores(returns: FloatArray, early: int) -> dict[str, FloatArray]:
    """Returns [L, K, iterations] as the four scores [L, K] of learning."""
    return {
        "first": returns[..., 0],
        f"first_{early}": returns[..., :early].mean(axis=2),
        f"last_{early}": returns[..., -early:].mean(axis=2),
        "all": returns.mean(axis=2),
    }


def _row(run: Run, view: View) -> Row:
    part = view.of(run)
    first, early, late, overall = map(interval, iteration_scores(part.returns, view.early).values())
    counted = solved(part, view.early)
    tasks = () if counted is None else tuple(interval(each[:, None]) for each in counted[1:])  # as SOLVED
    return Row(run, view.last([run]), first, early, late, overall, tasks)


def returns_sheet(rows: Sequence[Row], view: View) -> Sheet:
    """Mean returns."""
    which, tasks = spans(view, [row.last_task for row in rows])
    over = " or ".join(
        sorted({f"{len(row.run.seeds)} seeds" if row.overall.over == "seeds" else "tasks" for row in rows})
    )
    head = (*opening(tasks), "first", f"first {view.early}", f"last {view.early}", "all")
    lines = [
        (name, *cell, *map(str, (row.first, row.early, row.late, row.overall)))
        for name, cell, row in zip(_labels(rows), tasks, rows, strict=True)
    ]
    notes = (f"± 95 % interval over {over}",)
    return Sheet(f"Mean return per episode{which}", head, lines, notes, len(opening(tasks)), _keys(rows))


def solved_sheet(rows: Sequence[Row], view: View) -> Sheet | None:
    """How many tasks were solved, if any of the families tells."""
    if not any(row.solved for row in rows):
        return None
    which, tasks = spans(view, [row.last_task for row in rows])
    head = (*opening(tasks), "in the best iteration", f"in the last {view.early}", "ever")
    lines = [
        (name, *cell, *([tasks_of(count) for count in row.solved] or ["-"] * len(SOLVED)))
        for name, cell, row in zip(_labels(rows), tasks, rows, strict=True)
    ]
    return Sheet(f"Solved tasks{which}", head, lines, words=len(opening(tasks)), keys=_keys(rows))


def keys_of(run: Run) -> dict[str, str]:
    """What a page filters the rows of a run by."""
    return {"family": run.family, "method": run.method}


def _keys(rows: Sequence[Row]) -> list[dict[str, str]]:
    return [keys_of(row.run) for row in rows]


def _labels(rows: Sequence[Row]) -> list[str]:
    return called([row.run for row in rows])


def place(run: Run, view: View, last: int, score: str) -> tuple[str | int, ...]:
    """The cells below PLACE."""
    return run.family, run.method, run.config["preset"], len(run.seeds), view.first_task, last, score


def numbers(score: Interval) -> tuple[str, ...]:
    """Mean, low, high and what the interval is over, for a CSV."""
    return (*(f"{x:.6g}" for x in score[:3]), score.over)


def write_csv(rows: Sequence[Row], view: View, path: Path) -> None:
    """One line per run and score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*PLACE, "mean", "low", "high", "over", "wall_minutes", "run"))
        for row in rows:
            names = ("first", f"first_{view.early}", f"last_{view.early}", "all")
            scores = dict(zip(names, (row.first, row.early, row.late, row.overall), strict=True))
            scores |= dict(zip([f"solved_{name}" for name in SOLVED], row.solved, strict=False))
            for name, score in scores.items():
                after = (f"{row.run.wall_seconds / 60:.3f}", row.run.folders)
                writer.writerow((*place(row.run, view, row.last_task, name), *numbers(score), *after))
