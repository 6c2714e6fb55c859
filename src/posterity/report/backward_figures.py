"""Going back, beside learning: what tasks bring when they are played again after the last one has been learned.

The paper's figures of Reach: curves while learning with the line VBLRL-Backward, and its ways of going back as lines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posterity.experiment.records import Run
from posterity.report import drawing
from posterity.report.drawing import CURVE, LINES, OTHERS, Drawing, Drawn, Named
from posterity.report.figures import curves_within, styled
from posterity.report.metrics import interval
from posterity.report.model_figures import made
from posterity.report.scores import head, known
from posterity.report.tables import View


@styled
def backward(runs: Sequence[Run], view: View) -> Drawing | None:
    """Return within a task of all runs, and Back of those that plan it with two models (Algorithm 2) as flat lines."""
    methods = drawing.named(runs)
    both = [each for each in methods if each.run.back != "back" and "back" in known(each.run, view)]
    if not both:
        return None
    looks = [each._replace(label=f"{each.label}, Back", line=(0, (1, 1))) for each in both]
    figure, axes = _empty([*methods, *looks])
    tasks, curves = curves_within(axes, methods, view)
    if not curves:
        return None
    count = _tasks(runs, view)
    curves += [_flat(axes, look, "back", view, count, place) for place, look in enumerate(looks)]
    cut = _finished(axes, [*methods, *looks], curves)
    caption = (
        f"Curves: mean return in each iteration of a task, while learning, over {tasks}. Flat lines: Back, the same "
        f"tasks played after the last one, without learning. {drawing.doubt(runs)} Upright lines: those of Back.{cut}"
    )
    rows = [row for curve in curves for row in curve.rows()]
    return made(runs, "backward", "Learning, and going back", caption, figure, CURVE, rows)


@styled
def ways_back(each: Named, view: View) -> Drawing | None:
    """Return within a task of one run, and every way in which its Back was played as a flat line."""
    names = [name for name in known(each.run, view) if name.startswith("back")]
    if len(names) < 2:
        return None
    each = each._replace(line="-")
    colours = [each.colour, *(colour for colour in OTHERS if colour != each.colour)]
    looks = [
        each._replace(
            label=head(each.run.back if name == "back" else name),
            colour=colours[place % len(colours)],
            line=LINES[1 + place % (len(LINES) - 1)],
        )
        for place, name in enumerate(names)
    ]
    figure, axes = _empty([each, *looks])
    tasks, curves = curves_within(axes, [each], view)
    if not curves:
        return None
    count = _tasks([each.run], view)
    curves += [_flat(axes, look, names[place], view, count, place) for place, look in enumerate(looks)]
    cut = _finished(axes, [each, *looks], curves)
    caption = (
        f"{each.label}. Curve: mean return in each iteration of a task, while learning, over {tasks}. Flat lines: the "
        "same tasks played after the last one, without learning, by the more confident of both models, by both "
        f"blended, or by one of them alone. {drawing.doubt([each.run])} Upright lines: those of Back.{cut}"
    )
    rows = [row for curve in curves for row in curve.rows()]
    name, title = f"{drawing.slug(each.label)}-ways-back", f"Ways of going back, {each.label}"
    return made([each.run], name, title, caption, figure, CURVE, rows)


def _empty(looks: Sequence[Named]) -> tuple[Figure, Axes]:
    """A figure with room for a legend below."""
    figure, [axes] = drawing.figure(height=drawing.HEIGHT + 0.15 * -(-len(looks) // _abreast(looks)))
    return figure, axes


def _abreast(looks: Sequence[Named]) -> int:
    """How many labels fit beside each other."""
    return max(1, min(3, 40 // max(len(each.label) for each in looks)))


def _tasks(runs: Sequence[Run], view: View) -> int:
    """How many tasks of the view curves are over."""
    return drawing.shared(runs, view)[0]


def _flat(axes: Axes, look: Named, name: str, view: View, tasks: int, place: int) -> Drawn:
    """A score's mean over those tasks as a line across the figure, with its interval at the end of it."""
    score = interval(known(look.run, view)[name].returns[:, :tasks])
    iterations = look.run.returns.shape[2]
    end = iterations + 0.03 * max(1, iterations - 1) * (1 + place)  # the intervals stand side by side
    axes.plot([1, end], [score.mean] * 2, color=look.colour, linestyle=look.line, label=look.label, gid=look.gid)
    if np.isfinite(score.high):
        axes.plot([end, end], [score.low, score.high], color=look.colour, linewidth=2.4, alpha=0.6, gid=look.gid)
    return Drawn(look.label, *(np.array([each]) for each in (float(iterations), *score[:3])))


def _finished(axes: Axes, looks: Sequence[Named], curves: Sequence[Drawn]) -> str:
    """Frames and labels the axes; a sentence, if a band is cut."""
    cut = drawing.frame(axes, curves)
    axes.set(ylabel="mean return per episode")
    drawing.legend(axes, looks, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=_abreast(looks))
    return " A band that leaves the frame goes on." if cut else ""
