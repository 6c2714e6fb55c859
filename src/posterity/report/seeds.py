"""Every seed by itself: one line a run and seed, each score a mean over the tasks of the view."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity.experiment.records import Run
from posterity.report.metrics import folders, mean_known
from posterity.report.scores import columns, head, known
from posterity.report.sheet import Sheet
from posterity.report.tables import View, iteration_scores, keys_of


class Line(NamedTuple):
    """One seed of a run."""

    run: Run
    folder: str
    seed: int
    tasks: int  # finished
    scores: dict[str, float]


def lines(runs: Sequence[Run], view: View) -> list[Line]:
    """All seeds of all runs."""
    found = []
    for run, folder in zip(runs, folders(runs), strict=True):
        part = view.of(run)
        values = {name: array for name, array in iteration_scores(part.returns, view.early).items() if name != "all"}
        values |= {name: scores.returns for name, scores in known(run, view).items()}
        means = {name: mean_known(array, axis=1) for name, array in values.items()}
        done = np.isfinite(part.returns).all(axis=2).sum(axis=1)
        found += [
            Line(run, folder, seed, int(done[lane]), {name: float(mean[lane]) for name, mean in means.items()})
            for lane, seed in enumerate(run.seeds)
        ]
    return found


def number(value: float) -> str:
    """As intervals show a mean."""
    digits = 0 if abs(value) >= 100 else 3 if abs(value) < 10 else 1
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def sheet(found: Sequence[Line], view: View) -> Sheet:
    """One line a seed."""
    runs = [line.run for line in found]
    early = [name for name in found[0].scores if name.startswith(("first", "last"))]
    shown = [*early, *columns(runs, view)]
    titles = ("family", "method", "run", "seed", "tasks", *(name.replace("_", " ") for name in early))
    rows = [
        (
            *(line.run.family, line.run.method, line.folder, str(line.seed), str(line.tasks)),
            *(number(line.scores.get(name, np.nan)) for name in shown),
        )
        for line in found
    ]
    keys = [{**keys_of(line.run), "seed": str(line.seed)} for line in found]
    heads = (*titles, *map(head, columns(runs, view)))
    return Sheet("Seed by seed", heads, rows, ("Mean returns over each seed's tasks",), 3, keys)


def write_csv(found: Sequence[Line], path: Path) -> None:
    """One line per run, seed and score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("family", "method", "seed", "tasks", "score", "mean", "run"))
        for line in found:
            for name, value in line.scores.items():
                if np.isfinite(value):
                    where = (line.run.family, line.run.method, line.seed, line.tasks)
                    writer.writerow((*where, name, f"{value:.6g}", line.run.folders))
