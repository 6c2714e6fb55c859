"""Tables of runs: in the terminal and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table

from posterity.errors import UserError
from posterity.report.metrics import Interval, Run, interval


class View(NamedTuple):
    """Which part of the runs a report is about; tasks are counted from 1, both ends in."""

    first_task: int = 1
    last_task: int | None = None
    early: int = 3  # iterations that count as the beginning, and as the end, of a task

    def of(self, run: Run) -> Run:
        """The run, with only the tasks of this view."""
        if self.first_task > run.returns.shape[1]:
            raise UserError(f"{run.path} has {run.returns.shape[1]} tasks; there is no task {self.first_task}")
        cut = slice(self.first_task - 1, self.last_task)
        return run._replace(returns=run.returns[:, cut], gap=run.gap[:, cut], radius=run.radius[:, cut])


class Row(NamedTuple):
    """One run's line in the table."""

    family: str
    method: str
    preset: str
    seeds: int
    tasks: int
    start: Interval  # first iteration
    early: Interval
    late: Interval
    overall: Interval
    minutes: float
    path: Path


def rows(runs: Sequence[Run], view: View) -> list[Row]:
    """The table of `runs`."""
    return [_row(run, view) for run in runs]


def _row(run: Run, view: View) -> Row:
    returns = view.of(run).returns
    parts = (returns[..., :1], returns[..., : view.early], returns[..., -view.early :], returns)
    start, early, late, overall = (interval(part.mean(axis=2)) for part in parts)
    seen = int(np.isfinite(run.returns).any(axis=(0, 2)).sum())
    name = (run.family, run.method, run.config["preset"])
    return Row(*name, len(run.seeds), seen, start, early, late, overall, run.wall / 60.0, run.path)


def terminal(rows: Sequence[Row], view: View) -> Table:
    """The table as rich shows it."""
    last = view.last_task if view.last_task is not None else max(row.tasks for row in rows)
    over = " or ".join(sorted({f"{row.seeds} seeds" if row.overall.over == "seeds" else "tasks" for row in rows}))
    title, caption = f"Mean return per episode, tasks {view.first_task}-{last}", f"± 95 % interval over {over}"
    table = Table(title=title, caption=caption)
    table.add_column("run")
    for name in ("Start", f"first {view.early}", f"last {view.early}", "all"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.family} {row.method}", *(str(score) for score in (row.start, row.early, row.late, row.overall))
        )
    return table


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
            names = ("start", f"first_{view.early}", f"last_{view.early}", "all")
            for name, score in zip(names, (row.start, row.early, row.late, row.overall), strict=True):
                place = (*row[:4], view.first_task, view.last_task or row.tasks, name)
                writer.writerow((*place, *(f"{x:.6g}" for x in score[:3]), score.over, f"{row.minutes:.3f}", row.path))
