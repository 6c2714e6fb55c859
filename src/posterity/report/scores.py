"""Zero-shot, Start, Train and Back of evaluated runs, as tables and as CSV.

Methods with several ways of playing Back have a score for each. The one that a run is set to is its Back; the others
are called by their names.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from posterity.experiment.records import Run, Scores
from posterity.report.metrics import Interval, called, interval, mean_known, tasks_of
from posterity.report.sheet import Sheet
from posterity.report.tables import EVERYTHING, PLACE, View, keys_of, numbers, opening, place, spans

HEADS = {"zero-shot": "zero-shot", "start": "Start", "train": "Train", "back": "Back"}


def head(name: str) -> str:
    """A score's name for people."""
    return HEADS.get(name) or f"Back, {name.removeprefix('back-')}"


def file_name(run: Run, name: str) -> str:
    """The file in evaluation/ that a score of the run comes from."""
    return run.back if name == "back" else name


def known(run: Run, view: View = EVERYTHING) -> dict[str, Scores]:
    """The scores that the run has in the view: zero-shot, start, train, back, then other ways of playing Back."""
    found = {"back" if name == run.back else name: score for name, score in view.of(run).scores.items()}
    order = [*HEADS, *sorted(found.keys() - HEADS.keys())]
    return {name: found[name] for name in order if name in found and np.isfinite(found[name].returns).any()}


def columns(runs: Sequence[Run], view: View = EVERYTHING) -> list[str]:
    """Every score that one of the runs has in the view, in order."""
    found = {name for run in runs for name in known(run, view)}
    return [*(name for name in HEADS if name in found), *sorted(found - HEADS.keys())]


def evaluated(runs: Sequence[Run]) -> list[Run]:
    """Those of the runs that have any score."""
    return [run for run in runs if run.scores]


def intervals(run: Run, view: View = EVERYTHING) -> dict[str, Interval]:
    """Every score that the run has, over its tasks in the view, by the name of its file."""
    return {file_name(run, name): score for name, score in _intervals(known(run, view)).items()}


def _intervals(parts: Mapping[str, Scores]) -> dict[str, Interval]:
    return {name: interval(part.returns) for name, part in parts.items()}


def solved(parts: Mapping[str, Scores]) -> dict[str, Interval]:
    """The number of tasks solved, for each score that tells; one solved in some of its episodes counts in part."""
    return {
        name: interval(np.nansum(part.success, axis=1, keepdims=True))
        for name, part in parts.items()
        if np.isfinite(part.success).any()
    }


def _outdated(run: Run, scores: Scores) -> bool:
    """Whether more tasks are finished by now than were evaluated."""
    return scores.tasks < int(np.isfinite(run.returns[:, :, -1]).all(axis=0).sum())


def last_task(parts: Mapping[str, Scores], view: View) -> int:
    """The last task in the view that has one of these scores."""
    tasks = [np.flatnonzero(np.isfinite(part.returns).any(axis=0))[-1] for part in parts.values()]
    return view.first_task + int(max(tasks))


def sheet(runs: Sequence[Run], view: View = EVERYTHING) -> Sheet | None:
    """One line a run, one column a score; none if nothing in the view was evaluated."""
    rows = [(run, parts) for run in runs if (parts := known(run, view))]
    if not rows:
        return None
    shown = columns([run for run, _ in rows], view)
    over = " or ".join(sorted({score.over for _, parts in rows for score in _intervals(parts).values()}))
    which, tasks = spans(view, [last_task(parts, view) for _, parts in rows])
    labels = called([run for run, _ in rows])
    lines, keys = [], []
    for label, cell, (run, parts) in zip(labels, tasks, rows, strict=True):
        scores, counts = _intervals(parts), solved(parts)
        lines.append((label, *cell, *(str(scores.get(name, "-")) for name in shown)))
        keys += [keys_of(run)] * (2 if counts else 1)
        if counts:
            told = (tasks_of(counts[name]) if name in counts else "-" for name in shown)
            lines.append(("  tasks solved", *([""] * len(cell)), *told))
    notes = (f"± 95 % interval over {over}", *_caveats(rows, labels))
    names = (*opening(tasks), *map(head, shown))
    return Sheet(f"Evaluated apart from training{which}", names, lines, notes, len(opening(tasks)), keys)


def _caveats(rows: Sequence[tuple[Run, Mapping[str, Scores]]], labels: Sequence[str]) -> list[str]:
    """What the columns do not say: Back by another way than the paper's, numbers of episodes, what is out of date."""
    notes = [
        f"Back of {label} is by {run.back.removeprefix('back-')}"
        for label, (run, parts) in zip(labels, rows, strict=True)
        if "back" in parts and run.back not in ("back", "back-confidence")
    ]
    late = sorted(
        f"{head(name)} of {run.path.name}" for run, parts in rows for name in parts if _outdated(run, parts[name])
    )
    played = sorted({count for _, parts in rows for part in parts.values() for count in part.episodes})
    if len(played) > 1:
        notes.append(f"Tasks were played {', '.join(map(str, played[:-1]))} or {played[-1]} times")
    return [*notes, *([f"Evaluated before the run went on: {', '.join(late)}"] if late else [])]


def write_csv(runs: Sequence[Run], path: Path, view: View = EVERYTHING) -> None:
    """One line per run and score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        rows = [(run, known(run, view)) for run in evaluated(runs)]
        titles = (*PLACE, "mean", "low", "high", "over", "world_reward", "run")
        writer.writerow((*titles, "solved") if any(solved(parts) for _, parts in rows) else titles)
        for run, parts in rows:
            told = solved(parts)
            for name, score in _intervals(parts).items():
                share = mean_known(parts[name].world_reward.reshape(1, -1), axis=1)[0]
                where = place(run, view, last_task({name: parts[name]}, view), file_name(run, name))
                count = [f"{told[name].mean:.4g}"] if name in told else []
                writer.writerow((*where, *numbers(score), f"{share:.4g}", run.folders, *count))
