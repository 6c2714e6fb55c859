"""`posterity run | resume`: learning, and going on with it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from posterity.commands.arguments import TRUST, help_page, parse, read, seconds, shown, terminal, typed
from posterity.commands.run_flags import (
    GENERAL,
    TRACK,
    RunArgs,
    family_first,
    general_groups,
    run_groups,
    starting_point,
)
from posterity.experiment.config import RunConfig, checked, invalid, merged, resolve
from posterity.experiment.folder import RunFolder
from posterity.experiment.pace import announcement, may_be_slow, plan_seconds
from posterity.experiment.progress import progress_for
from posterity.experiment.run import AnyAgent, Outcome, check, guarded, lifelong
from posterity.experiment.source import begin_from, check_more_tasks, checked_source
from posterity.experiment.stop import Stop
from posterity.experiment.tracking import Tool, check_tools, tracked
from posterity.families.base import Family
from posterity.settings import Settings, argument, setting
from posterity.types import Facts


def run(args: Sequence[str]) -> int:
    """A new run. Family, method and preset are read first: they decide which settings there are, and their defaults."""
    words = family_first(args)
    if not words:
        print(help_page(general_groups(), "run", GENERAL))
        return 0
    config = starting_point(words)
    groups = run_groups(config)
    about = (
        f"Learns a stream of tasks. In brackets: what {config.method} has on {config.family}, preset {config.preset}."
    )
    values = {**read(groups, words, "run", about), "family": config.family}  # its one name, whatever was typed
    names = [field.alias or name for name, field in RunArgs.model_fields.items()]
    flags = [flag for group in groups for flag in group.flags]
    try:
        asked = RunArgs.model_validate({name: values.pop(name) for name in names if name in values})
    except ValidationError as error:
        raise invalid(error, lambda place: shown(place, flags)) from error
    config = checked(type(config), merged(config.model_dump(), values), lambda place: shown(place, flags))
    console = terminal()
    limit, command = seconds(asked.time_limit), typed("run", args)
    begun = start(config, asked.out, limit, command, console, asked.source, asked.trust, asked.track)
    return tell(begun, console)


class ResumeArgs(Settings):
    """Goes on with a run that was stopped, or with a finished one that is to meet more tasks."""

    folder: Path = argument(..., "The folder of the run.")
    tasks: int | None = setting(None, "Tasks to learn in all, those the run has met included.", ge=1)
    time_limit: str | None = setting(None, "Stop cleanly after this long: 90s, 25m, 1.5h.")
    trust: bool = setting(False, TRUST)
    track: tuple[Tool, ...] = setting((), TRACK)


def resume(args: Sequence[str]) -> int:
    """Goes on with a run."""
    asked = parse(ResumeArgs, args, "resume")
    limit, console = seconds(asked.time_limit), terminal()
    check_tools(asked.track)
    if asked.tasks is not None:
        check_more_tasks(asked.folder, asked.tasks, asked.trust)
    folder, config = RunFolder.reopen(asked.folder, typed("resume", args), asked.tasks, trusted=asked.trust)
    if folder.position().task >= config.tasks:
        name = shlex.quote(str(folder.path))
        more = f"posterity resume {name} --tasks {config.tasks + 1}"
        console.print(f"{name} has met its {config.tasks} tasks. Meet more with: {more}", markup=False)
        return 0
    return tell(_session(config, folder, limit, console, track=asked.track), console)


def start(
    config: RunConfig,
    out: Path | None,
    limit: float | None,
    command: str,
    console: Console,
    source: Path | None = None,
    trusted: bool = False,
    track: Sequence[Tool] = (),
) -> Outcome:
    """A new run, into `out` or the next free folder below runs/; from nothing, or from what `source` has learned."""
    check_tools(track)
    other = None if source is None else checked_source(source, config, trusted)
    ready = check(config, other.position.met if other else 0)
    for note in ready.notes:
        console.print(f"Note: {note}", markup=False)
    if may_be_slow(config, ready.agent):
        console.print("These are large plans: compiling one to see how long it takes ...")
        console.print(announcement(config, plan_seconds(config, ready.agent)) or "They are quick here.", markup=False)
    path = out or next_folder(re.sub(r"(\.py)?:|[/.]+", "-", f"{config.family}-{config.method}").strip("-"))
    folder = RunFolder.create(path, config, command, other and begin_from(other, config))
    return _session(config, folder, limit, console, (ready.family, ready.agent), track)


def compare(
    family: str, methods: Sequence[str], changes: Facts, out: Path, command: str, console: Console
) -> list[Path]:
    """The same stream of tasks for several methods, each in a folder of its own below `out`."""
    configs = [resolve(family, name, "quick", changes) for name in methods]
    outcomes = []
    for config in configs:
        outcomes.append(start(config, out / config.method, None, command, console))
        if not outcomes[-1].finished:
            tell(outcomes[-1], console)
            raise KeyboardInterrupt
    return [outcome.folder for outcome in outcomes]


def tell(outcome: Outcome, console: Console) -> int:
    """Says how the session ended, and the command that goes on from there."""
    name = shlex.quote(str(outcome.folder))
    if outcome.finished:
        console.print(f"Done: {name}. See it with: posterity report {name}", markup=False)
        return 0
    console.print(f"Stopped ({outcome.reason}). Go on with: posterity resume {name}", markup=False)
    return 130 if outcome.reason == "interrupted" else 0  # what a shell reports for a program ended by Ctrl-C


def next_folder(name: str) -> Path:
    """The first of runs/NAME-001, runs/NAME-002, ... that is not there yet."""
    number = 1
    while (path := Path("runs") / f"{name}-{number:03d}").exists():
        number += 1
    return path


def _session(
    config: RunConfig,
    folder: RunFolder,
    limit: float | None,
    console: Console,
    built: tuple[Family, AnyAgent] | None = None,
    track: Sequence[Tool] = (),
) -> Outcome:
    progress = tracked(progress_for(console), folder.path, track)
    with Stop(limit) as stop:
        try:
            return guarded(folder, lambda: lifelong(config, folder, progress, stop.reason, built))
        finally:
            progress.close()
