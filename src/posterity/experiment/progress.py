"""What a run shows while it works: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from posterity.experiment.checkpoint import Position
from posterity.experiment.config import RunConfig

PLAIN_SECONDS = 5.0  # between two plain lines


class Progress(Protocol):
    """Told where a run starts and of every iteration."""

    def start(self, config: RunConfig, position: Position) -> None:
        """The run begins, or goes on, at `position`."""
        ...

    def note(self, text: str) -> None:
        """Something to say once."""
        ...

    def advance(self, task: int, iteration: int, mean_return: float) -> None:
        """One iteration of all lanes is done."""
        ...

    def close(self) -> None:
        """The session is over, whatever ended it."""
        ...


class Quiet:
    """Shows nothing."""

    def start(self, config: RunConfig, position: Position) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def advance(self, task: int, iteration: int, mean_return: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Live:
    """One line that changes: task, iteration, return, time left."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("return {task.fields[mean]:>8}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
        )
        self.bar = Bar(*columns, console=console)
        self.line = TaskID(0)
        self.config: RunConfig | None = None

    def start(self, config: RunConfig, position: Position) -> None:
        """Shows the bar."""
        self.config = config
        self.line = self.bar.add_task(
            f"{config.family} {config.method}",
            total=config.tasks * config.iterations,
            completed=position.task * config.iterations + position.iteration,
            mean="",
        )
        self.bar.start()

    def note(self, text: str) -> None:
        """A line above the bar."""
        self.bar.console.print(text, highlight=False, soft_wrap=True)

    def advance(self, task: int, iteration: int, mean_return: float) -> None:
        """Moves the bar."""
        assert self.config is not None
        where = f"task {task + 1}/{self.config.tasks} iteration {iteration + 1}/{self.config.iterations}"
        label = f"{self.config.family} {self.config.method}: {where}"
        self.bar.update(self.line, advance=1, description=label, mean=f"{mean_return:.3g}")

    def close(self) -> None:
        """Leaves the last state of the bar standing."""
        self.bar.stop()


class Plain:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.config: RunConfig | None = None
        self.began = self.told = time.monotonic()
        self.done = self.total = self.first = 0

    def start(self, config: RunConfig, position: Position) -> None:
        """Remembers where the session began, to foretell when it ends."""
        self.config = config
        self.began = self.told = time.monotonic()
        self.total = config.tasks * config.iterations
        self.first = self.done = position.task * config.iterations + position.iteration

    def note(self, text: str) -> None:
        """Prints it."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def advance(self, task: int, iteration: int, mean_return: float) -> None:
        """Prints if it has been quiet for a while, and at the end."""
        assert self.config is not None
        self.done += 1
        now = time.monotonic()
        if now - self.told < PLAIN_SECONDS and self.done < self.total:
            return
        self.told = now
        left = (now - self.began) / (self.done - self.first) * (self.total - self.done)
        self.console.print(
            f"{self.config.family} {self.config.method}: task {task + 1}/{self.config.tasks}, "
            f"iteration {iteration + 1}/{self.config.iterations}, return {mean_return:.3g}, "
            f"{now - self.began:.0f} s, about {left:.0f} s left",
            highlight=False,
            soft_wrap=True,
        )

    def close(self) -> None:
        """Nothing to tidy."""


def progress_for(console: Console) -> Progress:
    """Live in a terminal, plain elsewhere."""
    return Live(console) if console.is_terminal else Plain(console)
