"""Zero-shot, Start, Train and Back of evaluated runs, from the lines in their `evaluation/` folders."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table

from posterity.errors import UserError
from posterity.report.metrics import Interval, Run, called, interval, mean_known, tasks_of
from posterity.report.tables import EVERYTHING, View, opened, spans
from posterity.types import FloatArray

FORWARD = {"zero-shot": "zero-shot", "start": "Start", "train": "Train"}


def columns(runs: Sequence[Run]) -> dict[str, str]:
    """Every score that one of the runs has, and its name for people: Back is there once for each way of going back."""
    found = {path.stem for run in runs for path in (run.path / "evaluation").glob("*.jsonl")}
    ways = sorted(name.removeprefix("back-") for name in found if name.startswith("back-"))
    back = {f"back-{way}": "Back" if way == "confidence" else f"Back, {way}" for way in ways}
    first = {name: head for name, head in back.items() if head == "Back"}
    return {name: head for name, head in (FORWARD | first | back).items() if name in found}


class Scores(NamedTuple):
    """What a run scored in evaluation; what was not evaluated is NaN."""

    returns: FloatArray  # [L, K] mean over episodes
    tasks: int  # finished when it was evaluated
    world_reward: FloatArray  # [L, K] share of rewards that the world model predicted; NaN where there was no choice
    solved: FloatArray  # [L, K] share of episodes that were solved; NaN where the family does not tell


def read_scores(run: Run, name: str) -> Scores | None:
    """One of `columns`, for Back after the last task; None if it was not evaluated."""
    path = run.path / "evaluation" / f"{name}.jsonl"
    if not path.exists():
        return None
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        seeds = {line["seed"] for line in lines}  # those that were joined may have come to different tasks
        latest = {seed: max(line["after"] for line in lines if line["seed"] == seed) for seed in seeds}
        if name.startswith("back"):
            lines = [line for line in lines if line["after"] == latest[line["seed"]]]
        episodes = 1 + max(line["episode"] for line in lines)
        returns = np.full((len(run.seeds), run.config["tasks"], episodes), np.nan)
        success, world = np.full(returns.shape, np.nan), np.full(returns.shape, np.nan)
        for line in lines:
            place = run.seeds.index(line["seed"]), line["task"], line["episode"]
            returns[place], success[place] = line["return"], line.get("success", np.nan)
            world[place] = line.get("world_reward", np.nan)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {type(error).__name__}, {error}") from error
    tasks = min(latest.values()) + (0 if name.startswith("back") else 1)
    return Scores(mean_known(returns, axis=2), tasks, mean_known(world, axis=2), mean_known(success, axis=2))


def evaluated(runs: Sequence[Run]) -> list[Run]:
    """Those of the runs that have any score."""
    return [run for run in runs if columns([run])]


def intervals(run: Run, view: View = EVERYTHING) -> dict[str, Interval]:
    """Every score that the run has, over its tasks in the view."""
    return _intervals(_parts(run, view))


def _intervals(parts: Mapping[str, Scores]) -> dict[str, Interval]:
    return {name: interval(part.returns) for name, part in parts.items()}


def _parts(run: Run, view: View) -> dict[str, Scores]:
    """The scores of the run's tasks in the view, if there are any."""
    found = {name: read_scores(run, name) for name in columns([run])}
    parts = {}
    for name, scores in found.items():
        if scores is not None and np.isfinite(view.cut(scores.returns)).any():
            cut = {each: view.cut(getattr(scores, each)) for each in ("returns", "world_reward", "solved")}
            parts[name] = scores._replace(**cut)
    return parts


def _old(run: Run, scores: Scores) -> bool:
    """Whether more tasks are finished by now than were evaluated."""
    return scores.tasks < int(np.isfinite(run.returns[:, :, -1]).all(axis=0).sum())


def solved(run: Run, view: View = EVERYTHING) -> dict[str, Interval]:
    """The number of tasks solved, for each score that tells; one solved in some of its episodes counts in part."""
    return _solved(_parts(run, view))


def _solved(parts: Mapping[str, Scores]) -> dict[str, Interval]:
    return {
        name: interval(np.nansum(part.solved, axis=1, keepdims=True))
        for name, part in parts.items()
        if np.isfinite(part.solved).any()
    }


def _last(parts: Mapping[str, Scores], view: View) -> int:
    """The last task in the view that has one of these scores."""
    tasks = [np.flatnonzero(np.isfinite(part.returns).any(axis=0))[-1] for part in parts.values()]
    return view.first_task + int(max(tasks))


def table(runs: Sequence[Run], view: View = EVERYTHING) -> Table | None:
    """One line a run, one column a score; none if nothing in the view was evaluated."""
    rows = [(run, parts) for run in runs if (parts := _parts(run, view))]
    if not rows:
        return None
    shown = {name: head for name, head in columns(runs).items() if any(name in parts for _, parts in rows)}
    over = " or ".join(sorted({score.over for _, parts in rows for score in _intervals(parts).values()}))
    which, tasks = spans(view, [_last(parts, view) for _, parts in rows])
    made = opened(f"Evaluated apart from training{which}", tasks, caption=f"± 95 % interval over {over}")
    late = sorted({f"{name} of {run.path.name}" for run, parts in rows for name in parts if _old(run, parts[name])})
    if late:
        made.caption = f"{made.caption}; evaluated before the run went on: {', '.join(late)}"
    for head in shown.values():
        made.add_column(head, justify="right", overflow="fold")
    labels = called([(run.family, run.method, run.path) for run, _ in rows])
    for label, cell, (_, parts) in zip(labels, tasks, rows, strict=True):
        scores, counts = _intervals(parts), _solved(parts)
        made.add_row(label, *cell, *(str(scores.get(name, "-")) for name in shown))
        if counts:
            told = (tasks_of(counts[name]) if name in counts else "-" for name in shown)
            made.add_row("  tasks solved", *([""] * len(cell)), *told)
    return made


def write_csv(runs: Sequence[Run], path: Path, view: View = EVERYTHING) -> None:
    """One line per run and score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        rows = [(run, _parts(run, view)) for run in evaluated(runs)]
        head = ("family", "method", "preset", "seeds", "first_task", "last_task", "score")
        head += ("mean", "low", "high", "over", "world_reward", "run")
        writer.writerow((*head, "solved") if any(_solved(parts) for _, parts in rows) else head)
        for run, parts in rows:
            told = _solved(parts)
            for name, score in _intervals(parts).items():
                share = mean_known(parts[name].world_reward.reshape(1, -1), axis=1)[0]
                place = (run.family, run.method, run.config["preset"], len(run.seeds))
                tasks = (view.first_task, _last({name: parts[name]}, view), name)
                count = [f"{told[name].mean:.4g}"] if name in told else []
                numbers = (*(f"{x:.6g}" for x in score[:3]), score.over, f"{share:.4g}", run.path)
                writer.writerow((*place, *tasks, *numbers, *count))
