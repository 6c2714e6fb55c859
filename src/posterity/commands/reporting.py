"""`posterity report`: tables and figures of runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.text import Text

from posterity.commands.arguments import Terminal, parse, span, terminal
from posterity.errors import UserError
from posterity.settings import Settings, argument, setting

EPSILON = 1.0  # value lost below which a policy counts as optimal, unless the user says otherwise


class ReportArgs(Settings):
    """Tables (CSV, Markdown, LaTeX), figures and a page of one run or several, side by side."""

    folders: tuple[Path, ...] = argument((), "The folders of the runs, or of sweeps.")
    against: tuple[Path, ...] = setting(
        (), "Folders of runs to compare them with: differences of every score, by seed, over the same tasks."
    )
    pool: bool = setting(
        False, "Take runs of one family and method as one sample of seeds; a seed that several have counts once."
    )
    paper: bool = setting(False, "Set the scores beside the paper's Table 1.")
    out: Path | None = setting(None, "Folder for the report; default: `report` in the first run's folder.")
    tasks: str = setting("1-", "Which tasks, counted from 1: 51-300, or 51- for all from 51 on.")
    early: int = setting(3, "Iterations that count as the beginning, and as the end, of a task.")
    epsilon: float = setting(
        EPSILON, "Value lost below which a policy counts as optimal, in runs with --measure-truth."
    )
    figures: bool = setting(True, "Draw figures.")
    page: bool = setting(False, "Write one HTML page with all of it, which needs no network: index.html.")


def report(args: Sequence[str]) -> int:
    """Writes a report."""
    asked = parse(ReportArgs, args, "report")
    if not asked.folders:
        raise UserError("Which run? For example: posterity report runs/item-search-blrl-001")
    command = shlex.join(["posterity", "report", *args])
    _write(asked, asked.out or asked.folders[0] / "report", terminal(), command)
    return 0


def write_report(
    folders: Sequence[Path], out: Path, tasks: str, early: int, console: Console, epsilon: float = EPSILON
) -> None:
    """Writes a report into `out`, shows its tables and says where the files are."""
    _write(ReportArgs(folders=tuple(folders), tasks=tasks, early=early, epsilon=epsilon), out, console)


def _write(asked: ReportArgs, out: Path, console: Console, command: str = "posterity report") -> None:
    first, last = span(asked.tasks)
    if asked.early < 1 or not asked.epsilon >= 0:
        raise UserError(f"early is {asked.early} and epsilon {asked.epsilon:g}; need 1 or more, and 0 or more")
    from posterity.report.report import Plan, make_report  # matplotlib: only once the arguments are known to be good
    from posterity.report.tables import View

    view = View(first, last, asked.early)
    together: list[tuple[Path, ...]] = []
    runs, against = (_expanded(folders, together, console) for folders in (asked.folders, asked.against))
    plan = Plan(
        runs=runs,
        view=view,
        against=against,
        epsilon=asked.epsilon,
        pool=asked.pool,
        paper=asked.paper,
        figures=asked.figures,
        page=asked.page,
        command=command,
        together=together,
    )
    made = make_report(plan, out)
    for sheet in made.sheets:
        screen = Terminal()
        screen.print(sheet.terminal(screen.width))
    for note in made.notes:
        console.print(Text(note))
    for _, files in groupby(made.files, key=lambda path: path.with_suffix("")):
        first, *others = files
        console.print(" ".join([str(first), *(path.suffix for path in others)]), soft_wrap=True)


def _expanded(folders: Sequence[Path], together: list[tuple[Path, ...]], console: Console) -> list[Path]:
    """The runs in these folders. Of a sweep: its finished cells; those of one family and method are one sample."""
    runs: list[Path] = []
    for folder in folders:
        if not (folder / "sweep.toml").is_file():
            runs.append(folder)
            continue
        from posterity.commands.sweeping import finished

        for group in finished(folder, lambda text: console.print(text, markup=False)).values():
            runs += group
            together.append(tuple(group))
    return runs
