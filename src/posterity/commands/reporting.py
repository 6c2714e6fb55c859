"""`posterity report`: tables and figures of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from posterity.commands.arguments import Terminal, parse, span, terminal
from posterity.errors import UserError
from posterity.settings import Settings, argument, setting

EPSILON = 1.0  # value lost below which a policy counts as optimal, unless the user says otherwise


class ReportArgs(Settings):
    """Table, CSV and figures of one run or several, side by side."""

    folders: tuple[Path, ...] = argument((), "The folders of the runs.")
    out: Path | None = setting(None, "Folder for the report; default: `report` in the first run's folder.")
    tasks: str = setting("1-", "Which tasks, counted from 1: 51-300, or 51- for all from 51 on.")
    early: int = setting(3, "Iterations that count as the beginning, and as the end, of a task.")
    epsilon: float = setting(EPSILON, "Value lost below which a policy counts as optimal, in runs that were probed.")


def report(args: Sequence[str]) -> int:
    """Writes a report."""
    asked = parse(ReportArgs, args, "report")
    if not asked.folders:
        raise UserError("Which run? For example: posterity report runs/item-search-blrl-001")
    out = asked.out or asked.folders[0] / "report"
    write_report(asked.folders, out, asked.tasks, asked.early, terminal(), asked.epsilon)
    return 0


def write_report(
    folders: Sequence[Path], out: Path, tasks: str, early: int, console: Console, epsilon: float = EPSILON
) -> None:
    """Writes a report into `out`, shows its table and says where the files are."""
    first, last = span(tasks)
    if early < 1 or not epsilon >= 0:
        raise UserError(f"early is {early} and epsilon {epsilon:g}; need 1 or more, and 0 or more")
    from posterity.report.report import make_report  # matplotlib: only once the arguments are known to be good
    from posterity.report.scores import table
    from posterity.report.tables import View, terminal, terminal_solved

    view = View(first, last, early)
    made = make_report(folders, out, view, epsilon)
    Terminal().print(terminal(made.rows, view))
    if counted := terminal_solved(made.rows, view):
        Terminal().print(counted)
    if evaluated := table(made.scored, view):
        Terminal().print(evaluated)
    for path in made.files:
        console.print(str(path))
