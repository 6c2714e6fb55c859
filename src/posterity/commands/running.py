"""`posterity run | resume`: learning, and going on with it."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from posterity.commands.arguments import Flag, Group, flags_of, option, parse, read, seconds, shown, terminal, typed
from posterity.errors import UserError
from posterity.experiment.config import RunConfig, checked, merged, resolve
from posterity.experiment.folder import RunFolder
from posterity.experiment.progress import progress_for
from posterity.experiment.run import Outcome, check, guarded, lifelong
from posterity.settings import Settings, argument, setting

START_HERE = "what people change first"
FIRST = (
    "method",
    "preset",
    "tasks",
    "iterations",
    "steps-per-iteration",
    "seeds",
    "seed",
    "out",
    "time-limit",
    "planner.horizon",
)


class RunArgs(Settings):
    """Where to and how long to run."""

    out: Path | None = setting(None, "Folder of the run; if not given, the next free one in runs/.")
    time_limit: str | None = setting(None, "Stop cleanly after this long: 90s, 25m, 1.5h.")


def run(args: Sequence[str]) -> int:
    """A new run. Family, method and preset are read first: they decide which settings there are, and their defaults."""
    family, rest = _family(args)
    if family is None:  # there is help to be had without one
        return _general_help()
    config = resolve(
        family, option(args, "--method"), option(args, "--preset") or RunConfig.model_fields["preset"].default
    )
    groups = _groups(config)
    values = read(groups, [family, *rest], "run", f"Learns a stream of tasks of {family} by {config.method}.")
    asked = RunArgs.model_validate({name: values.pop(name) for name in RunArgs.model_fields if name in values})
    flags = [flag for group in groups for flag in group.flags]
    config = checked(type(config), merged(config.model_dump(), values), lambda place: shown(place, flags))
    console = terminal()
    return tell(start(config, asked.out, seconds(asked.time_limit), typed("run", args), console), console)


def _family(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """The family and the other arguments; no family, if only help is asked for.

    Before the family only flags that every run has can be read: which others there are, it decides.
    """
    known = {f"--{flag.name}": flag.field.annotation is bool for flag in _common()}
    index = 0
    while index < len(args) and args[index].startswith("-"):
        word, equals, _ = args[index].partition("=")
        if word in ("-h", "--help"):
            return None, []
        if word not in known and word.replace("--no-", "--", 1) not in known:
            raise UserError(f"The family comes before '{word}': posterity run FAMILY {word} ...")
        index += 1 if equals or known.get(word, True) else 2
    if index < len(args):
        return args[index], [*args[:index], *args[index + 1 :]]
    raise UserError("Which family? For example: posterity run item-search. All of them: posterity families")


def _common() -> list[Flag]:
    """The flags that every run has."""
    return [*flags_of(RunConfig), *flags_of(RunArgs)]


def _groups(config: RunConfig) -> list[Group]:
    """The flags of a run: first those that people change first, then the others by what they are about."""
    agent = type(config.agent)
    parts = {name: field.annotation for name, field in agent.model_fields.items()}
    about = {
        "run": "",
        f"method {config.method}": _about(agent),
        **{name: _about(part) for name, part in parts.items()},
    }
    about["environment"] = _about(type(config.env))
    groups: dict[str, list[Flag]] = {title: [] for title in (START_HERE, *about)}
    for flag in [*flags_of(type(config), config), *flags_of(RunArgs)]:
        if flag.name in FIRST or flag.positional:
            title = START_HERE
        elif flag.place[0] == "agent":
            title = flag.place[1] if len(flag.place) > 2 else f"method {config.method}"
        else:
            title = "environment" if flag.place[0] == "env" else "run"
        groups[title].append(flag)
    groups[START_HERE].sort(key=lambda flag: FIRST.index(flag.name) if flag.name in FIRST else -1)
    return [Group(title, about.get(title, ""), flags) for title, flags in groups.items() if flags]


def _general_help() -> int:
    """The help that can be had without a family."""
    flags = [flag._replace(default=None) for flag in _common()]
    some = [flag for flag in flags if flag.name in FIRST or flag.positional]
    rest = [flag for flag in flags if flag not in some]
    about = "Learns a stream of tasks. Which other settings there are depends on the family and the method; defaults "
    about += "come from the preset. See them with: posterity run FAMILY [--method METHOD] [--preset PRESET] --help"
    read([Group(START_HERE, "", some), Group("run", "", rest)], ["--help"], "run", about)
    return 0


def _about(kind: Any) -> str:
    """What a class of settings is about, in the words of its docstring."""
    return (kind.__doc__ or "").strip() if isinstance(kind, type) and issubclass(kind, Settings) else ""


class ResumeArgs(Settings):
    """Goes on with a run that was stopped."""

    folder: Path = argument(..., "The folder of the run.")
    time_limit: str | None = setting(None, "Stop cleanly after this long: 90s, 25m, 1.5h.")


def resume(args: Sequence[str]) -> int:
    """Goes on with a run."""
    asked = parse(ResumeArgs, args, "resume")
    limit, console = seconds(asked.time_limit), terminal()
    folder, config = RunFolder.reopen(asked.folder, typed("resume", args))
    return tell(_session(config, folder, limit, console), console)


def start(config: RunConfig, out: Path | None, limit: float | None, command: str, console: Console) -> Outcome:
    """A new run, into `out` or the next free folder below runs/."""
    check(config)
    path = out or next_folder(f"{config.family}-{config.method}".replace(":", "-"))
    return _session(config, RunFolder.create(path, config, command), limit, console)


def compare(
    family: str, methods: Sequence[str], changes: Mapping[str, Any], out: Path, command: str, console: Console
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
        console.print(f"Done: {name}. See it with: posterity report {name}")
        return 0
    console.print(f"Stopped ({outcome.reason}). Go on with: posterity resume {name}")
    return 130 if outcome.reason == "interrupted" else 0  # what a shell reports for a program ended by Ctrl-C


def next_folder(name: str) -> Path:
    """The first of runs/NAME-001, runs/NAME-002, ... that is not there yet."""
    number = 1
    while (path := Path("runs") / f"{name}-{number:03d}").exists():
        number += 1
    return path


def _session(config: RunConfig, folder: RunFolder, limit: float | None, console: Console) -> Outcome:
    if folder.position().finished:
        folder.close()
        return Outcome(folder.path, True, "")
    progress = progress_for(console)
    with Stop(limit) as stop:
        try:
            return guarded(folder, lambda: lifelong(config, folder, progress, stop.reason))
        finally:
            progress.close()


class Stop:
    """Why to stop: the clock, or a signal. A second signal ends the program at once."""

    def __init__(self, limit: float | None) -> None:
        self.until = None if limit is None else time.monotonic() + limit
        self.signalled = False
        self.old: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.old[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: object) -> None:
        self.signalled = True
        signal.signal(number, self.old[number])

    def reason(self) -> str:
        """Empty while there is no reason to stop."""
        if self.signalled:
            return "interrupted"
        return "time limit" if self.until is not None and time.monotonic() >= self.until else ""
