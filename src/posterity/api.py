"""The library: `run`, `resume`, `evaluate`, `read` do what the commands do; `load` gives a program the learner itself.

For example:

    import posterity

    mine = posterity.run("item-search", method="blrl", tasks=20, seeds=2, out="runs/mine")
    mine.returns.mean(axis=(0, 1))      # [iterations], the mean over seeds and tasks
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from posterity.agents import method_name
from posterity.agents.base import SCORES, Score
from posterity.experiment.config import checked, merged, resolve
from posterity.experiment.evaluate import Plan
from posterity.experiment.evaluate import evaluate as play
from posterity.experiment.folder import RunFolder
from posterity.experiment.learner import Learner, load_learner
from posterity.experiment.progress import Quiet
from posterity.experiment.records import Run, evaluation_name, read_run
from posterity.experiment.run import check, guarded, lifelong
from posterity.experiment.source import begin_from, check_more_tasks, checked_source, open_source, starting_config
from posterity.experiment.tracking import check_tools, tracked
from posterity.families import family_name
from posterity.families.base import Family
from posterity.report.metrics import Interval
from posterity.report.scores import intervals


def run(
    family: str | Family | type[Family],
    *,
    out: str | Path,
    method: str | type[object] | None = None,
    preset: str | None = None,
    source: str | Path | None = None,
    trust: bool = False,
    track: Sequence[str] = (),
    **changes: object,
) -> Run:
    """Learns a stream of tasks into the new folder `out`. `changes` are settings: tasks=20, agent={"models": 10}.

    `method` is a name, such as "vblrl" or "my_method.py:Class", or a subclass of `Agent`.
    `family` is a name, such as "hopper-gravity" or "my_family.py:family", or a family of one's own itself: an object
    (`Family.from_gymnasium`) or a subclass of `Family`. `source` is the folder of a run to go on from: its agent, with
    what it has learned, meets the tasks of this one. `track` names tools that draw its curves: "tensorboard", "wandb",
    "trackio". `trust`: see `resume`.
    """
    check_tools(track)
    method = None if method is None else method_name(method)
    if source is None:
        config, other = resolve(family, method, preset or "quick", changes), None
    else:
        begin = starting_config(
            open_source(Path(source), trust),
            family_name(family),
            method,
            preset,
        )
        config = checked(type(begin), merged(begin.model_dump(), changes))
        other = checked_source(Path(source), config, trust)
    ready = check(config, other.position.met if other else 0)
    for note in ready.notes:
        warnings.warn(note, stacklevel=2)
    command = f"posterity.run({config.family!r}, method={config.method!r})"
    folder = RunFolder.create(Path(out), config, command, other and begin_from(other, config))
    progress = tracked(Quiet(), folder.path, track)
    try:
        guarded(folder, lambda: lifelong(config, folder, progress, lambda: "", (ready.family, ready.agent)))
    finally:
        progress.close()
    return read_run(folder.path)


def resume(
    out: str | Path, *, tasks: int | None = None, family: Family | type[Family] | None = None, trust: bool = False
) -> Run:
    """Goes on with the run in folder `out` to its end.

    `tasks`: it is to meet so many in all. `family`: the run's, where no file defines it. `trust`: a family or a method
    that is not posterity's own may be executed although the run was not begun here by this user.
    """
    if tasks is not None:
        check_more_tasks(Path(out), tasks, trust)
    more = "" if tasks is None else f"tasks={tasks}"
    folder, config = RunFolder.reopen(Path(out), f"posterity.resume({more})", tasks, family, trust)
    if folder.position().task < config.tasks:
        progress = tracked(Quiet(), folder.path, ())
        try:
            guarded(folder, lambda: lifelong(config, folder, progress, lambda: ""))
        finally:
            progress.close()
    return read_run(folder.path)


def load(
    out: str | Path, *, lane: int | None = 0, tasks: int = 8, iterations: int | None = None, trust: bool = False
) -> Learner:
    """The learner of the run in folder `out`, for a program of one's own: see `Learner`.

    `lane` chooses one of the run's learners (0 is the first seed); None: all of them side by side. There is room for
    `tasks` more tasks, each of `iterations` iterations (as many as in the run if not given). The folder is only read.
    `trust`: see `resume`.
    """
    return load_learner(Path(out), lane, tasks, iterations, trust)


def evaluate(
    out: str | Path,
    *,
    scores: tuple[Score, ...] = SCORES,
    back_variant: str = "auto",
    episodes: int = 3,
    trust: bool = False,
) -> dict[str, Interval]:
    """Plays the finished tasks of the run in folder `out` without learning: each score's mean and 95 % interval.

    Back is named by its variant where the method has several: "back-confidence" for vblrl. `trust`: see `resume`.
    """
    lines = play(Path(out), Plan(scores, back_variant, episodes), lambda *_: None, trusted=trust)
    played = {evaluation_name(str(line["score"]), str(line.get("variant", ""))) for line in lines}
    return {name: score for name, score in intervals(read_run(Path(out))).items() if name in played}


def video(
    out: str | Path,
    path: str | Path,
    *,
    tasks: Sequence[int] = (),
    scores: Sequence[Score] = ("train",),
    beside: str | Path | None = None,
) -> Path:
    """Films an episode of each of `tasks` and `scores` of the run in folder `out` into the file `path`, .mp4 or .gif.

    Tasks count from 1; none: the latest. `beside` is another run that plays the same. Returns the path of the video.
    """
    from posterity.experiment.film import check_format, write_video
    from posterity.experiment.video import run_clips

    check_format(Path(path))
    runs = [Path(out), *([Path(beside)] if beside else [])]
    return write_video(Path(path), [clip for each in runs for clip in run_clips(each, scores, tasks)])


def read(out: str | Path) -> Run:
    """The records of a run as arrays."""
    return read_run(Path(out))
