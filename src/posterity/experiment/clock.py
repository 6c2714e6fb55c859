"""How far a run is, how fast it goes, and how long the rest will take."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

from posterity.experiment.checkpoint import Position
from posterity.experiment.config import RunConfig

BARS = "▁▂▃▄▅▆▇█"
EARLY = 0.1  # of an iteration: before that its own pace says little
SPARKS = 24  # iterations that a sparkline shows


class Pace:
    """How much of a run is done, and how long the rest will take.

    The first `at_random` iterations of a run are left out of the estimate: most methods play them at random, which
    takes far less time than planning. Compiling is left out too, since it happens once. An iteration that is under way
    counts as soon as it is slower than those before it.
    """

    def __init__(self, config: RunConfig, position: Position, at_random: int = 1) -> None:
        self.at_random = at_random
        self.checkpoint: float | None = None  # when the last one was written
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
        if self._planned():
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
        paces = self._paces()
        return max(paces) * rest if paces else None

    def _planned(self) -> bool:
        """Whether the present iteration is one to estimate from."""
        return self.task > 0 or self.iteration >= self.at_random

    def _paces(self) -> list[float]:
        """Seconds of an iteration, by those that are done and by the present one."""
        paces = [sum(self.recent) / len(self.recent)] if self.recent else []
        if self.fraction >= EARLY and self._planned():
            paces.append((time.monotonic() - self.mark) / self.fraction)
        return paces

    def place(self) -> str:
        """Task and iteration, as people count."""
        task = f"task {self.task + 1}/{self.config.tasks}"
        return f"{task}, iteration {self.iteration + 1}/{self.config.iterations}"

    def speed(self) -> float | None:
        """Steps a second, of all lanes together; None while there is nothing to tell it from."""
        paces = self._paces()
        return self.steps * self.config.seeds / max(paces) if paces and max(paces) > 0 else None

    def saved(self) -> None:
        """A checkpoint was written."""
        self.checkpoint = time.monotonic()

    def since_saved(self) -> str:
        """How old the last checkpoint is."""
        if self.checkpoint is None:
            return ""
        return f"saved {duration(time.monotonic() - self.checkpoint)} ago"


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def time_left(seconds: float | None) -> str:
    """The time left. Random play says nothing of it, so that it is told once an iteration with plans was timed."""
    return "estimating the time left" if seconds is None else f"about {duration(seconds)} left"


def sparkline(values: Sequence[float]) -> str:
    """The last numbers as small bars, from the least of them to the greatest."""
    shown = [value for value in values if math.isfinite(value)][-SPARKS:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high <= low:
        return BARS[0] * len(shown)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in shown)
