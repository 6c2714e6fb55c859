"""What `posterity bench uncertainty` measured, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from scipy.stats import t

from posterity.report import drawing
from posterity.report.drawing import COLOURS, GREY, OTHERS
from posterity.report.figures import styled
from posterity.report.sheet import Sheet
from posterity.types import Record

NEAR, FAR, NEW, FITTED = "in distribution", "out of distribution", "new task", "new task, fitted"
MARKERS = ("o", "s", "^", "D")
COLUMNS = {"model_rmse": "error", "coverage_90": "in the 90 %", "aleatoric_std": "chance", "epistemic_std": "doubt"}


def sheet(measured: Sequence[Record]) -> Sheet:
    """One row for each posterior, place and number of transitions; doubt far away stands beside that nearby."""
    far = {_place(row): row for row in measured if row["where"] == FAR}
    rows = []
    for row in measured:
        if row["where"] != FAR:
            away = far.get(_place(row)) if row["where"] == NEAR else None
            words = str(row["posterior"]), str(row["where"]), f"{row['transitions']:,}"
            last = _number(away, "epistemic_std") if away else ""
            rows.append((*words, *(_number(row, name) for name in COLUMNS), last))
    head = ("posterior", "where", "transitions", *COLUMNS.values(), "doubt far away")
    notes = ["Errors and deviations are in units of what varies in the first task"]
    if any("epistemic_std_spread" in row for row in measured):
        notes.append("± is one standard deviation over learners")
    return Sheet("What doubt is worth", head, rows, tuple(notes), words=2)


def _place(row: Record) -> tuple[object, object]:
    return row["posterior"], row["transitions"]


def _number(row: Record, name: str) -> str:
    if name not in row:
        return ""
    spread = row.get(f"{name}_spread")
    return f"{row[name]:.3f}" + (f" ± {spread:.3f}" if spread is not None else "")


@styled
def figure(record: Mapping[str, object]) -> Figure:
    """Doubt with data, near and far (above), and how often 90 % intervals hold (below), for every kind of posterior.

    `record` is what the bench prints with `--json`.
    """
    measured: list[Record] = list(record["measured"])  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
    made, [doubt, coverage] = drawing.figure(rows=2, height=4.6)
    kinds = list(dict.fromkeys(str(row["posterior"]) for row in measured))
    for index, kind in enumerate(kinds):
        colour = COLOURS["vblrl"] if index == 0 else OTHERS[index]
        look = {"color": colour, "marker": MARKERS[index % len(MARKERS)], "markersize": 3.5}
        own = [row for row in measured if row["posterior"] == kind]
        for where, line in ((NEAR, "-"), (FAR, ":")):
            _line(doubt, [row for row in own if row["where"] == where], "epistemic_std", linestyle=line, **look)
        near = [row for row in own if row["where"] == NEAR]
        _line(coverage, near, "coverage_90", linestyle="-", label=kind, **look)
        _new_tasks(coverage, [row for row in own if row["where"] in (NEW, FITTED)], index, colour)
    _finish(doubt, coverage, measured)
    handles, names = coverage.get_legend_handles_labels()
    made.legend(handles, names, loc="outside lower center", ncols=2)
    return made


def _interval(row: Record, name: str) -> float:
    """Half of the 95 % interval of a mean over learners."""
    spread, lanes = row.get(f"{name}_spread"), int(row.get("lanes", 1))
    return 0.0 if spread is None else float(spread) / lanes**0.5 * float(t.ppf(0.975, lanes - 1))


def _line(axes: Axes, rows: Sequence[Record], name: str, **look: object) -> None:
    mean = np.array([row[name] for row in rows])
    half = np.array([_interval(row, name) for row in rows])
    low = np.minimum(half, 0.9 * mean)  # a logarithmic axis has no zero
    axes.errorbar([row["transitions"] for row in rows], mean, [low, half], elinewidth=0.8, capsize=1.5, **look)  # pyright: ignore[reportArgumentType]


def _new_tasks(axes: Axes, rows: Sequence[Record], index: int, colour: str) -> None:
    """Coverage in a new task, right of the numbers of transitions: before any, after a few, after more, and fitted."""
    places = 30_000.0 * 2.2 ** (np.arange(len(rows)) + 0.09 * index)
    half = [_interval(row, "coverage_90") for row in rows]
    look = {"marker": MARKERS[index % len(MARKERS)], "markersize": 3.5, "linestyle": "none", "color": colour}
    axes.errorbar(places, [row["coverage_90"] for row in rows], half, elinewidth=0.8, capsize=1.5, **look)  # pyright: ignore[reportArgumentType]


def _finish(doubt: Axes, coverage: Axes, measured: Sequence[Record]) -> None:
    counts = sorted({int(row["transitions"]) for row in measured if row["where"] == NEAR})
    first = str(measured[0]["posterior"])
    new = [row for row in measured if row["posterior"] == first and row["where"] in (NEW, FITTED)]
    names = [f"{row['transitions']}" + (" fit" if row["where"] == FITTED else "") for row in new]
    doubt.set(xscale="log", yscale="log", ylabel="doubt (deviation)", xlabel="transitions of the task")
    doubt.set_xticks(counts, [f"{count:,}" for count in counts])
    doubt.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    doubt.set_title("solid: in distribution, dotted: out of it")
    places = list(30_000.0 * 2.2 ** (np.arange(len(names)) + 0.13))
    coverage.set(xscale="log", ylabel="share in the 90 % interval")
    coverage.set_xticks([*counts, *places], [*(f"{count:,}" for count in counts), *names], rotation=45)
    coverage.axhline(0.9, color=GREY, linestyle=":", linewidth=1.2)
    coverage.axvline(18_000, color=GREY, linewidth=0.8)
    coverage.set_xlabel("transitions of the first task | of a new one")
    for axes in (doubt, coverage):
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
