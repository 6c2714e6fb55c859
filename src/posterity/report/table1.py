"""Any set of runs in the layout of the paper's Table 1: a line for each family and score, a column for each method.

The paper's number stands beside ours only where the budget is the same: as many tasks, iterations and steps. Elsewhere
a word says that it is not.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity.experiment.records import Run, Scores
from posterity.report.metrics import Interval, folders, interval
from posterity.report.paper import PUBLISHED, TASKS, THEIRS, Published, table1
from posterity.report.scores import HEADS, known
from posterity.report.sheet import Sheet
from posterity.report.tables import View, numbers

ITERATIONS = 100  # of a task, in the paper
STEPS = {"cheetah": 100, "hopper": 400, "walker": 400}  # of an iteration
TWICE = ("npg", "ewc", "lpg-ftw")  # which have twice the samples
OTHER = "other budget"


class Cell(NamedTuple):
    """A score of a run, and the paper's."""

    run: Run
    column: str
    score: str
    tasks: int
    ours: Interval
    paper: Published | None  # None: the paper has none
    same_budget: bool


def cells(runs: Sequence[Run], view: View) -> list[Cell]:
    """All scores of the paper's kind that the runs have."""
    published, found = table1(), []
    for run, column in zip(runs, _columns(runs), strict=True):
        for name, scores in known(run, view).items():
            if name in PUBLISHED:
                paper = published.get((run.family, THEIRS.get(run.method, run.method), name))
                same = paper is not None and _same_budget(run, scores, view)
                tasks = int(np.isfinite(scores.returns).any(axis=0).sum())
                found.append(Cell(run, column, name, tasks, interval(scores.returns), paper, same))
    return found


def _columns(runs: Sequence[Run]) -> list[str]:
    """Methods; with the folder, where a family has several runs of one."""
    kinds = [(run.family, run.method) for run in runs]
    names = folders(runs)
    return [
        run.method if kinds.count(kind) == 1 else f"{run.method} ({name})"
        for run, kind, name in zip(runs, kinds, names, strict=True)
    ]


def _same_budget(run: Run, scores: Scores, view: View) -> bool:
    """Whether the run had the paper's tasks, iterations and steps, and all its tasks were evaluated."""
    body = run.family.split("-")[0]
    steps = STEPS[body] * (2 if run.method in TWICE else 1)
    whole = view.first_task == 1 and np.isfinite(scores.returns).sum() == TASKS[body] * len(run.seeds)
    return bool(whole and (run.config["iterations"], run.config["steps_per_iteration"]) == (ITERATIONS, steps))


def sheet(found: Sequence[Cell]) -> Sheet | None:
    """A line for each family and score."""
    if not found:
        return None
    columns = list(dict.fromkeys(cell.column for cell in found))
    beside = {cell.column for cell in found if cell.paper is not None}
    heads = [name for column in columns for name in ((column, f"{column}, paper") if column in beside else (column,))]
    lines, keys = [], []
    for family in dict.fromkeys(cell.run.family for cell in found):
        for score in PUBLISHED:
            here = {cell.column: cell for cell in found if (cell.run.family, cell.score) == (family, score)}
            if here:
                texts = [text for column in columns for text in _texts(here.get(column), column in beside)]
                lines.append((family, HEADS[score], *texts))
                keys.append({"family": family})
    return Sheet("As in the paper's Table 1", ("family", "score", *heads), lines, tuple(_notes(found)), 2, keys)


def _texts(cell: Cell | None, beside: bool) -> list[str]:
    """Ours and, where the column has one beside it, the paper's."""
    if cell is None:
        return ["-", "-"] if beside else ["-"]
    paper = "-" if cell.paper is None else str(cell.paper) if cell.same_budget else OTHER
    return [str(cell.ours), paper] if beside else [str(cell.ours)]


def _notes(found: Sequence[Cell]) -> list[str]:
    over = " or ".join(sorted({cell.ours.over for cell in found}))
    notes = [f"Mean return, ± 95 % interval over {over}"]
    if any(cell.same_budget for cell in found):
        notes.append("The paper's: ± one standard deviation, over tasks and three seeds")
    if any(cell.paper is not None and not cell.same_budget for cell in found):
        notes.append(f"'{OTHER}': the run has not the paper's number of tasks, iterations or steps, or not yet")
    if any(cell.run.method == "pooled" and cell.same_budget for cell in found):
        notes.append("`pooled` is beside the paper's T-HiP-MDP, which has a latent for each task; ours has no latent")
    return notes


def write_csv(found: Sequence[Cell], path: Path) -> None:
    """One line per run and score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ("family", "score", "column", "seeds", "tasks", "mean", "low", "high", "over")
        writer.writerow((*names, "paper_mean", "paper_deviation", "paper", "run"))
        for cell in found:
            theirs = cell.paper if cell.paper is not None and cell.same_budget else ("", "")
            word = "" if cell.paper is None else "same budget" if cell.same_budget else OTHER
            what = (cell.run.family, cell.score, cell.column, len(cell.run.seeds), cell.tasks)
            writer.writerow((*what, *numbers(cell.ours), *theirs, word, cell.run.folders))
