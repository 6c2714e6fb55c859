"""A report: tables (CSV, Markdown and LaTeX), figures and, if asked for, one page, of some runs, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np

from posterity import files
from posterity.errors import UserError
from posterity.experiment.records import Run, read_run
from posterity.report import (
    backward_figures,
    differences,
    drawing,
    figures,
    model_figures,
    paper,
    run_figures,
    scores,
    seeds,
    summary,
    table1,
    tables,
    transfer,
)
from posterity.report.drawing import Drawing
from posterity.report.lifelong import transfer_matrix
from posterity.report.page import Content, page
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
    page: bool = False
    command: str = "posterity report"  # that makes it again, for the page


class Report(NamedTuple):
    """What a report is made of."""

    sheets: list[Sheet]
    files: list[Path]
    notes: list[str]  # runs that were left out and why, and what to know about others


def make_report(plan: Plan, out: Path) -> Report:
    """Reads the runs and writes their report into `out`. Runs that cannot be read are named and left out."""
    view = plan.view
    read, left_out = readable([*plan.runs, *plan.against], view)
    ours, theirs = (
        as_one([read[path] for path in paths if path in read], plan.together) for paths in (plan.runs, plan.against)
    )
    if not ours or (plan.against and not theirs):
        raise UserError("; ".join(dict.fromkeys(left_out)))
    notes = [f"Left out: {reason}" for reason in left_out] + remarks(list(read.values()))
    if plan.pool:
        ours, theirs = pooled(ours), pooled(theirs)
    runs = [*ours, *(run for run in theirs if all(run is not other for other in ours))]
    compared = differences.compare(ours, theirs, view)
    compared += [each for run in runs for each in differences.within(run, view)]
    placed = paper.beside(runs, view) if plan.paper else []
    report = _Files(out)
    files.own_folder(out)  # nothing is written before all is known to be good
    for there in out.iterdir():
        files.refuse_link(there)
    _tables(runs, view, plan.epsilon, report)
    if compared:
        report.add("differences", differences.sheets(compared), lambda path: differences.write_csv(compared, path))
    if placed:
        report.add("paper", [paper.sheet(placed, view)], lambda path: paper.write_csv(placed, path))
    each_seed = seeds.lines(runs, view)
    drawn: list[tuple[Drawing, str]] = []
    if plan.figures:
        drawn = _figures(runs, view, plan.epsilon, report)
    if plan.page:
        sheet = seeds.sheet(each_seed, view)
        seeds.write_csv(each_seed, out / "seeds.csv")
        content = Content(runs, [*report.sheets, sheet], drawn, notes, plan.command)
        (out / "index.html").write_text(page(content), encoding="utf-8")
        report.files += [out / "seeds.csv", out / "index.html"]
    return Report(report.sheets, report.files, notes)


def readable(paths: Sequence[Path], view: View) -> tuple[dict[Path, Run], list[str]]:
    """The runs that can be read and have a task of the view, and why the others have not."""
    found: dict[Path, Run] = {}
    left_out: list[str] = []
    for path in dict.fromkeys(paths):
        try:
            run = read_run(path)
            view.of(run)
            found[path] = run
        except UserError as error:
            left_out.append(str(error))
    return found, left_out


def remarks(runs: Sequence[Run]) -> list[str]:
    """What to know about runs that are reported all the same: unfinished ones, and different versions."""
    made = []
    for run in runs:
        done, due = int(np.isfinite(run.returns).all(axis=(0, 2)).sum()), run.config["tasks"]
        if done < due:
            made.append(f"Unfinished: {run.path} has {done} of {due} tasks")
    versions = sorted({str(session["posterity"]) for run in runs for session in run.sessions if "posterity" in session})
    if len(versions) > 1:
        made.append(f"The runs are of different versions of posterity: {', '.join(versions)}")
    return made


class _Files:
    """What has been written so far."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.sheets: list[Sheet] = []
        self.files: list[Path] = []

    def add(self, name: str, sheets: Sequence[Sheet | None], write_csv: Callable[[Path], None]) -> None:
        """One CSV, and the same numbers as Markdown and as LaTeX beside it."""
        there = [sheet for sheet in sheets if sheet is not None]
        table, text, latex = (self.out / f"{name}.{kind}" for kind in ("csv", "md", "tex"))
        write_csv(table)
        text.write_text("\n".join(sheet.markdown() for sheet in there), encoding="utf-8")
        latex.write_text("\n".join(sheet.latex() for sheet in there), encoding="utf-8")
        self.sheets += there
        self.files += [table, text, latex]


def _tables(runs: Sequence[Run], view: View, epsilon: float, report: _Files) -> None:
    """The tables that need no second set of runs."""
    rows = tables.rows(runs, view)
    report.add(
        "table",
        [tables.returns_sheet(rows, view), tables.solved_sheet(rows, view)],
        lambda path: tables.write_csv(rows, view, path),
    )
    if scores.evaluated(runs):
        report.add("scores", [scores.sheet(runs, view)], lambda path: scores.write_csv(runs, path, view))
    if cells := table1.cells(runs, view):
        report.add("table1", [table1.sheet(cells)], lambda path: table1.write_csv(cells, path))
    if found := summary.metrics(runs, view):
        report.add("metrics", [summary.sheet(found, view)], lambda path: summary.write_csv(found, view, path))
    if measured := transfer.measured(runs):
        report.add(
            "transfer",
            [transfer.sheet(measured, view, epsilon)],
            lambda path: transfer.write_csv(measured, path, view, epsilon),
        )


def _figures(runs: Sequence[Run], view: View, epsilon: float, report: _Files) -> list[tuple[Drawing, str]]:
    """Those of each family, written; and each with its SVG, for a page."""
    drawn: list[tuple[Drawing, str]] = []
    for family, members in groupby(sorted(runs, key=_family), key=_family):
        group = list(members)
        report.files += figures.learning_curves(group, view, report.out / f"{drawing.slug(family)}-learning")
        made: list[Drawing | None] = [
            figures.stream(group, view),
            figures.within_task(group, view),
            backward_figures.backward(group, view),
            *(backward_figures.ways_back(each, view) for each in drawing.named(group)),
            figures.scores(group, view),
            *(run_figures.matrix(each, transfer_matrix(view.of(each.run)), view) for each in drawing.named(group)),
            figures.solved_tasks(group, view),
            figures.prior_mass(group, view, epsilon),
            model_figures.uncertainty(group, view),
            model_figures.forecasts(group, view),
            model_figures.calibration(group, view),
            model_figures.whose_prediction(group, view),
            model_figures.latent(group, view),
            run_figures.particles(group, view),
        ]
        for each in filter(None, made):
            with mpl.rc_context(drawing.STYLE):
                files = drawing.save(each, report.out)
            report.files += files
            drawn.append((each, files[1].read_text(encoding="utf-8")))
    return drawn


def _family(run: Run) -> str:
    return run.family
