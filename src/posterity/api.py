"""The library in three functions: `run`, `resume`, `read`. The command line does the same and shows more.

import posterity

mine = posterity.run("item-search", method="blrl", tasks=20, seeds=2, out="runs/mine")
mine.returns.mean(axis=(0, 1))      # [iterations], the mean over seeds and tasks
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posterity.experiment.config import resolve
from posterity.experiment.progress import Quiet
from posterity.experiment.record import RunFolder
from posterity.experiment.run import check, guarded, lifelong
from posterity.report.metrics import Run, read_run


def run(family: str, *, out: str | Path, method: str | None = None, preset: str = "quick", **changes: Any) -> Run:
    """Learns a stream of tasks into the new folder `out`. `changes` are settings: tasks=20, agent={"models": 10}."""
    config = resolve(family, method, preset, changes)
    check(config)
    folder = RunFolder.create(Path(out), config, command=f"posterity.run({family!r}, method={config.method!r})")
    guarded(folder, lambda: lifelong(config, folder, Quiet(), lambda: ""))
    return read_run(folder.path)


def resume(out: str | Path) -> Run:
    """Goes on with the run in folder `out` to its end."""
    folder, config = RunFolder.reopen(Path(out), command="posterity.resume()")
    if not folder.position().finished:
        guarded(folder, lambda: lifelong(config, folder, Quiet(), lambda: ""))
    return read_run(folder.path)


def read(out: str | Path) -> Run:
    """The records of a run as arrays."""
    return read_run(Path(out))
