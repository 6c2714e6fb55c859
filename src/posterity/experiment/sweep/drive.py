"""Hands the cells of a sweep to workers until all are done, and says all the while how far they are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from posterity.errors import UserError
from posterity.experiment.sweep.executors import Execution, Executor, Local
from posterity.experiment.sweep.folder import Status, SweepFolder
from posterity.experiment.sweep.table import Display

LOOK, SHOW = 0.5, 1.0  # seconds to wait for a worker before looking around, and between two tables


def executor_for(folder: SweepFolder, execution: Execution) -> Executor:
    """The executor that was asked for."""
    if execution.executor == "ray":
        from posterity.experiment.sweep.on_ray import OnRay

        return OnRay(folder, execution)
    if execution.executor == "slurm":
        from posterity.experiment.sweep.on_slurm import OnSlurm

        return OnSlurm(folder, execution)
    return Local(folder, execution)


def drive(
    folder: SweepFolder,
    names: Sequence[str],
    make: Callable[[], Executor],
    display: Display,
    should_stop: Callable[[], str],
    retries: int,
) -> dict[str, Status]:
    """Runs all cells that are not done, in order; those that failed before are tried again.

    A worker that is lost is replaced, `retries` times for a cell. With a reason to stop, workers save and leave.
    """
    sweep = folder.sweep()
    found = {name: folder.status(name, sweep) for name in names}
    waiting = [name for name in names if found[name].state != "done"]
    folder.stop.unlink(missing_ok=True)
    for name in waiting:
        if found[name].state != "running":  # by another worker, whom the one we send will wait for
            folder.say(name, found[name]._replace(state="waiting", reason=""))
    if not waiting:
        return found
    executor = make()
    try:
        _Driver(folder, names, waiting, executor, display, retries).run(should_stop)
    finally:
        executor.close()
        folder.stop.unlink(missing_ok=True)
    return {name: folder.status(name, sweep) for name in names}


class _Driver:
    """Where the handing out stands."""

    def __init__(
        self,
        folder: SweepFolder,
        names: Sequence[str],
        waiting: list[str],
        executor: Executor,
        display: Display,
        retries: int,
    ) -> None:
        self.folder, self.names, self.waiting, self.executor = folder, names, waiting, executor
        self.display, self.retries = display, retries
        self.lost: Counter[str] = Counter()
        self.stopping, self.shown = False, 0.0

    def run(self, should_stop: Callable[[], str]) -> None:
        """Until nothing waits and no worker is at work."""
        while self.waiting or self.executor.busy():
            if not self.stopping and (should_stop() or self.folder.stop.exists()):
                self.stopping, self.waiting = True, []
                self.folder.stop.touch()
                self.executor.withdraw()
                self.display.note("Stopping: workers save their cells. Once more, and they are left to themselves.")
            while self.waiting and self.executor.room() > 0:
                self.executor.submit(self.waiting.pop(0))
            for ended in self.executor.wait(LOOK):
                self._ended(ended.name, ended.lost)
            self._show()
        self._show(now=True)

    def _show(self, now: bool = False) -> None:
        """Looks at all cells, at most once a second: there may be many, on a disk far away."""
        if now or time.monotonic() - self.shown >= SHOW:
            self.shown = time.monotonic()
            self.display.show({name: self.folder.said(name) for name in self.names})

    def _ended(self, name: str, lost: str) -> None:
        """Puts a cell back if its worker was lost, or could not have it."""
        status = self.folder.said(name)
        if self.stopping or status.state == "done" or (not lost and status.state in ("failed", "stopped")):
            return
        if lost:
            self.lost[name] += 1
            if self.lost[name] > self.retries:
                reason = f"its worker was lost {self.lost[name]} times, last: {lost}"
                self.folder.say(name, status._replace(state="failed", reason=reason))
                return
            self.display.note(f"{name}: worker lost ({lost}); the cell is resumed")
            self.folder.say(name, status._replace(state="waiting"))
            self.waiting.insert(0, name)
        else:  # another worker has it: one that `sweep cell` started, or of a job that is still in a queue
            self.waiting.append(name)


def check_finished(folder: SweepFolder, statuses: dict[str, Status]) -> None:
    """Refuses to call a sweep done whose cells have failed."""
    failed = [name for name, status in statuses.items() if status.state == "failed"]
    if failed:
        first = f"{failed[0]}: {statuses[failed[0]].reason}"
        raise UserError(
            f"{len(failed)} of {len(statuses)} cells failed, the others are done. {first}. "
            f"Its log: {folder.log(failed[0])}"
        )
