"""What was measured against the true task: the radius of its prior, steps that were not optimal, and value lost."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posterity.experiment.records import Run
from posterity.report.metrics import Interval, called, interval, suboptimal_steps
from posterity.report.sheet import Sheet
from posterity.report.tables import PLACE, View, keys_of, numbers, opening, place, spans


def measured(runs: Sequence[Run]) -> list[Run]:
    """Those of the runs that were measured."""
    return [run for run in runs if np.isfinite(run.radius).any()]


def numbers_of(run: Run, view: View, epsilon: float) -> dict[str, Interval]:
    """Each of them, over the tasks in the view."""
    part = view.of(run)
    return {
        "radius": interval(part.radius),
        "hidden_radius": interval(part.hidden_radius),
        "suboptimal_steps": interval(suboptimal_steps(part, epsilon)),
        "last_value_gap": interval(part.value_gap[:, :, -1]),
    }


def sheet(runs: Sequence[Run], view: View, epsilon: float) -> Sheet:
    """One line a run."""
    which, tasks = spans(view, [view.last([run]) for run in runs])
    head = (*opening(tasks), "radius", "of the hidden world", "steps not optimal", "value lost at the end")
    rows = [
        (name, *cell, *map(str, numbers_of(run, view, epsilon).values()))
        for name, cell, run in zip(called(runs), tasks, runs, strict=True)
    ]
    notes = (
        "± 95 % interval",
        "Radius: prior-mass radius d_pi of the prior that a task begins with",
        f"Steps of a task on which the policy lost more than {epsilon:g} of value",
    )
    return Sheet(
        f"Measured against the true task{which}", head, rows, notes, len(opening(tasks)), [keys_of(run) for run in runs]
    )


def write_csv(runs: Sequence[Run], path: Path, view: View, epsilon: float) -> None:
    """One line per run and number."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*PLACE, "mean", "low", "high", "over", "epsilon", "run"))
        for run in runs:
            for name, number in numbers_of(run, view, epsilon).items():
                where = place(run, view, view.last([run]), name)
                writer.writerow((*where, *numbers(number), f"{epsilon:g}", run.folders))
