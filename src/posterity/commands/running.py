"""`posterity run | resume | demo`: learning, and going on with it."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from posterity.commands.arguments import option, parse, seconds, terminal, typed
from posterity.commands.listing import draw_tasks
from posterity.commands.reporting import write_report
from posterity.errors import UserError
from posterity.experiment.config import RunConfig, resolve
from posterity.experiment.progress import progress_for
from posterity.experiment.folder import RunFolder
from posterity.experiment.run import Outcome, check, guarded, lifelong
from posterity.families import FAMILIES


def run(args: Sequence[str]) -> int:
    """A new run. Family, method and preset are read first: they decide which settings there are, and their defaults."""
    names = RunConfig.model_fields
    method = option(args, "--method")
    preset = option(args, "--preset") or names["preset"].default
    family = _family(args)
    config = resolve(family, method, preset)
    form = _run_form(type(config))
    asked = parse(form, args, "run", form(config=config))
    if asked.config.family != family:  # an option's value was taken for the family
        raise UserError(f"Which family, '{family}' or '{asked.config.family}'? Put it first: posterity run FAMILY ...")
    console = terminal()
    return tell(start(asked.config, asked.out, seconds(asked.time_limit), typed("run", args), console), console)


def _family(args: Sequence[str]) -> str:
    """The first word that no option takes; if there is none, a family's name after a flag, which takes nothing."""
    words = [(arg, args[index - 1] if index else "") for index, arg in enumerate(args) if not arg.startswith("-")]
    free = [arg for arg, before in words if not before.startswith("--") or "=" in before]
    named = [arg for arg, _ in words if arg in FAMILIES or ":" in arg]
    for found in ([arg for arg in free if arg in named], free, named):
        if found:
            return found[0]
    if "--help" in args or "-h" in args:
        return RunConfig.model_fields["family"].default
    raise UserError("Which family? For example: posterity run item-search. All of them: posterity families")


def _run_form(config_type: Any) -> Any:
    """The arguments of `run`: the settings of this family and method, and where and how long to run."""
    return make_dataclass(
        "RunArgs",
        [
            ("config", Annotated[config_type, tyro.conf.arg(name="")]),
            (
                "out",
                Annotated[Path | None, tyro.conf.arg(help="Folder of the run; default: the next free one in runs/.")],
                field(default=None),
            ),
            (
                "time_limit",
                Annotated[str | None, tyro.conf.arg(help="Stop cleanly after this long: 90s, 25m, 1.5h.")],
                field(default=None),
            ),
        ],
        namespace={"__doc__": "Learns a stream of tasks."},
    )


@dataclass(frozen=True)
class ResumeArgs:
    """Goes on with a run that was stopped."""

    folder: tyro.conf.Positional[Path]
    """The folder of the run."""
    time_limit: str | None = None
    """Stop cleanly after this long: 90s, 25m, 1.5h."""


def resume(args: Sequence[str]) -> int:
    """Goes on with a run."""
    asked: ResumeArgs = parse(ResumeArgs, args, "resume")
    limit, console = seconds(asked.time_limit), terminal()
    folder, config = RunFolder.reopen(asked.folder, typed("resume", args))
    return tell(_session(config, folder, limit, console), console)


@dataclass(frozen=True)
class DemoArgs:
    """A tour: item search learned with and without transfer, then a pendulum under changing gravity; with reports."""

    out: Path | None = None
    """Folder for the runs and the reports; default: the next free runs/demo-NNN."""
    tasks: int = 100
    """Houses to search."""
    seeds: int = 3
    """Independent learners per method, in the houses."""
    pendulums: int = 3
    """Pendulums to swing up, each under another gravity; 0 leaves this part out."""


def demo(args: Sequence[str]) -> int:
    """Two methods on the same houses, then VBLRL on a few pendulums, each with its report."""
    asked: DemoArgs = parse(DemoArgs, args, "demo")
    console = terminal()
    out = asked.out or next_folder("demo")
    houses = {"tasks": asked.tasks, "seeds": asked.seeds}
    swings = {"tasks": max(asked.pendulums, 1)}
    resolve("item-search", "blrl", "quick", houses)  # refuses bad numbers before the tour begins
    if asked.pendulums < 0:
        raise UserError(f"pendulums is {asked.pendulums}; need 0 or more")
    console.print("A house of four rooms, and one kind of object to find. Where it lies is hidden.\n")
    draw_tasks("item-search", 0, 1, console)
    console.print("blrl takes what the houses before have taught as its prior; boss begins every house anew.")
    paths = compare("item-search", ("blrl", "boss"), houses, out, typed("demo", args), console)
    console.print()
    write_report(paths, out / "report", f"{min(11, asked.tasks)}-", 3, console)
    if asked.pendulums:
        swing(swings, out, typed("demo", args), console)
    return 0


def swing(changes: Mapping[str, Any], out: Path, command: str, console: Console) -> None:
    """VBLRL on pendulums under changing gravity, and how it began in each."""
    console.print(
        "\nA pendulum to swing up and hold; in each task another gravity, which nobody tells. Best is about -150."
    )
    [path] = compare("pendulum-gravity", ("vblrl",), changes, out, command, console)
    from posterity.report.metrics import read_run

    run = read_run(path)
    for task, returns in enumerate(run.returns.mean(axis=0), 1):
        how = "random play" if task == 1 else "planned with what the tasks before have taught"
        console.print(f"pendulum {task}: first episode {returns[0]:.0f} ({how}), last {returns[-1]:.0f}")
    write_report([path], path / "report", "1-", 3, console)


def start(config: RunConfig, out: Path | None, limit: float | None, command: str, console: Console) -> Outcome:
    """A new run, into `out` or the next free folder below runs/."""
    check(config)
    path = out or next_folder(f"{config.family.replace(':', '-')}-{config.method}")
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
