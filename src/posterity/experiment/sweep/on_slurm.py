"""Cells as jobs of Slurm, through submitit. A job that is preempted or out of time is requeued, and goes on.

submitit keeps what it hands to a job in `slurm/` below the sweep's folder, as pickles. They are never read here: what
came of a cell is in its status.
"""

from __future__ import annotations

import importlib
import shutil
import time
from pathlib import Path
from typing import Any, Protocol, cast

from posterity.errors import UserError
from posterity.experiment.sweep.executors import Ended, Execution, Executor
from posterity.experiment.sweep.folder import SweepFolder

GENERAL = ("timeout_min", "mem_gb", "nodes", "name")  # parameters of submitit; the others are Slurm's own
DAY = 24 * 60  # minutes that a job may take, unless --slurm timeout_min says otherwise


class Job(Protocol):
    """What is used of submitit's jobs."""

    @property
    def state(self) -> str:
        """In Slurm's words."""
        ...

    def done(self) -> bool:
        """Whether it has ended."""
        ...


class Work:
    """A cell, in a job. When Slurm takes the job's machine away, the same call is put into the queue again."""

    def __call__(self, path: str, name: str) -> str:
        """Brings the cell to its end."""
        from posterity.experiment.sweep.cell import run_cell

        return run_cell(Path(path), name)

    def __submitit_checkpoint__(self, path: str, name: str) -> object:
        """What to put into the queue: the cell's state is in its folder."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self, path, name)


class OnSlurm(Executor):
    """Hands cells to Slurm. `cluster` is `local` in tests: then submitit starts processes."""

    def __init__(self, folder: SweepFolder, execution: Execution, cluster: str = "slurm") -> None:
        self.folder, self.most = folder, execution.workers
        try:
            submitit = importlib.import_module("submitit")
        except ImportError as error:
            raise UserError("The executor 'slurm' needs submitit: pip install 'posterity[slurm]'") from error
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise UserError("The executor 'slurm' needs Slurm, and there is no `sbatch` here; others: local, ray")
        if execution.gpus != int(execution.gpus):
            raise UserError(f"--gpus {execution.gpus:g}: Slurm gives whole GPUs; let seeds share one with --lanes")
        self.executor = submitit.AutoExecutor(folder=folder.path / "slurm", cluster=cluster)
        self.executor.update_parameters(**_parameters(execution))
        self.jobs: dict[str, Job] = {}

    def room(self) -> int:
        """No end of it, unless so many workers were asked for."""
        return (self.most or 1_000_000) - len(self.jobs)

    def busy(self) -> int:
        """Jobs that have not ended."""
        return len(self.jobs)

    def submit(self, name: str) -> None:
        """Hands over a cell."""
        self.jobs[name] = self.executor.submit(Work(), str(self.folder.path), name)

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended."""
        until = time.monotonic() + seconds
        while True:
            ended = [Ended(name, self._lost(name, job)) for name, job in self.jobs.items() if job.done()]
            for name, _ in ended:
                del self.jobs[name]
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(min(1.0, seconds))

    def _lost(self, name: str, job: Job) -> str:
        """A job that ended without a last word of its worker."""
        said = self.folder.said(name).state
        return "" if said in ("done", "failed", "stopped") else f"its job ended ({job.state})"

    def withdraw(self) -> None:
        """Takes jobs out of the queue that have not begun."""
        for name, job in self.jobs.items():
            if self.folder.said(name).state != "running":
                cast(Any, job).cancel()


def _parameters(execution: Execution) -> dict[str, object]:
    """What submitit is told of every job."""
    given: dict[str, object] = {"name": "posterity", "timeout_min": DAY, "cpus_per_task": max(1, round(execution.cpus))}
    if execution.gpus:
        given["gpus_per_node"] = int(execution.gpus)
    for word in execution.slurm:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UserError(f"--slurm takes NAME=VALUE, such as partition=gpu, and not '{word}'")
        number = int(value) if value.isdigit() else value
        given[name if name in GENERAL else f"slurm_{name}"] = number
    return given
