"""`posterity evaluate --video`, and `posterity evaluate machine.posterity`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from posterity.agents.lanes import compilation_told
from posterity.commands.arguments import seconds, terminal
from posterity.commands.evaluating import EvaluateArgs, is_machine
from posterity.errors import UserError
from posterity.experiment.film import Clip, check_format, write_video
from posterity.experiment.progress import Notes
from posterity.experiment.run import Stopped
from posterity.experiment.stop import Stop
from posterity.experiment.video import run_clips

MOST = 6  # episodes side by side


def film(asked: EvaluateArgs) -> int:
    """Plays, and writes the video."""
    check_format(asked.out or Path())
    paths = [asked.folder, *([asked.beside] if asked.beside else [])]
    if len(paths) * max(1, len(asked.tasks)) * max(1, len(asked.scores)) > MOST:
        raise UserError(f"A video shows at most {MOST} episodes side by side: fewer --tasks or --scores")
    if any(task < 1 for task in asked.tasks):
        raise UserError("--tasks are counted from 1")
    console, clips = terminal(), list[Clip]()
    with Stop(seconds(asked.time_limit)) as stop, compilation_told(Notes(console)):
        try:
            named, tasks = _names(paths), asked.tasks or _latest(paths)
            for path in paths:
                clips += _clips(path, asked, tasks, named[path], stop.reason)
        except Stopped as stopped:
            console.print(f"Stopped ({stopped}). No video was written")
            return 130 if stop.signalled else 0
    for clip in clips:
        console.print(f"{clip.title}; {clip.task}: {len(clip.shots) - 1} steps, return {clip.total:.4g}", markup=False)
    console.print(f"Video: {write_video(asked.out or _place(asked), clips)}", markup=False)
    return 0


def play_machine(asked: EvaluateArgs) -> int:
    """A machine file plays tasks of its family; says what it earned."""
    from posterity.commands.playing import MachinePlayer

    if asked.scores or asked.back_every or asked.back_variant != "auto":
        raise UserError("A machine file knows one moment; --scores, --back-variant and --back-every are for runs")
    console = terminal()
    with Stop(seconds(asked.time_limit)) as stop, compilation_told(Notes(console)):
        player = MachinePlayer(asked.folder, asked.trust)
        try:
            for task in player.tasks([number - 1 for number in asked.tasks] or [player.own_task]):
                found = player.returns(task, asked.episodes, stop.reason)
                each = " ".join(f"{total:.4g}" for total in found)
                console.print(f"task {task.index + 1}, {task.name}: mean return {np.mean(found):.4g} ({each})")
        except Stopped as stopped:
            console.print(f"Stopped ({stopped})")
            return 130 if stop.signalled else 0
        finally:
            player.controller.close()
    return 0


def _clips(
    path: Path, asked: EvaluateArgs, tasks: Sequence[int], name: str, should_stop: Callable[[], str]
) -> list[Clip]:
    if is_machine(path):
        from posterity.commands.playing import MachinePlayer

        player = MachinePlayer(path, asked.trust)
        try:
            return player.clips([task - 1 for task in tasks] or [player.own_task], should_stop)
        finally:
            player.controller.close()
    return run_clips(path, asked.scores or ("train",), tasks, name, asked.back_variant, should_stop, asked.trust)


def _latest(paths: Sequence[Path]) -> tuple[int, ...]:
    """The latest task that all of these runs have finished; none, if there is no such, or no run among them."""
    from posterity.experiment.folder import RunFolder

    finished = [RunFolder(path).position().task for path in paths if not is_machine(path)]
    return (min(finished),) if finished and min(finished) else ()


def _names(paths: list[Path]) -> dict[Path, str]:
    """What is written above the episodes of each: the method of a run, or its folder where two have the same."""
    from posterity.experiment.folder import read_config

    methods = {path: path.name if is_machine(path) else read_config(path).method for path in paths}
    same = len(set(methods.values())) < len(methods)
    return {path: path.name if same else method for path, method in methods.items()}


def _place(asked: EvaluateArgs) -> Path:
    """Where a video goes that nobody named: beside a machine file, or into the run's folder."""
    if is_machine(asked.folder):
        return asked.folder.with_suffix("")
    parts = [*(asked.scores or ("train",)), *(f"task-{task}" for task in asked.tasks)]
    return asked.folder / "video" / "-".join([*parts, *([f"beside-{asked.beside.name}"] if asked.beside else [])])
