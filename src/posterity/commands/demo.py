"""`posterity demo`: a tour of four minutes on a laptop."""

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
    """A tour: item search with and without transfer, hidden goals on a plane, and a pendulum under changing gravity."""

    out: Path | None = setting(None, "Folder for the runs and the reports; if not given, the next free runs/demo-NNN.")
    tasks: int = setting(100, "Houses to search.", ge=1)
    seeds: int = setting(3, "Independent learners per method, in the houses.", ge=1)
    goals: int = setting(20, "Hidden goals to find on a plane, one in each task; 0 leaves this part out.", ge=0)
    pendulums: int = setting(3, "Pendulums to swing up, each under another gravity; 0 leaves this part out.", ge=0)


def demo(args: Sequence[str]) -> int:
    """Two methods on the same houses, then VBLRL on a plane and on a few pendulums, each with its report."""
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
    if asked.goals:
        seek({"tasks": asked.goals}, out / "goals", typed("demo", args), console)
    if asked.pendulums:
        swing({"tasks": asked.pendulums}, out, typed("demo", args), console)
    return 0


def seek(changes: Facts, out: Path, command: str, console: Console) -> None:
    """VBLRL on a plane with hidden goals, and what it found at first and in the end."""
    console.print("\nA point on a plane looks for a goal that nobody shows: only steps into it are rewarded.\n")
    draw_tasks("point-goal", 0, 1, console)
    [path] = compare("point-goal", ("vblrl",), changes, out, command, console)
    from posterity.experiment.records import read_run

    first = read_run(path).returns[0, :, 0]  # the first episode of each task
    part = max(len(first) // 4, 1)
    early, late = first[:part].mean(), first[-part:].mean()
    console.print(
        f"first episode of a task: {early:.1f} with the first {part} goals, {late:.1f} with the last. A random walk "
        "earns 0.2; who knows where goals may be, 27 by guessing well and 43 at best."
    )
    write_report([path], path / "report", "1-", 1, console)


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
