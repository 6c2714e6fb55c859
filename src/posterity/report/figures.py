"""Figures of returns: over the stream, within a task, as bars, solved tasks, and the paper's claim about the prior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posterity.experiment.records import Run
from posterity.report import drawing
from posterity.report.drawing import CURVE, GREY, STYLE, Drawing, Drawn, Named
from posterity.report.metrics import interval, rolling, solved, suboptimal_steps
from posterity.report.scores import HEADS, known
from posterity.report.tables import View

WIDE: Any = STYLE | {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 10,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "savefig.dpi": 150,
    "svg.fonttype": "path",
}
Args = ParamSpec("Args")
Made = TypeVar("Made")


def styled(draw: Callable[Args, Made]) -> Callable[Args, Made]:
    """A function that draws, in the style of all figures."""

    @wraps(draw)
    def drawn(*args: Args.args, **kwargs: Args.kwargs) -> Made:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def learning_curves(runs: Sequence[Run], view: View, stem: Path) -> list[Path]:
    """How a family is learned, in one wide figure: over tasks (left, if there are several), and within a task."""
    with mpl.rc_context(WIDE):
        several = max(run.returns.shape[1] for run in runs) > 1
        figure = Figure(figsize=(10 if several else 5.6, 3.8), layout="constrained")
        *left, inside = figure.subplots(1, 1 + several, sharey=True, squeeze=False)[0]
        methods = drawing.named(runs)
        curves = [curve for axes in left for curve in _over_tasks(axes, methods, view)]
        tasks, within = curves_within(inside, methods, view)
        first = (left or [inside])[0]
        first.set(ylabel="mean return per episode")
        (inside if tasks else first).legend()
        cut = ", cut by the frame" if drawing.frame(inside, [*curves, *within]) else ""
        figure.suptitle(f"{runs[0].family}, {drawing.seeds(runs)}, 95 % intervals{cut}")
        return drawing.save_figure(figure, stem)


@styled
def stream(runs: Sequence[Run], view: View) -> Drawing | None:
    """Return over the stream: what the first iterations of each task bring, task after task."""
    if max(run.returns.shape[1] for run in runs) < 2:
        return None
    figure, [axes] = drawing.figure()
    methods = drawing.named(runs)
    curves = _over_tasks(axes, methods, view)
    cut = " A band that leaves the frame goes on." if drawing.frame(axes, curves) else ""
    axes.set(ylabel="mean return per episode")
    drawing.legend(axes, methods)
    caption = (
        f"Mean return of the first {view.early} iterations of each task{_over(_window_of(runs))}. A method that "
        f"transfers rises: later tasks begin where earlier ones ended. {drawing.doubt(runs)}{cut}"
    )
    rows = [row for curve in curves for row in curve.rows()]
    return _drawing(runs, "stream", "Return over the stream", caption, figure, CURVE, rows)


@styled
def within_task(runs: Sequence[Run], view: View) -> Drawing | None:
    """Return within a task, iteration by iteration, over tasks that all runs have finished."""
    figure, [axes] = drawing.figure()
    methods = drawing.named(runs)
    tasks, curves = curves_within(axes, methods, view)
    if not curves:
        return None
    cut = " A band that leaves the frame goes on." if drawing.frame(axes, curves) else ""
    axes.set(ylabel="mean return per episode")
    drawing.legend(axes, methods)
    caption = f"Mean return in each iteration of a task, over {tasks}. {drawing.doubt(runs)}{cut}"
    rows = [row for curve in curves for row in curve.rows()]
    return _drawing(runs, "within", "Return within a task", caption, figure, CURVE, rows)


@styled
def scores(runs: Sequence[Run], view: View) -> Drawing | None:
    """Zero-shot, Start, Train and Back as bars."""
    methods = [each for each in drawing.named(runs) if known(each.run, view)]
    shown = [name for name in HEADS if any(name in known(each.run, view) for each in methods)]
    if not shown:
        return None
    figure, [axes] = drawing.figure()
    width, rows = 0.8 / len(methods), []
    for index, each in enumerate(methods):
        parts = known(each.run, view)
        found = [(place, interval(parts[name].returns)) for place, name in enumerate(shown) if name in parts]
        across = [place + (index - (len(methods) - 1) / 2) * width for place, _ in found]
        bars = axes.bar(
            across,
            [score.mean for _, score in found],
            0.92 * width,
            color=each.colour,
            hatch=each.hatch,
            edgecolor="white",
            linewidth=0,
            label=each.label,
        )
        for bar in bars:
            bar.set_gid(each.gid)
        for place, (_, score) in zip(across, found, strict=True):
            if np.isfinite(score.high):
                axes.plot([place, place], [score.low, score.high], color=drawing.INK, linewidth=0.9, gid=each.gid)
        rows += [(each.label, HEADS[shown[place]], *map(float, score[:3])) for place, score in found]
    axes.axhline(0, color=drawing.INK, linewidth=0.6)
    axes.set_xticks(range(len(shown)), [HEADS[name] for name in shown])
    axes.set(ylabel="mean return per episode")
    axes.grid(False, axis="x")
    abreast = max(1, min(3, 40 // max(len(each.label) for each in methods)))
    drawing.legend(axes, methods, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=abreast)
    caption = (
        "Played without learning. Zero-shot: the world model before any data of the task. Start: the task model when "
        "it first acts. Train: when the task is over. Back: earlier tasks after the last one. Lines are 95 % "
        f"intervals over seeds ({drawing.seeds(runs)})."
    )
    columns = ("series", "score", "mean", "low", "high")
    return _drawing(runs, "scores", "Start, Train and Back", caption, figure, columns, rows)


@styled
def solved_tasks(runs: Sequence[Run], view: View) -> Drawing | None:
    """How many tasks are solved in their first iteration, their second, and so on, as the paper counts them."""
    telling = [run for run in runs if np.isfinite(run.success).any()]
    tasks, _ = drawing.shared(telling, view) if telling else (0, False)
    if not tasks:
        return None
    figure, [axes] = drawing.figure()
    methods, rows = drawing.named(telling), []
    for each in methods:
        part = view.of(each.run)
        counted = solved(part._replace(success=part.success[:, drawing.finished(part.returns)][:, :tasks]))
        if counted is not None:
            across = np.arange(1.0, counted.over.shape[1] + 1)
            rows += drawing.curve(axes, across, counted.over, each).rows()
    axes.set(xlabel="iteration of a task", ylabel=f"tasks solved, of {tasks}", ylim=(-0.03 * tasks, 1.03 * tasks))
    drawing.legend(axes, methods)
    caption = (
        f"How many of {tasks} tasks are solved in their first iteration, their second, and so on. "
        f"{drawing.doubt(telling)}"
    )
    return _drawing(telling, "solved", "Solved tasks", caption, figure, CURVE, rows)


@styled
def prior_mass(runs: Sequence[Run], view: View, epsilon: float) -> Drawing | None:
    """The paper's claim: as tasks go by the prior-mass radius falls, and with it the steps a task takes to learn."""
    measured = [run for run in runs if np.isfinite(run.radius).any()]
    if not measured:
        return None
    figure, [upper, lower] = drawing.figure(rows=2, height=4.0, sharex=True)
    window, methods = _window(max(run.returns.shape[1] for run in measured)), drawing.named(measured)
    radii: list[Drawn] = []
    steps: list[Drawn] = []
    for each in methods:
        part = view.of(each.run)
        tasks = np.arange(view.first_task, view.first_task + part.radius.shape[1], dtype=float)
        radii.append(drawing.curve(upper, tasks, rolling(part.radius, window), each))
        steps.append(drawing.curve(lower, tasks, rolling(suboptimal_steps(part, epsilon), window), each))
    for axes, curves in ((upper, radii), (lower, steps)):
        drawing.frame(axes, curves)
        axes.set(ylim=(0, None))
    if np.isfinite(measured[0].hidden_radius).any():
        floor = float(np.nanmean(measured[0].hidden_radius))
        upper.axhline(floor, color=GREY, linestyle=":", linewidth=1.2, label="the hidden world itself")
    upper.set(ylabel="prior-mass radius")
    lower.set(xlabel="task", ylabel="steps not optimal")
    drawing.legend(upper, methods)
    caption = (
        "Above: the prior-mass radius of the prior that a task begins with. Below: steps of a task on which the policy "
        f"lost more than {epsilon:g} of value{_over(window)}. {drawing.doubt(measured)}"
    )
    rows = [row for curve in radii for row in curve.rows("radius")]
    rows += [row for curve in steps for row in curve.rows("steps not optimal")]
    return _drawing(measured, "transfer", "The prior comes closer", caption, figure, ("what", *CURVE), rows)


