"""What all figures share: how they look, how a curve with its interval is drawn, and the numbers that are in them.

A figure is as wide as a column of a paper, so its text is as large as the paper's. Methods differ by colour (Okabe and
Ito's palette, told apart by colour-blind readers too) and by the kind of line or hatching.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posterity.errors import printable
from posterity.experiment.records import Run
from posterity.report.metrics import band, mean_known, told_apart
from posterity.report.sheet import shortened
from posterity.report.tables import View
from posterity.types import FloatArray

INK = "#1b1c1e"  # of text and axes: a page replaces it by its own
GREY = "#8a8a8a"
COLOURS = {  # a method keeps its colour from figure to figure
    "blrl": "#0072B2",
    "boss": "#D55E00",
    "vblrl": "#0072B2",
    "single-task": "#D55E00",
    "pooled": "#009E73",
    "hip-mdp": "#CC79A7",
    "actor-critic": "#000000",
    "npg": "#56B4E9",
    "ewc": "#CC79A7",
    "lpg-ftw": "#E69F00",
}
OTHERS = ("#CC79A7", "#56B4E9", "#E69F00", "#009E73", "#D55E00", "#0072B2")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "///", "\\\\\\", "xx", "---", "|||")
LABEL = 30  # characters of a name that a figure has room for
WIDTH, HEIGHT = 3.5, 2.6  # inches: a column of a paper
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "text.parse_math": False,  # a folder may have a dollar in its name
    "savefig.dpi": 200,
    "svg.hashsalt": "posterity",
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched, and is small
}


class Drawing(NamedTuple):
    """One figure, what it says, and the numbers that are in it."""

    name: str  # of its files
    family: str
    title: str
    caption: str
    figure: Figure
    columns: tuple[str, ...]
    rows: list[tuple[str | float, ...]]

    def csv(self) -> str:
        """The numbers, to five digits."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[f"{x:.5g}" if isinstance(x, float) else x for x in row] for row in self.rows])
        return text.getvalue()


class Named(NamedTuple):
    """A run as it looks in every figure of a report."""

    label: str
    colour: str
    line: Any
    hatch: str
    run: Run

    @property
    def gid(self) -> str:
        """What its marks are called in an SVG, so that a page can hide them."""
        return f"method-{slug(self.run.method)}"


class Drawn(NamedTuple):
    """A curve that was drawn."""

    name: str
    across: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray

    def rows(self, *first: str) -> list[tuple[str | float, ...]]:
        """Its points: name, x, mean, low, high."""
        points = zip(self.across, self.mean, self.low, self.high, strict=True)
        return [(*first, self.name, *map(float, point)) for point in points if np.isfinite(point[1])]


CURVE = ("series", "x", "mean", "low", "high")  # columns of the points of curves


