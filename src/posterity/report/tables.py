"""Tables of runs: in the terminal and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from posterity.errors import UserError
from posterity.report.metrics import Interval, Run, called, interval, solved, tasks_of
from posterity.types import FloatArray

SOLVED = ("most", "last", "ever")  # tasks solved: in the best iteration, in the last ones, in any


class View(NamedTuple):
    """Which part of the runs a report is about; tasks are counted from 1, both ends in."""

    first_task: int = 1
    last_task: int | None = None
    early: int = 3  # iterations that count as the beginning, and as the end, of a task

    def of(self, run: Run) -> Run:
        """The run, with only the tasks of this view."""
        if self.first_task > run.returns.shape[1]:
            raise UserError(f"{run.path} has {run.returns.shape[1]} tasks; there is no task {self.first_task}")
        names = ("returns", "gap", "radius", "hidden_radius", "success")
        return run._replace(**{name: self.cut(getattr(run, name)) for name in names})

    def cut(self, values: FloatArray) -> FloatArray:
        """Values [L, K, ...], only of the tasks of this view."""
        return values[:, self.first_task - 1 : self.last_task]

    def last(self, runs: Sequence[Run]) -> int:
        """The last task that this view has to show of any of the runs; the one before the first if there is none."""
        met = [np.flatnonzero(np.isfinite(self.of(run).returns).any(axis=(0, 2))) for run in runs]
        return max((self.first_task + int(tasks[-1]) for tasks in met if len(tasks)), default=self.first_task - 1)


EVERYTHING = View()


def spans(view: View, last: Sequence[int]) -> tuple[str, list[list[str]]]:
    """Which tasks lines are about that end with these: said once of all, or in a cell of each line if they differ."""
    first = view.first_task
    each = [f"{first}-{task}" if task > first else str(task) if task == first else "-" for task in last]
    if len(set(last)) == 1:
        return f", tasks {each[0]}", [[] for _ in each]
    return ", of each its tasks so far", [[tasks] for tasks in each]


def opened(title: str, cells: Sequence[Sequence[str]], **given: Any) -> Table:
    """A table whose lines begin with a run and, where they differ, its tasks."""
    table = Table(title=title, **given)
    for name in ("run", "tasks")[: 1 + len(cells[0])]:
        table.add_column(name)
    return table


class Row(NamedTuple):
    """One run's line in the table."""

    family: str
    method: str
    preset: str
    seeds: int
    last_task: int  # of those the scores are over
    first: Interval  # iteration
    early: Interval
    late: Interval
    overall: Interval
    minutes: float
    path: Path
    solved: tuple[Interval, ...]  # SOLVED, where the family tells of success; else empty


def rows(runs: Sequence[Run], view: View) -> list[Row]:
    """The table of `runs`."""
    return [_row(run, view) for run in runs]


def _row(run: Run, view: View) -> Row:
    part = view.of(run)
    returns = part.returns
    parts = (returns[..., :1], returns[..., : view.early], returns[..., -view.early :], returns)
    first, early, late, overall = (interval(part.mean(axis=2)) for part in parts)
    name = (run.family, run.method, run.config["preset"])
    counted = solved(part, view.early)
    tasks = () if counted is None else tuple(interval(getattr(counted, column)[:, None]) for column in SOLVED)
    return Row(*name, len(run.seeds), view.last([run]), first, early, late, overall, run.wall / 60.0, run.path, tasks)


def terminal(rows: Sequence[Row], view: View) -> Table:
    """The table as rich shows it."""
    which, tasks = spans(view, [row.last_task for row in rows])
    over = " or ".join(sorted({f"{row.seeds} seeds" if row.overall.over == "seeds" else "tasks" for row in rows}))
    table = opened(f"Mean return per episode{which}", tasks, caption=f"± 95 % interval over {over}")
    for name in ("first", f"first {view.early}", f"last {view.early}", "all"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, cell, row in zip(_labels(rows), tasks, rows, strict=True):
        table.add_row(name, *cell, *map(str, (row.first, row.early, row.late, row.overall)))
    return table


def terminal_solved(rows: Sequence[Row], view: View) -> Table | None:
    """How many tasks were solved, if any of the families tells."""
    if not any(row.solved for row in rows):
        return None
    which, tasks = spans(view, [row.last_task for row in rows])
    table = opened(f"Solved tasks{which}", tasks)
    for name in ("in the best iteration", f"in the last {view.early}", "ever"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, cell, row in zip(_labels(rows), tasks, rows, strict=True):
        table.add_row(name, *cell, *([tasks_of(count) for count in row.solved] or ["-"] * len(SOLVED)))
    return table


def _labels(rows: Sequence[Row]) -> list[str]:
    return called([(row.family, row.method, row.path) for row in rows])


def write_csv(rows: Sequence[Row], view: View, path: Path) -> None:
    """One line per run and score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        head = (
            "family",
            "method",
            "preset",
            "seeds",
            "first_task",
            "last_task",
            "score",
            "mean",
            "low",
            "high",
            "over",
        )
        writer.writerow((*head, "wall_minutes", "run"))
        for row in rows:
            scores = {"first": row.first, f"first_{view.early}": row.early, f"last_{view.early}": row.late}
            scores |= {"all": row.overall, **dict(zip([f"solved_{name}" for name in SOLVED], row.solved, strict=False))}
            for name, score in scores.items():
                place = (*row[:4], view.first_task, row.last_task, name)
                writer.writerow((*place, *(f"{x:.6g}" for x in score[:3]), score.over, f"{row.minutes:.3f}", row.path))