def _over_tasks(axes: Axes, methods: Sequence[Named], view: View) -> list[Drawn]:
    window, curves = _window_of([each.run for each in methods]), []
    for each in methods:
        early = each.run.returns[:, : max(1, View().last([each.run])), : view.early].mean(axis=2)
        curves.append(drawing.curve(axes, np.arange(1.0, early.shape[1] + 1), rolling(early, window), each))
    axes.set(xlabel="task")
    axes.set_title(f"first {view.early} iterations of each task{_over(window)}")
    return curves


def curves_within(axes: Axes, methods: Sequence[Named], view: View) -> tuple[str, list[Drawn]]:
    """Which tasks it is about, in words (none if there are none), and the curves."""
    count, more = drawing.shared([each.run for each in methods], view)
    curves = []
    for each in methods:
        part = view.of(each.run)
        inside = part.returns[:, drawing.finished(part.returns)][:, :count]
        if inside.shape[1]:
            across = np.arange(1.0, inside.shape[2] + 1)
            curves.append(drawing.curve(axes, across, drawing.over_tasks(inside), each))
    first, last = view.first_task, view.first_task + count - 1
    which = f"task {first}" if last <= first else f"tasks {first}-{last}"
    axes.set(xlabel="iteration of a task")
    axes.set_title(f"within {which}" if last <= first else f"within a task (mean of {which})")
    return (which + (", which all have finished" if more else "")) if count else "", curves


def _window_of(runs: Sequence[Run]) -> int:
    return _window(max(1, View().last(runs)))


def _window(tasks: int) -> int:
    """Tasks in a moving mean: about a twelfth of the stream."""
    return max(1, min(25, tasks // 12))


def _over(window: int) -> str:
    return f" (mean of {window} tasks)" if window > 1 else ""


def _drawing(
    runs: Sequence[Run],
    name: str,
    title: str,
    caption: str,
    figure: Figure,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str | float, ...]],
) -> Drawing:
    family = runs[0].family
    return Drawing(f"{drawing.slug(family)}-{name}", family, title, caption, figure, columns, list(rows))