def slug(text: str) -> str:
    """A name without anything that a file or a page could take amiss."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100] or "family"


def figure(rows: int = 1, columns: int = 1, height: float = HEIGHT, **kwargs: Any) -> tuple[Figure, list[Axes]]:
    """A figure of the width of a column, and its axes."""
    made = Figure(figsize=(WIDTH * (1 if columns == 1 else 1.9), height), layout="constrained")
    return made, list(made.subplots(rows, columns, squeeze=False, **kwargs).flat)


def named(runs: Sequence[Run]) -> list[Named]:
    """Each run with a label and a look of its own."""
    methods = [run.method for run in runs]
    taken = {COLOURS.get(method) for method in methods}
    spare = iter([colour for colour in OTHERS if colour not in taken])
    full = told_apart(runs, methods)
    labels = [printable(label).lstrip("_") or "?" for label in shortened(full, LABEL)]  # "_" hides a legend's entry
    found: list[Named] = []
    for index, run in enumerate(runs):
        colour = COLOURS.get(run.method) if run.method not in methods[:index] else None
        colour = None if colour in [each.colour for each in found] else colour
        line, hatch = LINES[index % len(LINES)], HATCHES[index % len(HATCHES)]
        found.append(Named(labels[index], colour or next(spare, GREY), line, hatch, run))
    return found


def curve(axes: Axes, across: FloatArray, sample: FloatArray, each: Named) -> Drawn:
    """Draws the mean of `sample` [n, x] with its 95 % band."""
    low, high = band(sample)
    mean = mean_known(sample, axis=0)
    axes.plot(across, mean, color=each.colour, linestyle=each.line, label=each.label, gid=each.gid)
    axes.fill_between(across, low, high, color=each.colour, alpha=0.2, linewidth=0, gid=each.gid)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return Drawn(each.label, across, mean, low, high)


def frame(axes: Axes, curves: Sequence[Drawn]) -> bool:
    """Limits that hold all means and nearly all of the bands. Tells whether a band is cut.

    The bands get at most as much room above the means as the means have, and as much below: intervals over two seeds
    are so wide that curves would be flat lines.
    """
    means = _known([curve.mean for curve in curves])
    ends = _known([end for curve in curves for end in (curve.low, curve.high)])
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


def _known(parts: Sequence[FloatArray]) -> FloatArray:
    whole = np.concatenate([np.zeros(0), *parts])
    return whole[np.isfinite(whole)]


def legend(axes: Axes, runs: Sequence[Named], **kwargs: Any) -> None:
    """The legend, whose entries are called as the marks they stand for."""
    labels = axes.get_legend_handles_labels()[1]
    if not labels:
        return
    made = axes.legend(**kwargs)
    gids = {each.label: each.gid for each in runs}
    for text, handle in zip(made.get_texts(), made.legend_handles, strict=True):
        gid = next((gid for label, gid in gids.items() if text.get_text().startswith(label)), None)
        if gid and handle is not None:
            text.set_gid(gid)
            handle.set_gid(gid)


def thinned(values: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """Where along the last axis of [..., n], and the means there, of at most `most` stretches of the same length."""
    count = values.shape[-1]
    length = max(1, -(-count // most))
    whole = -(-count // length) * length
    padded = np.concatenate([values, np.full((*values.shape[:-1], whole - count), np.nan)], axis=-1)
    places = np.concatenate([np.arange(1.0, count + 1), np.full(whole - count, np.nan)])
    across = mean_known(places.reshape(-1, length), axis=1)
    return across, mean_known(padded.reshape(*values.shape[:-1], -1, length), axis=-1)


def finished(returns: FloatArray) -> np.ndarray:
    """[K] which tasks were met to their end; if there are none, which were met: a curve is over the same tasks."""
    known = np.isfinite(returns)
    done = np.asarray(known.all(axis=(0, 2)))
    return done if done.any() else np.asarray(known.any(axis=(0, 2)))


def shared(runs: Sequence[Run], view: View) -> tuple[int, bool]:
    """How many tasks of the view all runs have finished that have finished any there, and whether some have more.

    What is compared is compared over the same tasks.
    """
    counts = {int(finished(view.of(run).returns).sum()) for run in runs} - {0}
    return min(counts, default=0), len(counts) > 1


def over_tasks(values: FloatArray) -> FloatArray:
    """[L, iterations] the mean over the tasks that were met; one lane's spread is over its tasks."""
    return values[0] if values.shape[0] == 1 else mean_known(values, axis=1)


def seeds(runs: Sequence[Run]) -> str:
    """How many seeds there are, in words."""
    counts = sorted({len(run.seeds) for run in runs})
    return f"{' or '.join(map(str, counts))} seed{'s' if counts != [1] else ''}"


def doubt(runs: Sequence[Run]) -> str:
    """What the bands are, in a sentence."""
    over = "seeds" if all(len(run.seeds) > 1 for run in runs) else "seeds, or over the tasks of a single one"
    return f"Bands are 95 % intervals over {over} ({seeds(runs)})."


def save(drawing: Drawing, out: Path) -> list[Path]:
    """The figure as PNG and SVG, and its numbers."""
    paths = save_figure(drawing.figure, out / drawing.name)
    table = out / f"{drawing.name}.csv"
    table.write_text(drawing.csv(), encoding="utf-8")
    return [*paths, table]


def save_figure(made: Figure, stem: Path) -> list[Path]:
    """PNG and SVG."""
    paths = [stem.with_name(f"{stem.name}{kind}") for kind in (".png", ".svg")]
    for path in paths:
        made.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
