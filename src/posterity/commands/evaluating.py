"""`posterity evaluate`: zero-shot, Start, Train and Back of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from posterity.agents.base import SCORES, Score
from posterity.commands.arguments import Terminal, parse, terminal
from posterity.experiment.evaluate import Plan
from posterity.experiment.evaluate import evaluate as play


@dataclass(frozen=True)
class EvaluateArgs:
    """Plays the tasks of a run with what was learned at four moments, without learning."""

    folder: tyro.conf.Positional[Path]
    """The folder of the run."""
    scores: tuple[str, ...] = SCORES
    """Which of zero-shot, start, train, back."""
    backward: str = "auto"
    """Whose predictions Back is planned with: confidence, blend, task-only or world-only; auto: as the run is set."""
    episodes: int = 3
    """Episodes of each task and score."""
    every: int = 0
    """Go back after every so many tasks too, not only after the last; 0: only then."""
    lanes: int = 64
    """Episodes played together."""


def evaluate(args: Sequence[str]) -> int:
    """Plays, writes evaluation/ into the run's folder and shows the table."""
    asked: EvaluateArgs = parse(EvaluateArgs, args, "evaluate")
    scores: Any = asked.scores
    strategy: Any = asked.backward
    plan = Plan(scores, strategy, asked.episodes, asked.every, asked.lanes)
    console = terminal()

    def tell(score: Score, done: int, total: int) -> None:
        console.print(f"{score}: {done} of {total} episodes")

    play(asked.folder, plan, tell)
    from posterity.report.metrics import read_run
    from posterity.report.scores import table

    Terminal().print(table([read_run(asked.folder)]))
    return 0
