"""Figures of what a model believed: its doubt, its forecasts, its calibration, whose prediction counted, its latent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from posterity.experiment.records import Run
from posterity.report import drawing
from posterity.report.drawing import CURVE, GREY, Drawing, Named
from posterity.report.figures import styled
from posterity.report.robust import rank_correlation
from posterity.report.tables import View
from posterity.types import FloatArray

POINTS = 100  # of a curve over all iterations
DOTS = 250  # of a run in a cloud
MARKERS = ("o", "s", "^", "D", "v", "P")


@styled
def uncertainty(runs: Sequence[Run], view: View) -> Drawing | None:
    """Both kinds of uncertainty over time: of the model, which data take away, and of the world, which they do not."""
    telling = [run for run in runs if np.isfinite(run.epistemic_std).any()]
    if not telling:
        return None
    figure, panels = drawing.figure(rows=2, height=3.6, sharex=True)
    methods, rows = drawing.named(telling), []
    for axes, kind in zip(panels, ("epistemic", "aleatoric"), strict=True):
        for each in methods:
            part = view.of(each.run)
            values = part.epistemic_std if kind == "epistemic" else part.aleatoric_std
            across, sample = drawing.thinned(_stream(values), POINTS)
            sample = np.where(sample > 0, sample, np.nan)  # the axis is logarithmic
            rows += drawing.curve(axes, across, sample, each).rows(kind)
        means = [row[3] for row in rows if row[0] == kind and isinstance(row[3], float) and row[3] > 0]
        axes.set(ylabel=f"{kind} std", yscale="log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        if means:
            axes.set_ylim(min(means) / 1.6, max(means) * 1.6)
    iterations = telling[0].returns.shape[2]
    last = max(view.last([run]) for run in telling) - view.first_task + 1
    if all(run.returns.shape[2] == iterations for run in telling) and last <= 40:
        for axes in panels:
            for task in range(1, last):
                axes.axvline(task * iterations + 0.5, color=GREY, linewidth=0.5, alpha=0.6, zorder=0)
    panels[1].set(xlabel="iteration, task after task")
    drawing.legend(panels[0], methods)
    caption = (
        "What the acting model did not know when it predicted an iteration's steps, before it learned from them. "
        "Epistemic: the spread over sampled networks, which falls with data. Aleatoric: the noise that the networks "
        f"predict, which stays. Grey lines: a new task begins. {drawing.doubt(telling)}"
    )
    return made(telling, "uncertainty", "Two kinds of uncertainty", caption, figure, ("kind", *CURVE), rows)


def _stream(values: FloatArray) -> FloatArray:
    """[L, K x iterations] up to the last that is on record."""
    flat = values.reshape(values.shape[0], -1)
    known = np.flatnonzero(np.isfinite(flat).any(axis=0))
    return flat[:, : known[-1] + 1] if known.size else flat[:, :1]


@styled
def forecasts(runs: Sequence[Run], view: View) -> Drawing | None:
    """What plans promised for their horizon, against what came."""
    methods, rows = drawing.named(runs), []
    figure, [axes] = drawing.figure(height=3.1)
    for index, each in enumerate(methods):
        part = view.of(each.run)
        known = np.isfinite(part.forecast) & np.isfinite(part.forecast_realised)
        if known.sum() < 3:
            continue
        promised, came = part.forecast[known], part.forecast_realised[known]
        alike = rank_correlation(promised, came)
        pick = np.arange(0, len(promised), max(1, -(-len(promised) // DOTS)))
        axes.plot(
            promised[pick],
            came[pick],
            MARKERS[index % len(MARKERS)],
            color=each.colour,
            markersize=2.6,
            alpha=0.55,
            markeredgewidth=0,
            label=f"{each.label}, rank correlation {alike:.2f}",
            gid=each.gid,
        )
        rows += [(each.label, float(x), float(y)) for x, y in zip(promised[pick], came[pick], strict=True)]
    if not rows:
        return None
    _identity(axes, np.array([row[1:] for row in rows], dtype=float))
    axes.set(xlabel="return that plans predicted", ylabel="return that followed")
    drawing.legend(axes, methods)
    caption = (
        "A dot is an iteration: the mean return that plans predicted over their horizon, and the mean return over as "
        "many steps that followed. On the dotted line the forecast came true; below it, plans promised too much. At "
        f"most {DOTS} dots of a run are drawn. The rank correlation (Spearman's) is over all its iterations."
    )
    columns = ("series", "forecast", "realised")
    return made(runs, "forecast", "Forecast against reality", caption, figure, columns, rows)


def _identity(axes: Axes, points: FloatArray) -> None:
    """The line of forecasts that come true, and a frame that holds nearly all points."""
    low, high = np.percentile(points, [0.5, 99.5])
    margin = 0.08 * (high - low) or 1.0
    low, high = float(low - margin), float(high + margin)
    axes.plot([low, high], [low, high], ":", color=GREY, linewidth=1.2, label="forecast came true")
    axes.set(xlim=(low, high), ylim=(low, high))


@styled
def calibration(runs: Sequence[Run], view: View) -> Drawing | None:
    """How often the truth lay inside the model's 90 % interval, over the iterations of a task."""
    telling = [run for run in runs if np.isfinite(run.coverage_90).any()]
    if not telling:
        return None
    figure, [axes] = drawing.figure()
    methods, rows, lows = drawing.named(telling), [], []
    for each in methods:
        part = view.of(each.run)
        across, sample = drawing.thinned(drawing.over_tasks(part.coverage_90), POINTS)
        curve = drawing.curve(axes, across, sample, each)
        lows.append(float(np.nanmin(curve.mean)))
        rows += curve.rows()
    axes.axhline(0.9, color=GREY, linestyle=":", linewidth=1.4, label="calibrated: 0.90")
    axes.set(xlabel="iteration of a task", ylabel="share inside the 90 % interval")
    axes.set(ylim=(max(0.0, min(0.75, *lows) - 0.08), 1.02))
    drawing.legend(axes, methods, loc="lower right")
    caption = (
        "The share of an iteration's targets (reward and next state) inside the 90 % interval that the acting model "
        "gave before it learned from them. Above the dotted line it doubts too much, below it too little. "
        f"{drawing.doubt(telling)}"
    )
    return made(telling, "calibration", "Calibration", caption, figure, CURVE, rows)


