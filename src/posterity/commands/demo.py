"""`posterity demo`: a tour of three minutes on a laptop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from posterity.commands.arguments import parse, terminal, typed
from posterity.commands.listing import draw_tasks
from posterity.commands.reporting import write_report
from posterity.commands.running import compare, next_folder
from posterity.experiment.config import resolve
from posterity.settings import Settings, setting
from posterity.types import Facts


class DemoArgs(Settings):
    """A tour: item search learned with and without transfer, then a pendulum under changing gravity; with reports."""

    out: Path | None = setting(None, "Folder for the runs and the reports; if not given, the next free runs/demo-NNN.")
    tasks: int = setting(100, "Houses to search.", ge=1)
    seeds: int = setting(3, "Independent learners per method, in the houses.", ge=1)
    pendulums: int = setting(3, "Pendulums to swing up, each under another gravity; 0 leaves this part out.", ge=0)


def demo(args: Sequence[str]) -> int:
    """Two methods on the same houses, then VBLRL on a few pendulums, each with its report."""
    asked = parse(DemoArgs, args, "demo")
    console = terminal()
    out = asked.out or next_folder("demo")
    houses = {"tasks": asked.tasks, "seeds": asked.seeds}
    resolve("item-search", "blrl", "quick", houses)  # refuses bad numbers before the tour begins
    console.print("A house of four rooms, and one kind of object to find. Where it lies is hidden.\n")
    draw_tasks("item-search", 0, 1, console)
    console.print("blrl takes what the houses before have taught as its prior; boss begins every house anew.")
    paths = compare("item-search", ("blrl", "boss"), houses, out, typed("demo", args), console)
    console.print()
    write_report(paths, out / "report", f"{min(11, asked.tasks)}-", 3, console)
    if asked.pendulums:
        swing({"tasks": asked.pendulums}, out, typed("demo", args), console)
    return 0


def swing(changes: Facts, out: Path, command: str, console: Console) -> None:
    """VBLRL on pendulums under changing gravity, and how it began in each."""
    console.print(
        "\nA pendulum to swing up and hold; in each task another gravity, which nobody tells. Best is about -150."
    )
    [path] = compare("pendulum-gravity", ("vblrl",), changes, out, command, console)
    from posterity.experiment.records import read_run

    run = read_run(path)
    for task, returns in enumerate(run.returns.mean(axis=0), 1):
        how = "random play" if task == 1 else "planned with what the tasks before have taught"
        console.print(f"pendulum {task}: first episode {returns[0]:.0f} ({how}), last {returns[-1]:.0f}")
    write_report([path], path / "report", "1-", 3, console)
