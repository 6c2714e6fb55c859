"""Figures of runs, as PNG and SVG, with 95 % intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posterity.errors import printable
from posterity.experiment.records import Run
from posterity.report.metrics import band, folders, mean_known, rolling, solved, suboptimal_steps
from posterity.report.tables import View
from posterity.types import FloatArray

# Okabe and Ito's palette: told apart by colour-blind readers too. A method keeps its colour from figure to figure.
COLOURS = {
    "blrl": "#0072B2",
    "boss": "#D55E00",
    "vblrl": "#0072B2",
    "single-task": "#D55E00",
    "pooled": "#009E73",
    "npg": "#56B4E9",
    "ewc": "#CC79A7",
    "lpg-ftw": "#E69F00",
}
OTHERS = ("#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.hashsalt": "posterity",
}


def learning_curves(runs: Sequence[Run], view: View, stem: Path) -> list[Path]:
    """How a family is learned: over tasks (left, if there are several) and within a task (right)."""
    with mpl.rc_context(STYLE):
        several = max(run.returns.shape[1] for run in runs) > 1
        figure = Figure(figsize=(10 if several else 5.6, 3.8), layout="constrained")
        *left, within = figure.subplots(1, 1 + several, sharey=True, squeeze=False)[0]
        bands = []
        window = _window(max(1, View().last(runs)))
        shared, more = _shared(runs, view)
        for name, colour, run in _named(runs):
            for over_tasks in left:
                early = run.returns[:, : max(1, View().last([run])), : view.early].mean(axis=2)
                bands.append(_curve(over_tasks, np.arange(1, early.shape[1] + 1), rolling(early, window), name, colour))
            part = view.of(run)
            inside = part.returns[:, _finished(part.returns)][:, :shared]
            if inside.shape[1]:
                bands.append(_curve(within, np.arange(1, inside.shape[2] + 1), _over_tasks(inside), name, colour))
        for over_tasks in left:
            over_tasks.set(xlabel="task")
            over_tasks.set_title(f"first {view.early} iterations of each task{_over(window)}", fontsize=10)
        first, last = view.first_task, view.first_task + shared - 1
        which = f"tasks {first}-{last}" + (", which all have finished" if more else "")
        title = f"within task {first}" if last <= first else f"within a task (mean of {which})"
        within.set(xlabel="iteration of a task")
        within.set_title(title, fontsize=10)
        (left or [within])[0].set(ylabel="mean return per episode")
        (within if shared else (left or [within])[0]).legend()
        cut = ", cut by the frame" if _frame(within, bands) else ""
        figure.suptitle(f"{_plain(runs[0].family)}, {_seeds(runs)}, 95 % intervals{cut}")
        return _save(figure, stem)


def solved_tasks(runs: Sequence[Run], view: View, stem: Path) -> list[Path]:
    """How many tasks are solved in their first iteration, their second, and so on, as the paper counts them."""
    tasks, _ = _shared(runs, view)
    if not tasks:
        return []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.subplots()
        for name, colour, run in _named(runs):
            part = view.of(run)
            counted = solved(part._replace(success=part.success[:, _finished(part.returns)][:, :tasks]))
            if counted is not None:
                _curve(axes, np.arange(1, counted.over.shape[1] + 1), counted.over, name, colour)
        axes.set(xlabel="iteration of a task", ylabel=f"tasks solved, of {tasks}", ylim=(-0.03 * tasks, 1.03 * tasks))
        axes.legend()
        figure.suptitle(f"{_plain(runs[0].family)}, {_seeds(runs)}, 95 % intervals", fontsize=11)
        return _save(figure, stem)


def transfer(runs: Sequence[Run], view: View, epsilon: float, stem: Path) -> list[Path]:
    """The paper's claim: as tasks go by the prior-mass radius falls, and with it the steps a task takes to learn."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        window = _window(max(run.returns.shape[1] for run in runs))
        radii, steps = [], []
        for name, colour, run in _named(runs):
            part = view.of(run)
            tasks = np.arange(view.first_task, view.first_task + part.radius.shape[1])
            radii.append(_curve(left, tasks, rolling(part.radius, window), name, colour))
            steps.append(_curve(right, tasks, rolling(suboptimal_steps(part, epsilon), window), name, colour))
        for axes, curves in ((left, radii), (right, steps)):
            _frame(axes, curves)
        if np.isfinite(runs[0].hidden_radius).any():
            floor = float(np.nanmean(runs[0].hidden_radius))
            left.axhline(floor, color="grey", linestyle="--", linewidth=1.2, label="the hidden world itself")
        left.legend()
        left.set(xlabel="task", ylabel="$d_\\pi$, mean over state-action pairs", ylim=(0, None))
        left.set_title("prior-mass radius of the prior a task begins with", fontsize=10)
        right.set(xlabel="task", ylabel="steps", ylim=(0, None))
        right.set_title(
            f"steps of a task on which the policy was not $\\epsilon$-optimal ($\\epsilon$ = {epsilon:g})", fontsize=10
        )
        figure.suptitle(f"{_plain(runs[0].family)}, {_seeds(runs)}{_over(window)}, 95 % intervals")
        return _save(figure, stem)


