"""What a run shows while it works: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from posterity.experiment.checkpoint import Position
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

    def start(self, config: RunConfig, position: Position) -> None:
        """The run begins, or goes on, at `position`."""
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

    def start(self, config: RunConfig, position: Position) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def begin(self, task: int, iteration: int) -> None:
        """Nothing."""

    def step(self, step: int) -> None:
        """Nothing."""

    def advance(self, mean_return: float) -> None:
        """Nothing."""

    def compiling(self, name: str) -> None:
        """Nothing."""

    def compiled(self, name: str, seconds: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Pace:
    """How much of a run is done, and how long the rest will take.

    The very first iteration of a run is left out of the estimate: most methods play it at random, which takes far less
    time than planning. Compiling is left out too, since it happens once. An iteration that is under way counts as soon
    as it is slower than those before it.
    """

    def __init__(self, config: RunConfig, position: Position) -> None:
        self.config, self.steps = config, config.steps_per_iteration
        self.began = time.monotonic()
        self.total = config.tasks * config.iterations
        self.done = position.task * config.iterations + position.iteration
        self.fraction = 0.0  # of the present iteration
        self.recent: deque[float] = deque(maxlen=max(1, config.iterations))  # seconds of the last iterations
        self.task = self.iteration = 0
        self.mark = self.began  # when the present iteration began; compiling moves it on

    def begin(self, task: int, iteration: int) -> None:
        """An iteration begins."""
        self.task, self.iteration = task, iteration
        self.fraction, self.mark = 0.0, time.monotonic()

    def step(self, step: int) -> None:
        """A step of it begins."""
        self.fraction = step / self.steps

    def advance(self) -> None:
        """It is done."""
        if (self.task, self.iteration) != (0, 0):
            self.recent.append(time.monotonic() - self.mark)
        self.done, self.fraction = self.done + 1, 0.0

    def compiled(self, seconds: float) -> None:
        """So long was taken by something that will not come again."""
        self.mark += seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self.began

    def left(self) -> float | None:
        """Seconds that the rest will take; None while there is nothing to estimate it from."""
        rest = self.total - self.done - self.fraction
        if rest <= 0:
            return 0.0
        paces = [sum(self.recent) / len(self.recent)] if self.recent else []
        if self.fraction > 0 and (self.task, self.iteration) != (0, 0):
            paces.append((time.monotonic() - self.mark) / self.fraction)
        return max(paces) * rest if paces else None

    def place(self) -> str:
        """Task and iteration, as people count."""
        task = f"task {self.task + 1}/{self.config.tasks}"
        return f"{task}, iteration {self.iteration + 1}/{self.config.iterations}"


class Live:
    """One line that changes: task, iteration, return, time left."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("return {task.fields[mean]:>8}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self.bar = Bar(*columns, console=console)
        self.line = TaskID(0)
        self.pace: Pace | None = None
        self.name, self.shown, self.doing = "", 0.0, ""

    def start(self, config: RunConfig, position: Position) -> None:
        """Shows the bar."""
        self.pace = Pace(config, position)
        self.name = escape(f"{config.family} {config.method}")
        self.line = self.bar.add_task(self.name, total=self.pace.total, completed=self.pace.done, mean="", left="")
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
            self.bar.update(self.line, mean=f"{mean_return:.3g}")
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
        left = self.doing or _left(self.pace.left())
        label = f"{self.name}: {self.pace.place()}"
        self.bar.update(self.line, completed=self.pace.done + self.pace.fraction, description=label, left=left)


class Plain:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.pace: Pace | None = None
        self.name, self.told, self.said = "", 0.0, ""

    def start(self, config: RunConfig, position: Position) -> None:
        """Remembers where the session began, to foretell when it ends."""
        self.pace, self.told = Pace(config, position), time.monotonic()
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
        left = _left(self.pace.left())
        self.note(f"{self.name}: {self.pace.place()}{facts}, {self.pace.elapsed:.0f} s{left and ', '}{left}")


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


def _left(seconds: float | None) -> str:
    """The time left, as far as it can be told."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"about {seconds:.0f} s left"
    return f"about {seconds / 60:.0f} min left" if seconds < 5400 else f"about {seconds / 3600:.1f} h left"


def progress_for(console: Console) -> Progress:
    """Live in a terminal, plain elsewhere."""
    return Live(console) if console.is_terminal else Plain(console)
