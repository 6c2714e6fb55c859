"""Figures that set runs of one method beside each other, or look at one run: particles, and the transfer matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from posterity.experiment.records import Run
from posterity.report import drawing
from posterity.report.drawing import Drawing, Named
from posterity.report.figures import styled
from posterity.report.metrics import flattened, mean_known
from posterity.report.model_figures import made
from posterity.report.tables import View
from posterity.types import FloatArray

MAY_DIFFER = ("agent.planner.particles", "preset", "seed", "seeds", "tasks", "save_every", "snapshots")  # in one group


@styled
def particles(runs: Sequence[Run], view: View) -> Drawing | None:
    """Particles of a plan, against return and against hours; against the time of a step, if some did more of them."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[int, Run]]] = {}
    for run in runs:
        count = run.config.get("agent", {}).get("planner", {}).get("particles")
        if isinstance(count, int):
            others = tuple((k, v) for k, v in sorted(flattened(run.config).items()) if k not in MAY_DIFFER)
            groups.setdefault(others, []).append((count, run))
    several = [sorted(group, key=_count) for group in groups.values() if len({count for count, _ in group}) > 1]
    if not several:
        return None
    figure, [upper, lower] = drawing.figure(rows=2, height=3.6, sharex=True)
    looks = drawing.named([group[0][1] for group in several])
    alike = len({_steps(run) for group in several for _, run in group}) == 1
    rows: list[tuple[str | float, ...]] = []
    most = 0.0
    for look, group in zip(looks, several, strict=True):
        means = [mean_known(_means(run, view), axis=0) for _, run in group]
        times = [_hours(run) if alike else _seconds(run) for _, run in group]
        counts = [count for count, _ in group]
        upper.plot(counts, means, "o", color=look.colour, label=look.label, gid=look.gid)
        lower.plot(counts, times, "o", color=look.colour, label=look.label, gid=look.gid)
        for count, (_, run), mean in zip(counts, group, means, strict=True):
            low, high = _ends(_means(run, view))
            upper.plot([count, count], [low, high], color=look.colour, linewidth=1, gid=look.gid)
            rows.append((look.label, run.path.name, float(count), float(mean), low, high, _seconds(run), _hours(run)))
        most = max(most, *times)
    shown = sorted({count for group in several for count, _ in group})
    lower.set_xscale("log", base=2)
    lower.set_xticks(shown, [str(count) for count in shown])
    lower.minorticks_off()
    upper.set(ylabel="mean return")
    lower.set(xlabel="particles of a plan", ylabel="hours of a run" if alike else "seconds / 1,000 steps")
    lower.set_ylim(0, 1.15 * most)
    drawing.legend(upper, looks, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    below = "hours of a run, of all seeds together" if alike else "seconds for a thousand steps of all seeds together"
    caption = (
        "Runs that differ in the number of particles, and else in nothing but seeds and tasks. Above: mean return over "
        f"all iterations, with 95 % intervals over seeds. Below: wall-clock {below}, learning included. Times compare "
        "only where runs had the same machine to themselves."
    )
    columns = ("series", "run", "particles", "mean", "low", "high", "seconds_per_1000_steps", "hours")
    return made(runs, "particles", "Particles, return and time", caption, figure, columns, rows)


def _count(pair: tuple[int, Run]) -> int:
    return pair[0]


def _means(run: Run, view: View) -> FloatArray:
    """[L]."""
    part = view.of(run).returns
    return mean_known(part.reshape(part.shape[0], -1), axis=1)


def _ends(sample: FloatArray) -> tuple[float, float]:
    low, high = drawing.band(sample[:, None])
    return float(low[0]), float(high[0])


def _steps(run: Run) -> int:
    """That a seed has taken."""
    return int(np.isfinite(run.returns).any(axis=0).sum()) * run.config["steps_per_iteration"]


def _seconds(run: Run) -> float:
    """Of a thousand steps."""
    return 1000 * run.wall_seconds / max(1, _steps(run))


def _hours(run: Run) -> float:
    """That it took so far."""
    return run.wall_seconds / 3600


@styled
def matrix(each: Named, values: FloatArray, view: View) -> Drawing | None:
    """The transfer matrix of one run: returns in a task (column) after a task was learned (row)."""
    mean = mean_known(values, axis=0)
    tasks = int(np.max(np.flatnonzero(np.isfinite(mean).any(axis=0)), initial=-1)) + 1
    if tasks < 2 or np.isfinite(np.tril(mean, k=-1)[np.tril_indices(len(mean), -1)]).sum() == 0:
        return None
    mean = mean[:tasks, :tasks]
    figure, [axes] = drawing.figure(height=3.0)
    axes.set_facecolor((0.54, 0.54, 0.54, 0.3))
    first = view.first_task
    low, high = first - 0.5, first + tasks - 0.5
    image = axes.imshow(mean, cmap="cividis", extent=(low, high, high, low), interpolation="nearest")
    figure.colorbar(image, ax=axes, label="mean return per episode", shrink=0.85)
    if tasks <= 8:
        middle = (np.nanmin(mean) + np.nanmax(mean)) / 2
        for row, column in zip(*np.nonzero(np.isfinite(mean)), strict=True):
            value = mean[row, column]
            ink = "white" if value < middle else "black"
            text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
            axes.text(column + first, row + first, text, ha="center", va="center", color=ink, fontsize=5.5)
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="task played", ylabel="after learning task")
    caption = (
        f"{each.label}, mean over {drawing.seeds([each.run])}. Diagonal: Train. One above it: zero-shot. "
        "Below it: Back, down a column as more tasks are learned. Grey was not played: posterity evaluate "
        "--back-every 1 plays all of it."
    )
    rows = [
        (float(i + first), float(j + first), float(mean[i, j]))
        for i in range(tasks)
        for j in range(tasks)
        if np.isfinite(mean[i, j])
    ]
    columns = ("after_task", "task", "mean_return")
    return made(
        [each.run],
        f"{drawing.slug(each.label)}-matrix",
        f"Transfer matrix of {each.label}",
        caption,
        figure,
        columns,
        rows,
    )
