"""Who does the cells: processes of this machine here; Ray and Slurm in their own modules.

An executor is handed cells and tells which have ended, and how its worker did: by itself, or lost on the way. What
came of the cell is in its status.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal, NamedTuple

from posterity.errors import UserError
from posterity.experiment.sweep.folder import SweepFolder
from posterity.settings import Settings, setting

Executors = Literal["local", "ray", "slurm"]
GPU_SHARE = 0.9  # of a GPU's memory that cells divide among them


class Execution(Settings):
    """Who runs the cells, and with what. None of it changes a number on record."""

    executor: Executors = setting("local", "local: processes here; ray: a Ray cluster; slurm: jobs through submitit.")
    workers: int = setting(0, "Cells at once; 0: as many as cores (local) or as there is room for (ray, slurm).", ge=0)
    cpus: float = setting(1.0, "Cores of one cell.", gt=0)
    gpus: float = setting(0.0, "GPUs of one cell; a part, such as 0.25, lets cells share one (local, ray).", ge=0)
    retries: int = setting(20, "Times that a cell is resumed after its worker was lost.", ge=0)
    address: str | None = setting(None, "Ray cluster to use: auto, or HOST:PORT; not given: one on this machine.")
    slurm: tuple[str, ...] = setting((), "More for Slurm, as NAME=VALUE: partition=gpu timeout_min=600 mem_gb=32.")


class Ended(NamedTuple):
    """A worker that is gone."""

    name: str  # of its cell
    lost: str  # what became of it, if it did not come to its own end


class Executor(ABC):
    """Hands cells to workers."""

    @abstractmethod
    def room(self) -> int:
        """How many more cells can be handed over now."""

    @abstractmethod
    def submit(self, name: str) -> None:
        """Hands over a cell."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Ended]:
        """The workers that have ended; waits for one at most so long."""

    @abstractmethod
    def busy(self) -> int:
        """How many cells are in the hands of workers."""

    def withdraw(self) -> None:  # noqa: B027  (there may be nothing to do)
        """Takes back what no worker has begun, as far as that is possible. Workers are stopped by the folder."""

    def close(self) -> None:  # noqa: B027
        """Lets go of everything."""


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that programs started from here see."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1")]
    return sorted((file.name.removeprefix("nvidia") for file in Path("/dev").glob("nvidia[0-9]*")), key=int)


class Local(Executor):
    """Processes of this machine. Each has its standard input tied to this one: if this one dies, they save and end."""

    def __init__(self, folder: SweepFolder, execution: Execution) -> None:
        self.folder, self.gpus = folder, visible_gpus()
        self.most = execution.workers or max(1, int(cores() // execution.cpus))
        if execution.gpus:
            if not self.gpus:
                raise UserError(f"--gpus {execution.gpus:g}, but this machine shows no GPU; leave it out")
            if execution.gpus > 1:
                raise UserError(f"--gpus {execution.gpus:g}: a cell uses one GPU, or a part of one; at most 1")
            self.most = min(self.most, int(len(self.gpus) // execution.gpus) or 1)
        self.slots: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def room(self) -> int:
        """Free slots."""
        return self.most - len(self.slots)

    def busy(self) -> int:
        """Processes."""
        return len(self.slots)

    def submit(self, name: str) -> None:
        """Starts a process. Slots are spread over the GPUs, and those of one GPU divide its memory."""
        slot = min(set(range(self.most)) - self.slots.keys())
        environment = {**os.environ, **self._share(slot)}
        with self.folder.log(name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "posterity.experiment.sweep.cell", str(self.folder.path), name],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process; it tells the others
            )
        self.slots[slot] = name, process

    def _share(self, slot: int) -> dict[str, str]:
        share = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // self.most)))}
        if self.gpus:
            together = -(-self.most // len(self.gpus))
            share["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
            share.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", memory_share(1 / together))
        return share

    def wait(self, seconds: float) -> list[Ended]:
        """Looks at the processes until one has ended."""
        until = time.monotonic() + seconds
        while True:
            ended: list[Ended] = []
            for slot, (name, process) in list(self.slots.items()):
                if (code := process.poll()) is not None:
                    del self.slots[slot]
                    if process.stdin is not None:
                        process.stdin.close()
                    ended.append(Ended(name, f"ended by signal {-code}" if code < 0 else ""))
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(0.05)

    def close(self) -> None:
        """Ends what is left; cells are resumable whatever happens."""
        for _, process in self.slots.values():
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


def memory_share(gpus: float) -> str:
    """The part of a GPU's memory for a cell that has this part of a GPU, as JAX takes it."""
    return f"{GPU_SHARE * min(gpus, 1.0):.3f}"
