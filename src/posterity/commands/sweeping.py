"""`posterity sweep`: families x methods x seeds, each cell an ordinary run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from posterity.commands.arguments import Flag, Group, Terminal, flags_of, parse, read, shown, terminal
from posterity.errors import UserError
from posterity.experiment.config import invalid
from posterity.experiment.sweep.executors import Execution
from posterity.experiment.sweep.folder import SweepFolder, is_sweep
from posterity.experiment.sweep.plan import (
    Arm,
    BackVariant,
    Sweep,
    cells_of,
    checked_sweep,
    group_of,
    groups_of,
    located,
    packaged,
    read_sweep,
)
from posterity.settings import Settings, argument, setting
from posterity.types import Facts

Form = TypeVar("Form", bound=Settings)
BUDGET = ("tasks", "iterations", "steps_per_iteration")  # flags that are settings of every run
ABOUT = (
    "Runs families x methods x seeds as a table of cells, each an ordinary run. Cells that are done are skipped. "
    "About a sweep: posterity sweep status DIR (how far it is); stop DIR (its workers save and leave); cell DIR CELL "
    "(one cell, in this process); publish DIR --out DEST (finished cells, compressed)."
)


class SweepArgs(Settings):
    """What to run."""

    sweep: str = argument(
        "",
        f"FILE.toml, the folder of a sweep to go on with, or a table or figure of the paper: {', '.join(packaged())} "
        "(docs/paper-figures.md).",
    )
    families: tuple[str, ...] = setting((), "The families of tasks; of a file, only these.")
    methods: tuple[str, ...] = setting((), "The learners; of a file, only these, by their names in it.")
    preset: str | None = setting(None, "The settings to start from: quick, paper, best.")
    tasks: int | None = setting(None, "Tasks of every run.", ge=1)
    iterations: int | None = setting(None, "Iterations per task.", ge=1)
    steps_per_iteration: int | None = setting(None, "Environment steps in an iteration.", ge=1)
    seeds: int | None = setting(None, "Seeds of every family and method.", ge=1)
    seed: int | None = setting(None, "The first of them.", ge=0)
    lanes: int | None = setting(
        None, "Seeds of one cell, learned side by side; 0: one for finite families, else all.", ge=0
    )
    evaluate: bool = setting(False, "Evaluate every cell when it is done, with the same episodes.")
    episodes: int | None = setting(None, "Episodes of each task and score in the evaluation.", ge=1)
    back_variants: tuple[BackVariant, ...] = setting(
        (),
        "How the evaluation plays Back, of methods that have several ways: confidence, blend, task-only, world-only; "
        "auto: as the run is set.",
    )
    back_every: int | None = setting(
        None, "In the evaluation, play Back after every so many tasks too; 0: only after the last task.", ge=0
    )
    out: Path | None = setting(None, "Folder of the sweep.")
    trust: bool = setting(False, "Go on with a folder whose families or methods are not posterity's: runs their code.")


def sweep(args: Sequence[str]) -> int:
    """Runs a sweep, or one of the verbs about one."""
    verbs: dict[str, Callable[[Sequence[str]], int]] = {
        "status": status,
        "stop": stop,
        "cell": cell,
        "publish": publish,
    }
    if args and args[0] in verbs:
        return verbs[args[0]](args[1:])
    what, who = list(flags_of(SweepArgs)), list(flags_of(Execution))
    values = read([Group("what to run", "", what), Group("who runs it", "", who)], args, "sweep", ABOUT)
    execution = _checked(Execution, {name: values.pop(name) for name in Execution.model_fields if name in values}, who)
    asked = _checked(SweepArgs, values, what)
    if asked.sweep and is_sweep(Path(asked.sweep)):
        folder = _again(asked)
        return _run(folder, execution, asked.trust, folder.names)
    folder, plan = _planned(asked)
    cells = cells_of(plan)
    folder.check_free()

    def prepare() -> list[str]:
        folder.write(located(plan), cells)
        return [each.name for each in cells]

    return _run(folder, execution, folder.exists() and asked.trust, prepare)


def _checked(form: type[Form], values: Facts, flags: Sequence[Flag]) -> Form:
    try:
        return form.model_validate(values)
    except ValidationError as error:
        raise invalid(error, lambda place: shown(place, flags)) from error


def _again(asked: SweepArgs) -> SweepFolder:
    """A sweep to go on with as it is."""
    given = asked.model_dump(exclude_unset=True, exclude={"sweep", "trust"})
    for name in given:
        flag = f"--{name.replace('_', '-')}"
        raise UserError(f"{asked.sweep} is the folder of a sweep, which keeps its settings; leave out {flag}")
    folder = SweepFolder(Path(asked.sweep))
    _check_trusted(folder, asked.trust)
    return folder


def _check_trusted(folder: SweepFolder, trust: bool) -> None:
    """Refuses a folder that says whose code to run, unless the user does."""
    if not trust and (foreign := folder.foreign()):
        raise UserError(f"{folder.path} names {foreign}, whose code would be run. If you trust it, add --trust")


def _planned(asked: SweepArgs) -> tuple[SweepFolder, Sweep]:
    """A sweep by a file and flags."""
    if not asked.sweep and not asked.families:
        raise UserError(
            "Which sweep? For example: posterity sweep --families item-search random-mdp --methods blrl boss --seeds 4 "
            f"--out runs/sweep; or FILE.toml, or one of: {', '.join(packaged())}"
        )
    values = read_sweep(asked.sweep) if asked.sweep else {}
    if asked.out is None:
        raise UserError(f"Where to? For example: --out runs/{Path(asked.sweep or 'sweep').stem}")
    given = asked.model_dump(exclude_none=True, exclude_unset=True, exclude={"sweep", "out", "trust"})
    budget = {name: given.pop(name) for name in BUDGET if name in given}
    if asked.sweep:
        narrowed = {name: _only(name, given.pop(name), values) for name in ("families", "methods") if name in given}
        values |= narrowed
    values = {**values, **given, "settings": {**values.get("settings", {}), **budget}}
    return SweepFolder(asked.out), checked_sweep(values, asked.sweep)


def _only(name: str, wanted: Sequence[str], values: Facts) -> list[object]:
    """Those of a file's families or methods that were asked for; one that it has not is added."""
    there = {_called(each): each for each in values.get(name, ())}
    return [there.get(word, word) for word in wanted]


