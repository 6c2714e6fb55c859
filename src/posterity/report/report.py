"""A report: the tables (CSV and Markdown) and the figures of some runs, in one folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity import files
from posterity.experiment.records import Run, read_run
from posterity.report import differences, figures, paper, scores, tables, transfer
from posterity.report.pool import as_one, pooled
from posterity.report.sheet import Sheet
from posterity.report.tables import View


class Plan(NamedTuple):
    """What to report."""

    runs: Sequence[Path]
    view: View = View()
    against: Sequence[Path] = ()  # runs that the others are compared with
    epsilon: float = 1.0  # value lost below which a policy counts as optimal
    pool: bool = False  # runs of one family and method are one sample of seeds
    paper: bool = False  # set them beside the paper's Table 1
    figures: bool = True
    together: Sequence[Sequence[Path]] = ()  # runs that are one sample of seeds whatever `pool` says: a sweep's cells


class Report(NamedTuple):
    """What a report is made of."""

    sheets: list[Sheet]
    files: list[Path]


def make_report(plan: Plan, out: Path) -> Report:
    """Reads the runs and writes their report into `out`."""
    view, read = plan.view, {path: read_run(path) for path in (*plan.runs, *plan.against)}
    ours, theirs = (as_one([read[path] for path in paths], plan.together) for paths in (plan.runs, plan.against))
    if plan.pool:
        ours, theirs = pooled(ours), pooled(theirs)
    runs = [*ours, *(run for run in theirs if all(run is not other for other in ours))]
    rows, report = tables.rows(runs, view), _Files(out)
    compared = differences.compare(ours, theirs, view)
    compared += [each for run in runs for each in differences.within(run, view)]
    placed = paper.beside(runs, view) if plan.paper else []
    files.own_folder(out)  # nothing is written before all is known to be good
    for there in out.iterdir():
        files.refuse_link(there)
    report.add(
        "table",
        [tables.returns_sheet(rows, view), tables.solved_sheet(rows, view)],
        lambda path: tables.write_csv(rows, view, path),
    )
    if scores.evaluated(runs):
        report.add("scores", [scores.sheet(runs, view)], lambda path: scores.write_csv(runs, path, view))
    if measured := transfer.measured(runs):
        report.add(
            "transfer",
            [transfer.sheet(measured, view, plan.epsilon)],
            lambda path: transfer.write_csv(measured, path, view, plan.epsilon),
        )
    if compared:
        report.add("differences", differences.sheets(compared), lambda path: differences.write_csv(compared, path))
    if placed:
        report.add("paper", [paper.sheet(placed, view)], lambda path: paper.write_csv(placed, path))
    if plan.figures:
        report.files += _figures(runs, view, plan.epsilon, out)
    return Report(report.sheets, report.files)


class _Files:
    """What has been written so far."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.sheets: list[Sheet] = []
        self.files: list[Path] = []

    def add(self, name: str, sheets: Sequence[Sheet | None], write_csv: Callable[[Path], None]) -> None:
        """One CSV, and the same numbers as Markdown beside it."""
        there = [sheet for sheet in sheets if sheet is not None]
        table, text = self.out / f"{name}.csv", self.out / f"{name}.md"
        write_csv(table)
        text.write_text("\n".join(sheet.markdown() for sheet in there), encoding="utf-8")
        self.sheets += there
        self.files += [table, text]


def _figures(runs: Sequence[Run], view: View, epsilon: float, out: Path) -> list[Path]:
    """Those of each family."""
    files = []
    for family, members in groupby(sorted(runs, key=_family), key=_family):
        group = list(members)
        name = re.sub(r"[^\w-]+", "-", family).strip("-")[:100] or "family"  # whatever it is called, a file in `out`
        files += figures.learning_curves(group, view, out / f"{name}-learning")
        if telling := [run for run in group if np.isfinite(run.success).any()]:
            files += figures.solved_tasks(telling, view, out / f"{name}-solved")
        if measured := transfer.measured(group):
            files += figures.transfer(measured, view, epsilon, out / f"{name}-transfer")
    return files


def _family(run: Run) -> str:
    return run.family
