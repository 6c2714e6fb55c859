"""The table of a sweep's cells: live in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from posterity.experiment.sweep.folder import STATES, State, Status
from posterity.experiment.sweep.plan import group_of

PLAIN_SECONDS = 30.0  # between two lines of summary, where there is no terminal
NAMED = 8  # cells whose reason is told below the table, at most
Statuses = Mapping[str, Status]


def summary(statuses: Statuses) -> str:
    """One line: how many cells are where, and how long the rest will take."""
    counts = Counter(status.state for status in statuses.values())
    order: tuple[State, ...] = ("done", "running", "waiting", "stopped", "failed")
    parts = [f"{counts[state]} {state}" for state in order if counts[state]]
    left = seconds_left(statuses)
    time_left = "" if left is None or not counts["running"] else f"; {spoken(left)} left"
    return f"{len(statuses)} cells: {', '.join(parts)}{time_left}"


def seconds_left(statuses: Statuses) -> float | None:
    """What the cells that are not done will take, as many at once as now; None while there is nothing to tell it from.

    A cell that has not begun is taken to need what others of its family and method need; if there are none, the mean.
    """
    needed: dict[str, float] = {}
    for name, status in statuses.items():
        if status.state == "done":
            needed[name] = status.wall
        elif status.state == "running" and status.left >= 0:
            needed[name] = status.wall + status.left
    if not needed:
        return None
    mean = sum(needed.values()) / len(needed)
    total = 0.0
    for name, status in statuses.items():
        if status.state in ("running", "waiting", "stopped"):
            alike = [seconds for other, seconds in needed.items() if group_of(other) == group_of(name)]
            guess = (sum(alike) / len(alike) if alike else mean) * (1 - status.share)
            total += status.left if status.state == "running" and status.left >= 0 else guess
    return total / max(1, sum(status.state == "running" for status in statuses.values()))


def spoken(seconds: float) -> str:
    """A duration in words, about."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def rendered(statuses: Statuses, height: int | None = None) -> RenderableType:
    """The table, a row for each family and method; with reasons below. `height`: lines that there is room for."""
    groups: dict[str, dict[str, Status]] = {}
    for name, status in statuses.items():
        groups.setdefault(group_of(name), {})[name] = status
    reasons = _reasons(statuses)
    shown, hidden = _fitting(groups, None if height is None else height - len(reasons) - 6)
    table = Table(box=None, pad_edge=False)
    for head in ("family", "method", *STATES[::-1], "now", "left"):
        table.add_column(head, justify="right" if head in STATES else "left", no_wrap=True)
    for group in shown:
        table.add_row(*_row(group, groups[group]))
    more = [f"and {hidden} more rows: posterity sweep status"] if hidden else []
    return Group(table, *more, *reasons, escape(summary(statuses)))


def _row(group: str, members: Statuses) -> list[str]:
    counts = Counter(status.state for status in members.values())
    family, _, method = group.partition("/")
    running = [status for status in members.values() if status.state == "running"]
    doing = running[0].doing + (f" (and {len(running) - 1} more)" if len(running) > 1 else "") if running else ""
    left = max((status.left for status in running), default=-1.0)
    numbers = [str(counts[state] or "") for state in STATES[::-1]]
    return [escape(family), escape(method), *numbers, escape(doing), spoken(left) if left >= 0 else ""]


def _reasons(statuses: Statuses) -> list[str]:
    told = [
        f"{name}: {status.state}, {status.reason}"
        for name, status in statuses.items()
        if status.reason and status.state in ("failed", "stopped")
    ]
    more = [f"and {len(told) - NAMED} more"] if len(told) > NAMED else []
    return [escape(line) for line in [*told[:NAMED], *more]]


def _fitting(groups: Mapping[str, Statuses], room: int | None) -> tuple[list[str], int]:
    """The rows that fit; where not all do, those at work and those in trouble come first."""
    names = list(groups)
    if room is None or len(names) <= max(room, 3):
        return names, 0
    rank = {"failed": 0, "running": 1, "stopped": 2, "waiting": 3, "done": 4}
    first = sorted(names, key=lambda name: min(rank[status.state] for status in groups[name].values()))
    kept = {*first[: max(room, 3)]}
    return [name for name in names if name in kept], len(names) - len(kept)


class Display:
    """Shows how far a sweep is."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        self.known: dict[str, State] = {}
        self.told = time.monotonic()

    def __enter__(self) -> Display:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def note(self, text: str) -> None:
        """Something to say once."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, statuses: Statuses) -> None:
        """The table; without a terminal, a line for every cell that ended and a summary now and then."""
        if self.live is not None:
            self.live.update(rendered(statuses, self.console.height))
            return
        ended = [(name, each) for name, each in statuses.items() if each.state in ("done", "failed")]
        for name, status in ended:
            if self.known.get(name) not in (None, status.state):
                self.note(f"{name}: {status.state}{status.reason and f', {status.reason}'}")
        self.known = {name: status.state for name, status in statuses.items()}
        if time.monotonic() - self.told >= PLAIN_SECONDS:
            self.told = time.monotonic()
            self.note(summary(statuses))


def lines(statuses: Statuses, console: Console, names: Sequence[str] = ()) -> None:
    """Prints the table once."""
    chosen = {name: statuses[name] for name in names} if names else statuses
    console.print(rendered(chosen), highlight=False)
