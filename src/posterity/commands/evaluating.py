"""`posterity evaluate`: zero-shot, Start, Train and Back of a run, a machine file at play, or a video of either."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posterity.agents.base import SCORES, Score
from posterity.agents.lanes import compilation_told
from posterity.commands.arguments import TRUST, Terminal, parse, seconds, terminal
from posterity.errors import UserError
from posterity.experiment.evaluate import Plan
from posterity.experiment.evaluate import evaluate as play
from posterity.experiment.progress import Notes
from posterity.experiment.run import Stopped
from posterity.experiment.stop import Stop
from posterity.settings import Settings, argument, setting


class EvaluateArgs(Settings):
    """Plays the tasks of a run with what was learned at four moments, without learning."""

    folder: Path = argument(..., "The folder of the run, or a machine file (posterity export).")
    scores: tuple[Score, ...] = setting(
        (), "The scores to measure: zero-shot, start, train, back. If not given: all; for a video train."
    )
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
    video: bool = setting(False, "Instead film one episode of each task and score, side by side, as mp4 or gif.")
    tasks: tuple[int, ...] = setting(
        (), "For a video or a machine file: the tasks to play, counted from 1. If not given: the latest."
    )
    beside: Path | None = setting(None, "For a video: another run, or machine file, that plays the same tasks.")
    out: Path | None = setting(None, "For a video: the file, .mp4 or .gif. If not given: in video/ of the run.")


def is_machine(path: Path) -> bool:
    """Whether a path names a machine file and no run."""
    return path.is_file() or path.suffix == ".posterity"


def evaluate(args: Sequence[str]) -> int:
    """Plays, writes evaluation/ into the run's folder and shows the table."""
    asked = parse(EvaluateArgs, args, "evaluate")
    if asked.video:
        from posterity.commands.filming import film

        return film(asked)
    if asked.beside or asked.out:
        raise UserError("--beside and --out go with --video")
    if is_machine(asked.folder):
        from posterity.commands.filming import play_machine

        return play_machine(asked)
    if asked.tasks:
        raise UserError("--tasks goes with --video or with a machine file; a run is evaluated in all finished tasks")
    plan = Plan(asked.scores or SCORES, asked.back_variant, asked.episodes, asked.back_every, asked.lanes)
    limit, console = seconds(asked.time_limit), terminal()
    lacking = list(plan.scores)

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
