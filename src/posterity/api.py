"""The library in four functions: `run`, `resume`, `evaluate`, `read`. The command line does the same and shows more.

import posterity

mine = posterity.run("item-search", method="blrl", tasks=20, seeds=2, out="runs/mine")
mine.returns.mean(axis=(0, 1))      # [iterations], the mean over seeds and tasks
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posterity.agents.base import SCORES, Score
from posterity.experiment.config import resolve
from posterity.experiment.evaluate import Plan
from posterity.experiment.evaluate import evaluate as play
from posterity.experiment.folder import RunFolder
from posterity.experiment.progress import Quiet
from posterity.experiment.records import Run, evaluation_name, read_run
from posterity.experiment.run import check, guarded, lifelong
from posterity.report.metrics import Interval
from posterity.report.scores import intervals


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


def evaluate(
    out: str | Path, *, scores: tuple[Score, ...] = SCORES, back_variant: str = "auto", episodes: int = 3
) -> dict[str, Interval]:
    """Plays the finished tasks of the run in folder `out` without learning: each score's mean and 95 % interval.

    Back is named by its variant where the method has several: "back-confidence" for vblrl.
    """
    lines = play(Path(out), Plan(scores, back_variant, episodes), lambda *_: None)
    played = {evaluation_name(str(line["score"]), str(line.get("variant", ""))) for line in lines}
    return {name: score for name, score in intervals(read_run(Path(out))).items() if name in played}


def read(out: str | Path) -> Run:
    """The records of a run as arrays."""
    return read_run(Path(out))