def _called(entry: object) -> str:
    return entry if isinstance(entry, str) else Arm.model_validate(entry).called


def _run(folder: SweepFolder, execution: Execution, trust: bool, prepare: Callable[[], Sequence[str]]) -> int:
    """Drives the sweep to its end, and says how it ended."""
    from posterity.experiment.stop import Stop
    from posterity.experiment.sweep.drive import check_finished, drive, executor_for
    from posterity.experiment.sweep.table import Display, lines, summary

    console, shown_path = terminal(), shlex.quote(_near(folder.path))
    with folder.driven():
        names = prepare()
        with Stop() as stop, Display(console) as display:
            ended = drive(
                folder, names, lambda: executor_for(folder, execution), display, stop.reason, execution.retries
            )
    if any(each.state not in ("done", "failed") for each in ended.values()):
        again = " ".join(["posterity sweep", shown_path, *_flags(execution), *(["--trust"] if trust else [])])
        console.print(f"Stopped ({summary(ended)}). Go on with: {again}", markup=False)
        return 130
    if any(each.state == "failed" for each in ended.values()):
        lines(ended, Terminal())
    check_finished(folder, ended)
    console.print(f"Done: {shown_path}, {len(ended)} cells. See it with: posterity report {shown_path}", markup=False)
    return 0


def _flags(execution: Execution) -> list[str]:
    """The execution as flags, without what is the default anyway."""
    words: list[str] = []
    for name, value in execution.model_dump(exclude_defaults=True).items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name}", *(f"{each:g}" if isinstance(each, float) else shlex.quote(str(each)) for each in values)]
    return words


