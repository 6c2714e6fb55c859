"""What a run shows while it works: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from posterity.experiment.checkpoint import Position
from posterity.experiment.clock import SPARKS, Pace, sparkline, time_left
from posterity.experiment.config import RunConfig

PLAIN_SECONDS = 5.0  # between two plain lines
STEP_SECONDS = 0.1  # between two moves of the bar within an iteration
COMPILING = {  # programs that take long to compile, by the name of their function: what is said of them
    "plan": "compiling the planner, about half a minute",
    "plan_backward": "compiling the planner for going back, about half a minute",
    "fit": "compiling the fit of a posterior, some seconds",
    "update_one": "compiling the update, some seconds",
}


class Progress(Protocol):
    """Told where a run starts, and of every step, iteration and compilation."""

    def start(self, config: RunConfig, position: Position, at_random: int = 1) -> None:
        """The run begins, or goes on, at `position`. Its first `at_random` iterations are played at random."""
        ...

    def note(self, text: str) -> None:
        """Something to say once."""
        ...

    def begin(self, task: int, iteration: int) -> None:
        """An iteration of all lanes begins."""
        ...

    def step(self, step: int) -> None:
        """A step of it begins."""
        ...

    def advance(self, mean_return: float) -> None:
        """It is done."""
        ...

    def saved(self) -> None:
        """A checkpoint was written."""
        ...

    def compiling(self, name: str) -> None:
        """A program begins to be compiled."""
        ...

    def compiled(self, name: str, seconds: float) -> None:
        """It is compiled."""
        ...

    def close(self) -> None:
        """The session is over, whatever ended it."""
        ...


class Quiet:
    """Shows nothing."""

    def start(self, config: RunConfig, position: Position, at_random: int = 1) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def begin(self, task: int, iteration: int) -> None:
        """Nothing."""

    def step(self, step: int) -> None:
        """Nothing."""

    def advance(self, mean_return: float) -> None:
        """Nothing."""

    def saved(self) -> None:
        """Nothing."""

    def compiling(self, name: str) -> None:
        """Nothing."""

    def compiled(self, name: str, seconds: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _TwoLines(Bar):
    """The bar, and a line of facts below it."""

    facts = Text("")

    def get_renderables(self) -> Iterable[RenderableType]:
        """Both."""
        yield from super().get_renderables()
        yield self.facts


class Live:
    """Two lines that change: where the run is, and below it returns, speed, time left and the last checkpoint."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TaskProgressColumn(), TimeElapsedColumn())
        self.bar = _TwoLines(*columns, console=console)
        self.line = TaskID(0)
        self.pace: Pace | None = None
        self.name, self.shown, self.doing = "", 0.0, ""
        self.returns: deque[float] = deque(maxlen=SPARKS)

    def start(self, config: RunConfig, position: Position, at_random: int = 1) -> None:
        """Shows the bar."""
        self.pace = Pace(config, position, at_random)
        self.name = escape(f"{config.family} {config.method}")
        self.line = self.bar.add_task(self.name, total=self.pace.total, completed=self.pace.done)
        self.bar.start()

    def note(self, text: str) -> None:
        """A line above the bar."""
        self.bar.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, task: int, iteration: int) -> None:
        """Names the iteration."""
        if self.pace is not None:
            self.pace.begin(task, iteration)
            self._show()

    def step(self, step: int) -> None:
        """Moves the bar, a few times a second."""
        if self.pace is not None:
            self.pace.step(step)
            if time.monotonic() - self.shown >= STEP_SECONDS:
                self._show()

    def advance(self, mean_return: float) -> None:
        """Moves the bar to the end of the iteration."""
        if self.pace is not None:
            self.pace.advance()
            self.returns.append(mean_return)
            self._show()

    def saved(self) -> None:
        """Remembers when."""
        if self.pace is not None:
            self.pace.saved()
            self._show()

    def compiling(self, name: str) -> None:
        """Says so in the place of the time left."""
        self.doing = COMPILING.get(name, "")
        self._show()

    def compiled(self, name: str, seconds: float) -> None:
        """The time left is told again."""
        if self.pace is not None:
            self.pace.compiled(seconds)
        self.doing = ""
        self._show()

    def close(self) -> None:
        """Leaves the last state of the bar standing."""
        self.bar.stop()

    def _show(self) -> None:
        if self.pace is None:
            return
        self.shown = time.monotonic()
        speed, parts = self.pace.speed(), list[str]()
        if self.returns:
            drawn = sparkline(self.returns) if self.bar.console.encoding.startswith("utf") else ""
            parts.append(f"return {self.returns[-1]:.3g} {drawn}".rstrip())
        parts.append(f"{speed:.3g} steps/s" if speed else "")
        parts += [self.doing or time_left(self.pace.left()), self.pace.since_saved()]
        self.bar.facts = Text("  " + ", ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")
        label = f"{self.name}: {self.pace.place()}"
        self.bar.update(self.line, completed=self.pace.done + self.pace.fraction, description=label)


class Plain:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.pace: Pace | None = None
        self.name, self.told, self.said = "", 0.0, ""

    def start(self, config: RunConfig, position: Position, at_random: int = 1) -> None:
        """Remembers where the session began, to foretell when it ends."""
        self.pace, self.told = Pace(config, position, at_random), time.monotonic()
        self.name = f"{config.family} {config.method}"

    def note(self, text: str) -> None:
        """Prints it."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, task: int, iteration: int) -> None:
        """Remembers it."""
        if self.pace is not None:
            self.pace.begin(task, iteration)

    def step(self, step: int) -> None:
        """Prints if it has been quiet for a while."""
        if self.pace is not None:
            self.pace.step(step)
            if time.monotonic() - self.told >= PLAIN_SECONDS:
                self._print(f", step {step}/{self.pace.steps}{self.said}")

    def advance(self, mean_return: float) -> None:
        """Prints if it has been quiet for a while, and at the end."""
        if self.pace is None:
            return
        self.pace.advance()
        self.said = f", return {mean_return:.3g}"
        if time.monotonic() - self.told >= PLAIN_SECONDS or self.pace.done >= self.pace.total:
            self._print(self.said)

    def saved(self) -> None:
        """Remembers when."""
        if self.pace is not None:
            self.pace.saved()

    def compiling(self, name: str) -> None:
        """Prints what takes long."""
        if self.pace is not None and name in COMPILING:
            self.note(f"{self.name}: {COMPILING[name]}")
            self.told = time.monotonic()

    def compiled(self, name: str, seconds: float) -> None:
        """Leaves it out of the time left."""
        if self.pace is not None:
            self.pace.compiled(seconds)

    def close(self) -> None:
        """Nothing to tidy."""

    def _print(self, facts: str) -> None:
        if self.pace is None:
            return
        self.told = time.monotonic()
        speed = self.pace.speed()
        told = [f"{speed:.3g} steps/s" if speed else "", self.pace.since_saved(), time_left(self.pace.left())]
        rest = "".join(f", {each}" for each in told if each)
        self.note(f"{self.name}: {self.pace.place()}{facts}, {self.pace.elapsed:.0f} s{rest}")


class Notes:
    """Tells in plain lines what is compiled, for whatever is no run."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def compiling(self, name: str) -> None:
        """Prints what takes long."""
        if name in COMPILING:
            self.console.print(COMPILING[name])

    def compiled(self, name: str, seconds: float) -> None:
        """Nothing more to say."""


def progress_for(console: Console) -> Progress:
    """Live in a terminal, plain elsewhere."""
    return Live(console) if console.is_terminal else Plain(console)
