"""A report: the table, the CSV and the figures of some runs, in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity.report import figures, scores, tables
from posterity.report.metrics import Run, read_run
from posterity.report.tables import Row, View


class Report(NamedTuple):
    """What a report is made of."""

    rows: list[Row]
    files: list[Path]
    scored: list[Run]  # those that were evaluated


def make_report(paths: Sequence[Path], out: Path, view: View, epsilon: float) -> Report:
    """Reads the runs in `paths` and writes their report into `out`."""
    runs = [read_run(path) for path in paths]
    rows = tables.rows(runs, view)
    out.mkdir(parents=True, exist_ok=True)
    table = out / "table.csv"
    tables.write_csv(rows, view, table)
    files = [table]
    if scored := scores.evaluated(runs):
        files.append(out / "scores.csv")
        scores.write_csv(scored, files[-1], view)
    for family, members in groupby(sorted(runs, key=_family), key=_family):
        group = list(members)
        name = family.replace(":", "-").replace(".", "-")
        files += figures.learning_curves(group, view, out / f"{name}-learning")
        probed = [run for run in group if np.isfinite(run.radius).any()]
        telling = [run for run in group if np.isfinite(run.success).any()]
        if telling:
            files += figures.solved_tasks(telling, view, out / f"{name}-solved")
        if probed:
            files += figures.transfer(probed, view, epsilon, out / f"{name}-transfer")
    return Report(rows, files, scored)


def _family(run: Run) -> str:
    return run.family