def _near(path: Path) -> str:
    """A path as short as it can be said from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) and path != Path.cwd() else str(path)


class FolderArgs(Settings):
    """About one sweep."""

    folder: Path = argument(..., "The folder of the sweep.")


class CellsArgs(FolderArgs):
    """Shows how far a sweep is, from any machine that sees its folder."""

    cells: bool = setting(False, "A line for every cell instead of one for each family and method.")


class StopArgs(FolderArgs):
    """Asks the workers of a sweep, wherever they are, to save their cells and leave."""


class CellArgs(FolderArgs):
    """Runs one cell in this process, begun or resumed: for schedulers that posterity knows nothing of."""

    cell: str = argument(..., "The cell: FAMILY/METHOD/SEEDS, as `posterity sweep status DIR --cells` has it.")
    trust: bool = setting(False, "The sweep's families or methods are not posterity's: runs their code.")


class PublishArgs(FolderArgs):
    """Copies the finished cells, the seeds of each family and method as one run, without checkpoints and compressed."""

    out: Path | None = setting(None, "The folder to make, or to add to.")


def status(args: Sequence[str]) -> int:
    """Prints the table."""
    asked = parse(CellsArgs, args, "sweep status")
    from posterity.experiment.sweep.table import lines

    folder = SweepFolder(asked.folder)
    plan = folder.sweep()
    found = {name: folder.status(name, plan) for name in folder.names()}
    if asked.cells:
        for name, each in found.items():
            about = each.reason or (f"{each.doing}, {each.host}" if each.state == "running" else "")
            terminal().print(f"{each.state:8} {name}{about and f': {about}'}", markup=False)
        return 0
    lines(found, Terminal())
    return 0


def stop(args: Sequence[str]) -> int:
    """Leaves the word for all workers."""
    folder = SweepFolder(parse(StopArgs, args, "sweep stop").folder)
    plan = folder.sweep()
    running = sum(folder.status(name, plan).state == "running" for name in folder.names())
    folder.stop.touch()
    terminal().print(f"{running} workers were asked to save and leave. Go on with: posterity sweep {folder.path}")
    return 0


def cell(args: Sequence[str]) -> int:
    """One cell, in this process."""
    asked = parse(CellArgs, args, "sweep cell")
    from posterity.experiment.stop import Stop
    from posterity.experiment.sweep.cell import run_cell

    folder, console = SweepFolder(asked.folder), terminal()
    _check_trusted(folder, asked.trust)
    folder.config(asked.cell)
    with Stop() as why:
        state = run_cell(folder.path, asked.cell, why.reason, patience=0.0)
    reason = folder.said(asked.cell).reason
    if state == "failed":
        raise UserError(f"{asked.cell}: {reason}")
    if state == "running":
        raise UserError(f"{asked.cell} is in the hands of another worker")
    console.print(f"{asked.cell}: {state}{reason and f' ({reason})'}", markup=False)
    return 0 if state == "done" else 130


def publish(args: Sequence[str]) -> int:
    """Joins the cells of each family and method into `out`, those that are finished."""
    asked = parse(PublishArgs, args, "sweep publish")
    if asked.out is None:
        raise UserError("Where to? For example: posterity sweep publish runs/table1 --out results/table1")
    from posterity.report.join import join

    console = terminal()
    for group, runs in finished(asked.folder, console.print).items():
        out = asked.out / group.replace("/", "-")
        if out.exists():
            console.print(f"{out} is there already", markup=False)
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        config = join(runs, out, compact=True)
        console.print(f"{out}: {config['seeds']} seeds", markup=False)
    return 0


def finished(path: Path, say: Callable[[str], None]) -> dict[str, list[Path]]:
    """The runs of a sweep's finished cells by family and method, as the sweep has them; names the others."""
    folder = SweepFolder(path)
    plan, groups = folder.sweep(), dict[str, list[tuple[int, Path]]]()
    lacking: list[str] = []
    for name in folder.names():
        if folder.status(name, plan).state == "done":
            first = int(name.rpartition("/")[2].split("-")[1])
            groups.setdefault(group_of(name), []).append((first, _shown(path, name)))
        else:
            lacking.append(name)
    if lacking:
        few = ", ".join(lacking[:6]) + (f" and {len(lacking) - 6} more" if len(lacking) > 6 else "")
        say(f"{path}: not finished, and left out: {few}")
    if not groups:
        raise UserError(f"{path} has no finished cell yet; see: posterity sweep status {path}")
    order = {group: place for place, group in enumerate(groups_of(plan))}
    return {
        group: [run for _, run in sorted(groups[group])]
        for group in sorted(groups, key=lambda group: order.get(group, len(order)))
    }


def _shown(path: Path, name: str) -> Path:
    """The run of a cell, by a path as it was typed."""
    return path / "cells" / name
