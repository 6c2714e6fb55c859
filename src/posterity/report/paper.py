"""Our scores beside the paper's Table 1 (Fu et al., NeurIPS 2022).

The paper's numbers are in paper_table1.csv: mean and one standard deviation, over tasks and three seeds. Its LPG-FTW
and EWC have twice VBLRL's samples. Its `hip-mdp` is T-HiP-MDP, a model with a latent for each task. Our `pooled` stands
beside it, and has none.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from posterity.errors import UserError
from posterity.experiment.records import Run
from posterity.report.metrics import Interval, called, interval
from posterity.report.scores import HEADS, columns, head, known, last_task
from posterity.report.sheet import Sheet
from posterity.report.tables import View, numbers

TASKS = {"cheetah": 40, "hopper": 20, "walker": 20}  # in the paper, by body
THEIRS = {"pooled": "hip-mdp"}  # our method: the paper's row, where the names differ
PUBLISHED = ("start", "train", "back")


class Published(NamedTuple):
    """A cell of the paper's table."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        """As the paper has it, without its decimals."""
        return f"{self.mean:.0f} ± {self.deviation:.0f}"


def table1() -> dict[tuple[str, str, str], Published]:
    """(family, method, score) -> the paper's number."""
    text = resources.files("posterity.report").joinpath("paper_table1.csv").read_text(encoding="utf-8")
    return {
        (row["family"], row["method"], row["score"]): Published(float(row["mean"]), float(row["spread"]))
        for row in csv.DictReader(text.splitlines())
    }


class Beside(NamedTuple):
    """A run's scores, and the paper's of its family and method."""

    run: Run
    tasks: int  # that ours are over
    paper_tasks: int
    ours: dict[str, Interval]
    paper: dict[str, Published]


def beside(runs: Sequence[Run], view: View) -> list[Beside]:
    """Those of the runs that were evaluated in one of the paper's six families."""
    published = table1()
    families = {family for family, _, _ in published}
    found = []
    for run in runs:
        if run.family in families and (parts := known(run, view)):
            method = THEIRS.get(run.method, run.method)
            paper = {name: published[key] for name in PUBLISHED if (key := (run.family, method, name)) in published}
            tasks = last_task(parts, view) - view.first_task + 1
            ours = {name: interval(part.returns) for name, part in parts.items()}
            found.append(Beside(run, tasks, TASKS[run.family.split("-")[0]], ours, paper))
    if not found:
        raise UserError(f"No run was evaluated in a family of the paper's Table 1: {', '.join(sorted(families))}")
    return found


def sheet(found: Sequence[Beside], view: View) -> Sheet:
    """One line a run: ours and the paper's side by side."""
    shown = columns([each.run for each in found], view)
    names = ["run", "tasks"]
    for name in shown:
        names += [head(name), "paper"] if name in PUBLISHED else [head(name)]
    rows = []
    for label, each in zip(called([each.run for each in found]), found, strict=True):
        cells = [label, str(each.tasks)]
        for name in shown:
            cells.append(str(each.ours.get(name, "-")))
            if name in PUBLISHED:
                cells.append(str(each.paper.get(name, "-")))
        rows.append(tuple(cells))
    return Sheet("Beside the paper's Table 1", tuple(names), rows, tuple(_notes(found)))


def _notes(found: Sequence[Beside]) -> list[str]:
    over = " or ".join(sorted({score.over for each in found for score in each.ours.values()}))
    notes = [f"Ours ± 95 % interval over {over}; the paper's ± one standard deviation, over tasks and three seeds"]
    fewer = sorted({(each.run.family, each.paper_tasks) for each in found if each.tasks != each.paper_tasks})
    if fewer:
        counts = " and ".join(f"{tasks} tasks in {family}" for family, tasks in fewer)
        notes.append(
            f"The paper's scores are over {counts}; where our number of tasks is another, they are a scale only"
        )
    if any(each.run.method == "pooled" for each in found):
        notes.append("`pooled` is beside the paper's T-HiP-MDP, which has a latent for each task; ours has no latent")
    return notes


def write_csv(found: Sequence[Beside], path: Path) -> None:
    """One line per run and score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ("family", "method", "paper_method", "score", "tasks", "paper_tasks", "mean", "low", "high", "over")
        writer.writerow((*names, "paper_mean", "paper_deviation", "run"))
        for each in found:
            method = THEIRS.get(each.run.method, each.run.method) if each.paper else ""
            for name in [*HEADS, *sorted(each.ours.keys() - HEADS.keys())]:
                if name in each.ours:
                    theirs = each.paper.get(name, ("", ""))
                    what = (each.run.family, each.run.method, method, name, each.tasks, each.paper_tasks)
                    writer.writerow((*what, *numbers(each.ours[name]), *theirs, each.run.folders))
