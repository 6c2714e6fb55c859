"""Every metric of every run in one table: mean with its interval over seeds, interquartile mean with its bootstrap.

The names of the metrics say whose formulas they are; docs/metrics.md has the formulas.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity.experiment.records import Run
from posterity.report import lifelong, robust
from posterity.report.metrics import Interval, called, interval
from posterity.report.robust import Bootstrapped
from posterity.report.scores import head, known
from posterity.report.sheet import Sheet
from posterity.report.tables import PLACE, View, keys_of, numbers, opening, place, spans
from posterity.types import FloatArray

REFERENCES = ("single-task", "boss")  # methods that transfer nothing: what transfer is measured against
ITERATIONS = "iterations until single-task's end"
NEVER = "share of tasks that never reach it"


class Metric(NamedTuple):
    """One number of a run."""

    run: Run
    name: str
    last_task: int
    value: Interval  # mean and 95 % interval over seeds; of iterations the median and quartiles
    robust: Bootstrapped  # interquartile mean and its stratified bootstrap

    def texts(self) -> tuple[str, str]:
        """Both, for people."""
        return shown(self.value), bounds(self.robust)


def shown(value: Interval) -> str:
    """A mean with its interval; a median with its quartiles."""
    if value.over != "quartiles" or np.isnan(value.mean):
        return str(value)
    return f"{value.mean:.3g} (quartiles {value.low:.3g} and {value.high:.3g})".replace("inf", "never")


def bounds(value: Bootstrapped) -> str:
    """A statistic and the ends of its interval, which need not be as far above as below."""
    if not np.isfinite(value.value):
        return "-"
    digits = 0 if abs(value.value) >= 100 else 3 if abs(value.value) < 10 else 1
    ends = f" [{value.low:.{digits}f}, {value.high:.{digits}f}]" if np.isfinite(value.low) else ""
    return f"{value.value:.{digits}f}{ends}"


def metrics(runs: Sequence[Run], view: View) -> list[Metric]:
    """All that the records of the runs have."""
    return [metric for run in runs for metric in _of(run, reference_of(run, runs), view)]


def reference_of(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run without transfer, of the same family and budget of a task; none for a run that is one itself."""
    if run.method in REFERENCES:
        return None
    budget = ("iterations", "steps_per_iteration")
    fits = (
        other
        for method in REFERENCES
        for other in runs
        if other.method == method
        and other.family == run.family
        and all(other.config[name] == run.config[name] for name in budget)
    )
    return next(fits, None)


def arrays(run: Run, single: Run | None, view: View) -> dict[str, FloatArray]:
    """Metrics as arrays [L, K], by name; those that nothing is on record for may be all NaN."""
    part = view.of(run)
    matrix = lifelong.transfer_matrix(run)  # of all tasks: Back in those of the view is after the last of the run
    found = {head(name): scores.returns for name, scores in known(run, view).items()}
    found["within the first episode"] = lifelong.first_episode(part)
    found["backward transfer (GEM)"] = view.cut(lifelong.backward_transfer_gem(matrix))
    found["forgetting (Continual World)"] = view.cut(lifelong.forgetting_continual_world(matrix))
    found["forward transfer (GEM)"] = view.cut(lifelong.forward_transfer_gem(matrix, lifelong.untrained(run)))
    if single is not None:
        other = lifelong.reference(part, view.of(single), view.early)
        found["forward transfer (Continual World)"] = lifelong.forward_transfer_continual_world(part, other)
        scaled = lifelong.forward_transfer_continual_world_of_scaled_returns(part, other)
        found["forward transfer (Continual World, returns scaled)"] = scaled
        found["area above single-task"] = lifelong.area_difference(part, other)
        found[ITERATIONS] = lifelong.iterations_to_level(part, other)
    return found


def _of(run: Run, single: Run | None, view: View) -> list[Metric]:
    made = []
    for name, values in arrays(run, single, view).items():
        tasks = np.flatnonzero((~np.isnan(values)).any(axis=0))
        if not tasks.size:
            continue
        last = view.first_task + int(tasks[-1])
        if name == ITERATIONS:
            low, middle, high = _quartiles(values[~np.isnan(values)])
            nothing = Bootstrapped(np.nan, np.nan, np.nan)
            made.append(Metric(run, name, last, Interval(middle, low, high, "quartiles"), nothing))
            late = np.where(np.isnan(values), np.nan, np.isinf(values).astype(float))
            made.append(Metric(run, NEVER, last, interval(late), nothing))
        else:
            made.append(Metric(run, name, last, interval(values), robust.bootstrap(values, robust.interquartile_mean)))
    return made


def _quartiles(cases: FloatArray) -> tuple[float, float, float]:
    """Quartiles and median of numbers of which some may be infinite."""
    longest = 1e12  # stands for never
    found = np.percentile(np.minimum(cases, longest), [25, 50, 75])
    low, middle, high = np.where(found > longest / 1e3, np.inf, found)
    return float(low), float(middle), float(high)


def sheet(found: Sequence[Metric], view: View) -> Sheet | None:
    """One line a run and metric."""
    if not found:
        return None
    runs = list({id(each.run): each.run for each in found}.values())
    labels = dict(zip(map(id, runs), called(runs), strict=True))
    which, tasks = spans(view, [each.last_task for each in found])
    lines = [(labels[id(each.run)], *cell, each.name, *each.texts()) for cell, each in zip(tasks, found, strict=True)]
    over = " or ".join(sorted({each.value.over for each in found} - {"quartiles"}))
    notes = (
        f"± 95 % interval over {over}",
        "In brackets: 95 % stratified bootstrap, which takes the tasks of a seed as independent",
        "docs/metrics.md has each formula",
    )
    titles = (*opening(tasks), "metric", "mean", "interquartile mean")
    keys = [keys_of(each.run) for each in found]
    return Sheet(f"Transfer and forgetting{which}", titles, lines, notes, len(titles) - 2, keys)


def write_csv(found: Sequence[Metric], view: View, path: Path) -> None:
    """One line per run and metric."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        robust_names = ("interquartile_mean", "bootstrap_low", "bootstrap_high")
        writer.writerow((*PLACE, "mean", "low", "high", "over", *robust_names, "run"))
        for each in found:
            more = (f"{x:.6g}" for x in each.robust)
            where = place(each.run, view, each.last_task, each.name)
            writer.writerow((*where, *numbers(each.value), *more, each.run.folders))