@styled
def whose_prediction(runs: Sequence[Run], view: View) -> Drawing | None:
    """When going back: how many of a plan's predictions were the world model's."""
    telling = [run for run in runs if run.back in run.scores and np.isfinite(run.scores[run.back].world_reward).any()]
    if not telling:
        return None
    figure, panels = drawing.figure(rows=2, height=3.4, sharex=True)
    methods, rows = drawing.named(telling), []
    for axes, what in zip(panels, ("reward", "state"), strict=True):
        for each in methods:
            back = view.of(each.run).scores[each.run.back]
            share = back.world_reward if what == "reward" else back.world_state
            known = np.flatnonzero(np.isfinite(share).any(axis=0))
            if known.size:
                share = share[:, : known[-1] + 1]
                across = np.arange(view.first_task, view.first_task + share.shape[1], dtype=float)
                rows += drawing.curve(axes, across, share, each).rows(what)
        axes.axhline(0.5, color=GREY, linestyle=":", linewidth=1.2)
        axes.set(ylabel=f"of {what}s", ylim=(-0.03, 1.03))
    panels[0].set_title("share of predictions that were the world model's")
    panels[1].set(xlabel="task gone back to")
    drawing.legend(panels[0], methods)
    caption = (
        "When an earlier task is played again, each prediction is the world model's or that of the task's own model. "
        f"1 is all by the world model, 0 all by the task's. Bands are 95 % intervals over seeds "
        f"({drawing.seeds(telling)})."
    )
    return made(telling, "going-back", "Whose prediction counts", caption, figure, ("what", *CURVE), rows)


@styled
def latent(runs: Sequence[Run], view: View) -> Drawing | None:
    """What the latent has learned of the hidden factor."""
    telling = [each for each in drawing.named(runs) if _latent_known(view.of(each.run))]
    if not telling:
        return None
    figure, [axes] = drawing.figure()
    rows: list[tuple[str | float, ...]] = []
    factor = telling[0].run.factor_names[0]
    sizes = {each.run.latent.shape[2] for each in telling}
    for index, each in enumerate(telling):
        _dots(axes, each, MARKERS[index % len(MARKERS)], view, rows)
    axes.set(xlabel=f"{factor}, never told to the learner", ylabel="latent z")
    drawing.legend(axes, telling, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    chosen = (
        "Of several dimensions it is the one that follows the factor best, in each seed. " if max(sizes) > 1 else ""
    )
    caption = (
        f"A dot is a task: its hidden {factor}, and the mean of the latent that was inferred for it by its last "
        "iteration; what was learned later has moved it since. The sign of a latent means nothing, so each seed is "
        f"turned to rise. {chosen}A rank correlation "
        "(Spearman's, mean over seeds) near 1 says that the latent orders tasks as the factor does. With few tasks it "
        "is high by chance too."
    )
    columns = ("series", "seed", "task", factor, "z")
    return made(runs, "latent", "What the latent has learned", caption, figure, columns, rows)


def _latent_known(run: Run) -> bool:
    both = np.isfinite(run.latent).all(axis=2) & np.isfinite(run.factors).all(axis=2)
    return bool(run.latent.shape[2] and run.factors.shape[2] and (both.sum(axis=1) >= 3).any())


def _dots(axes: Axes, each: Named, marker: str, view: View, rows: list[tuple[str | float, ...]]) -> None:
    """The tasks of all seeds of a run."""
    part, drawn, alike = view.of(each.run), [], []
    for lane, seed in enumerate(part.seeds):
        known = np.isfinite(part.latent[lane]).all(axis=1) & np.isfinite(part.factors[lane, :, 0])
        if known.sum() < 3:
            continue
        hidden, found = part.factors[lane, known, 0], part.latent[lane, known]
        ranks = [rank_correlation(hidden, found[:, place]) for place in range(found.shape[1])]
        best = int(np.argmax(np.abs(ranks)))
        turned = found[:, best] * (1.0 if ranks[best] >= 0 else -1.0)
        alike.append(abs(ranks[best]))
        drawn.append(np.stack([hidden, turned]))
        tasks = view.first_task + np.flatnonzero(known)
        rows += [
            (each.label, float(seed), float(k), float(x), float(z))
            for k, x, z in zip(tasks, hidden, turned, strict=True)
        ]
    if drawn:
        hidden, turned = np.concatenate(drawn, axis=1)
        label = f"{each.label}, rank correlation {np.mean(alike):.2f}"
        axes.plot(hidden, turned, marker, color=each.colour, markersize=4, alpha=0.75, label=label, gid=each.gid)


def made(
    runs: Sequence[Run],
    name: str,
    title: str,
    caption: str,
    figure: drawing.Figure,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str | float, ...]],
) -> Drawing:
    """A drawing of the family of `runs`."""
    return drawing.Drawing(
        f"{drawing.slug(runs[0].family)}-{name}", runs[0].family, title, caption, figure, columns, list(rows)
    )