def _window(tasks: int) -> int:
    """Tasks in a moving mean: about a twelfth of the stream."""
    return max(1, min(25, tasks // 12))


def _over(window: int) -> str:
    return f" (mean of {window} tasks)" if window > 1 else ""


def _finished(returns: FloatArray) -> np.ndarray:
    """[K] which tasks were met to their end; if there are none, which were met: a curve is over the same tasks."""
    known = np.isfinite(returns)
    done = np.asarray(known.all(axis=(0, 2)))
    return done if done.any() else np.asarray(known.any(axis=(0, 2)))


def _shared(runs: Sequence[Run], view: View) -> tuple[int, bool]:
    """How many tasks of the view all runs have finished that have finished any there, and whether some have more.

    What is compared is compared over the same tasks.
    """
    counts = {int(_finished(view.of(run).returns).sum()) for run in runs} - {0}
    return min(counts, default=0), len(counts) > 1


def _over_tasks(returns: FloatArray) -> FloatArray:
    """[L, iterations] the mean over the tasks that were met; one lane's spread is over its tasks."""
    return returns[0] if returns.shape[0] == 1 else mean_known(returns, axis=1)


def _named(runs: Sequence[Run]) -> list[tuple[str, str, Run]]:
    """Each run with a label and a colour of its own."""
    methods = [run.method for run in runs]
    taken = {COLOURS.get(method) for method in methods}
    named, spare = [], iter([colour for colour in OTHERS if colour not in taken])
    names = folders(runs)
    for index, run in enumerate(runs):
        alone = methods.count(run.method) == 1
        colour = COLOURS.get(run.method) if run.method not in methods[:index] else None
        label = run.method if alone else f"{run.method} ({names[index]})"
        named.append((_plain(label), colour or next(spare, "#000000"), run))
    return named


def _plain(name: str) -> str:
    """A name as it is: no mathematics, no legend entry that is left out, nothing that no font has."""
    return printable(name).replace("\\", "\\\\").replace("$", r"\$").lstrip("_") or "?"


class _Drawn(NamedTuple):
    """A curve that was drawn."""

    mean: FloatArray
    ends: FloatArray  # of its band


def _curve(axes: Any, across: FloatArray, sample: FloatArray, name: str, colour: str) -> _Drawn:
    """Draws a mean with its band."""
    low, high = band(sample)
    mean = mean_known(sample, axis=0)
    axes.plot(across, mean, color=colour, label=name)
    axes.fill_between(across, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = np.concatenate([low, high])
    return _Drawn(mean[np.isfinite(mean)], ends[np.isfinite(ends)])


def _frame(axes: Any, curves: Sequence[_Drawn]) -> bool:
    """Limits that hold all means and nearly all of the bands. Tells whether a band is cut.

    The bands get at most as much room above the means as the means have, and as much below: intervals over two seeds
    are so wide that curves would be flat lines.
    """
    means = np.concatenate([curve.mean for curve in curves])
    ends = np.concatenate([curve.ends for curve in curves])
    if means.size == 0:
        return False
    low, high = float(means.min()), float(means.max())
    room = high - low
    if ends.size:
        least, most = np.percentile(ends, [3, 97])  # those of the first few tasks would dwarf the rest
        room = room or float(most - least)
        low, high = max(min(low, float(least)), low - room), min(max(high, float(most)), high + room)
    if high > low:
        margin = 0.06 * (high - low)
        low, high = low - margin, high + margin
        axes.set_ylim(low, high)
    return bool(ends.size and (ends.min() < low or ends.max() > high))


def _seeds(runs: Sequence[Run]) -> str:
    counts = sorted({len(run.seeds) for run in runs})
    return f"{' or '.join(map(str, counts))} seed{'s' if counts != [1] else ''}"


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
