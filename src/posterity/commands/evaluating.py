"""`posterity evaluate`: zero-shot, Start, Train and Back of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posterity.agents.base import SCORES, Score
from posterity.agents.lanes import compilation_told
from posterity.commands.arguments import TRUST, Terminal, parse, seconds, terminal
from posterity.experiment.evaluate import Plan
from posterity.experiment.evaluate import evaluate as play
from posterity.experiment.progress import Notes
from posterity.experiment.run import Stopped
from posterity.experiment.stop import Stop
from posterity.settings import Settings, argument, setting


class EvaluateArgs(Settings):
    """Plays the tasks of a run with what was learned at four moments, without learning."""

    folder: Path = argument(..., "The folder of the run.")
    scores: tuple[Score, ...] = setting(SCORES, "The scores to measure: zero-shot, start, train, back.")
    back_variant: str = setting(
        "auto",
        "How VBLRL plays Back: by the more confident of the world's and the task's prediction (confidence), both "
        "blended (blend), the task's alone (task-only) or the world's alone (world-only); auto: as the run is set.",
    )
    episodes: int = setting(3, "Episodes of each task and score.", ge=1)
    back_every: int = setting(0, "Play Back after every so many tasks too; 0: only after the last task.", ge=0)
    lanes: int = setting(64, "Episodes played side by side.", ge=1)
    trust: bool = setting(False, TRUST)
    time_limit: str | None = setting(None, "Stop after this long: 90s, 25m, 1.5h. Scores that are whole are kept.")


def evaluate(args: Sequence[str]) -> int:
    """Plays, writes evaluation/ into the run's folder and shows the table."""
    asked = parse(EvaluateArgs, args, "evaluate")
    plan = Plan(asked.scores, asked.back_variant, asked.episodes, asked.back_every, asked.lanes)
    limit, console = seconds(asked.time_limit), terminal()
    lacking = list(asked.scores)

    def tell(score: Score, done: int, total: int) -> None:
        console.print(f"{score}: {done} of {total} episodes")
        if done == total:
            lacking.remove(score)

    with Stop(limit) as stop, compilation_told(Notes(console)):
        try:
            play(asked.folder, plan, tell, stop.reason, asked.trust)
        except Stopped as stopped:
            console.print(f"Stopped ({stopped}). Not played to the end, and not written: {', '.join(lacking)}")
            return 130 if stop.signalled else 0
    from posterity.experiment.records import read_run
    from posterity.report.scores import sheet

    if made := sheet([read_run(asked.folder)]):
        screen = Terminal()
        screen.print(made.terminal(screen.width))
    return 0
