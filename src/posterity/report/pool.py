"""Runs of one family and method as one sample of seeds. A seed that several of them have counts once, with its mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from posterity.errors import UserError
from posterity.experiment.records import ITERATION, TASK, Run, Scores
from posterity.report.metrics import mean_known
from posterity.types import FloatArray


def pooled(runs: Sequence[Run]) -> list[Run]:
    """One run for each family and method, over the tasks that all its runs have finished."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.family, run.method), []).append(run)
    return [group[0] if len(group) == 1 else _pool(group) for group in groups.values()]


def as_one(runs: Sequence[Run], groups: Sequence[Sequence[Path]]) -> list[Run]:
    """The runs, those whose folders are in one of the groups as one sample of seeds, where the first of them stood.

    A group is the cells of one family and method of a sweep. It is called by the folder that they lie in.
    """
    place = {path: number for number, group in enumerate(groups) for path in group}
    members: dict[int, list[Run]] = {}
    for number, run in enumerate(runs):  # a run in no group is a group of its own
        members.setdefault(place.get(run.path, len(groups) + number), []).append(run)
    one = {number: group[0] if len(group) == 1 else _pool(group) for number, group in members.items()}
    return [run._replace(paths=(run.path.parent,)) if number < len(groups) else run for number, run in one.items()]


def _pool(runs: Sequence[Run]) -> Run:
    first = runs[0]
    for run in runs[1:]:
        for name in ("iterations", "steps_per_iteration"):
            if run.config[name] != first.config[name]:
                raise UserError(f"{first.path} and {run.path} cannot be pooled: they differ in {name}")
    seeds = sorted({seed for run in runs for seed in run.seeds})
    tasks = min(int(np.isfinite(run.returns).all(axis=(0, 2)).sum()) for run in runs)

    if tasks == 0:
        raise UserError(f"Not all of these have finished a task, so they cannot be pooled: {', '.join(_names(runs))}")
    shared = [name for name in first.scores if all(name in run.scores for run in runs)]
    counts = {name: min(run.scores[name].tasks for run in runs) for name in shared}
    width = max(tasks, *counts.values()) if counts else tasks

    def merged(count: int, values: Callable[[Run], FloatArray]) -> FloatArray:
        """[L, K, ...], known in the first `count` tasks."""
        samples = [{seed: values(run)[lane, :count] for lane, seed in enumerate(run.seeds)} for run in runs]
        same = [np.stack([sample[seed] for sample in samples if seed in sample]) for seed in seeds]
        whole = np.stack([mean_known(each, axis=0) for each in same])
        lacking = np.full((len(seeds), width - count, *whole.shape[2:]), np.nan)
        return np.concatenate([whole, lacking], axis=1)

    def after(name: str, count: int) -> FloatArray:
        """Of Back what all runs have: that after the last task."""
        if not name.startswith("back"):
            return np.full((len(seeds), 0, 0), np.nan)
        matrix = np.full((len(seeds), width, width), np.nan)
        matrix[:, count - 1] = merged(count, lambda run: run.scores[name].returns)
        return matrix

    arrays = {name: merged(tasks, lambda run, name=name: run._asdict()[name]) for name in (*ITERATION, *TASK)}
    scores = {
        name: Scores(
            merged(count, lambda run, name=name: run.scores[name].returns),
            count,
            merged(count, lambda run, name=name: run.scores[name].world_reward),
            merged(count, lambda run, name=name: run.scores[name].world_state),
            merged(count, lambda run, name=name: run.scores[name].success),
            after(name, count),
            tuple(sorted({times for run in runs for times in run.scores[name].episodes})),
        )
        for name, count in counts.items()
    }
    return first._replace(
        paths=tuple(path for run in runs for path in run.paths),
        sessions=[session for run in runs for session in run.sessions],
        seeds=seeds,
        latent=np.full((len(seeds), width, 0), np.nan),  # each run's latent has axes of its own
        factors=np.full((len(seeds), width, 0), np.nan),
        factor_names=(),
        wall_seconds=max(run.wall_seconds for run in runs),
        scores=scores,
        **arrays,
    )


def _names(runs: Sequence[Run]) -> list[str]:
    return [str(run.path) for run in runs]
