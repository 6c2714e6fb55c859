"""Explorers beside each other on fresh worlds: writes peers/seeds.csv, table.csv and explorers.png.

    python results/finite/peers.py cells                the comparisons, one a line: a family and a way to act
    python results/finite/peers.py run "CELL"           one of them: adds the seeds that seeds.csv does not have
    python results/finite/peers.py table                table.csv from seeds.csv
    python results/finite/peers.py                      all of this, about twenty CPU minutes

A line of the table is the mean over seeds of the tasks from `first_task` on, with a 95 % interval (Student's t), and
the difference to `best` on the same seeds and tasks with its own interval. Runs are made in a folder that is thrown
away.
"""

import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from scipy import stats

import posterity
from posterity.experiment import truth
from posterity.report.metrics import suboptimal_steps

mpl.use("Agg")
HERE = Path(__file__).parent / "peers"
SCORES = ("steps", "return", "first return")
truth._radius = lambda *_: None  # most of the time of such short runs, and not needed here

WAYS: dict[str, dict[str, Any]] = {
    "best": {},
    "best, no transfer": {"transfer": False},
    "beb": {"explorer": "beb", "bonus": 1.0},
    "beb, no transfer": {"explorer": "beb", "bonus": 1.0, "transfer": False},
    "voi": {"explorer": "voi", "models": 10},
    "voi, no transfer": {"explorer": "voi", "models": 10, "transfer": False},
    "psrl": {"explorer": "psrl"},
    "psrl, no transfer": {"explorer": "psrl", "transfer": False},
    "certainty": {"explorer": "certainty"},
    "boss, as in the paper": {"explorer": "boss", "models": 5, "unknown": "world"},
    "boss, no transfer": {"explorer": "boss", "models": 5, "transfer": False},
}
KINDS: dict[str, dict[str, Any]] = {"best": {}, "best, kinds": {"kinds": 6}, "best, no transfer": {"transfer": False}}
BAMCP: dict[str, dict[str, Any]] = {"best": {}, "bamcp": {"explorer": "bamcp", "simulations": 60}}


class Place(NamedTuple):
    """Where ways are compared: a run for each of `worlds`, with seeds of its own."""

    family: str
    env: dict[str, Any]
    ways: dict[str, dict[str, Any]]
    worlds: tuple[int, ...]
    seeds: int
    late: int  # the first task that counts
    run: dict[str, Any]


LIKENESS = (1, 2, 5, 10, 20)
LIKENESSES = tuple(f"random-mdp {alike}" for alike in LIKENESS)
ALL = "random-mdp, all"
SHORT = {"tasks": 10, "iterations": 60}
PLACES = {
    **{
        f"random-mdp {alike}": Place("random-mdp", {"concentration": alike}, WAYS, (41, 42, 61, 62), 4, 5, SHORT)
        for alike in LIKENESS
    },
    "river-swim": Place("river-swim", {}, WAYS, (0,), 6, 5, {"tasks": 10}),
    "chain": Place("chain", {}, WAYS, (0,), 6, 5, {"tasks": 10}),
    "kinds": Place("random-mdp", {"concentration": 20, "kinds": 3}, KINDS, (41, 42), 4, 9, {**SHORT, "tasks": 16}),
    "bamcp": Place("river-swim", {}, BAMCP, (0,), 4, 3, {"tasks": 6, "iterations": 6}),
}


def interval(values: Any) -> tuple[float, float]:
    """Mean, and half the width of the 95 % interval, over seeds [L]."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def cells() -> list[str]:
    """Every family with every way, `best` first."""
    return [f"{name}: {way}" for name, place in PLACES.items() for way in place.ways]


def recorded() -> list[list[str]]:
    """The lines of seeds.csv."""
    if not (HERE / "seeds.csv").exists():
        return []
    with (HERE / "seeds.csv").open() as file:
        return list(csv.reader(file))


def measured(cell: str) -> Iterator[tuple[object, ...]]:
    """A line for every seed of a cell: steps not 1-optimal, return and first return, means over the late tasks."""
    name, way = cell.split(": ", 1)
    place = PLACES[name]
    had = {tuple(line[:3]) for line in recorded()}
    for number, world in enumerate(place.worlds):
        if (name, way, str(world)) in had:
            continue
        began = time.process_time()
        env = {**place.env, "world": world} if place.family == "random-mdp" else place.env
        with tempfile.TemporaryDirectory() as folder:
            made = posterity.run(
                place.family,
                preset="best",
                out=f"{folder}/run",
                seeds=place.seeds,
                seed=100 + number * place.seeds,
                env=env,
                agent=place.ways[way],
                measure_truth=True,
                **place.run,
            )
        found = suboptimal_steps(made, 1.0), made.returns.mean(axis=2), made.returns[:, :, 0]
        late = [part[:, place.late - 1 :].mean(axis=1) for part in found]
        seconds = (time.process_time() - began) / place.seeds
        for seed, row in enumerate(zip(*late, strict=True)):
            numbers = [f"{value:.5g}" for value in row]
            yield (name, way, world, 100 + number * place.seeds + seed, *numbers, f"{seconds:.1f}")


def run(cell: str) -> None:
    """Adds the seeds of a cell to seeds.csv."""
    lines = list(measured(cell))
    with (HERE / "seeds.csv").open("a", newline="") as file:
        csv.writer(file).writerows(lines)
    print(cell, f"{len(lines)} seeds", flush=True)


def averaged(rows: list[list[str]]) -> list[list[str]]:
    """Lines of `random-mdp, all`: for every seed the mean over the five likenesses, of ways that have them all."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    for line in {(line[0], line[1], line[3]): line for line in rows if line[0] in LIKENESSES}.values():
        found.setdefault((line[1], line[3]), []).append(line)
    return [
        [ALL, way, lines[0][2], seed, *(str(np.mean([float(line[n]) for line in lines])) for n in range(4, 8))]
        for (way, seed), lines in found.items()
        if len(lines) == len(LIKENESSES)
    ]


def table() -> None:
    """table.csv: every cell, alone and against `best` on the same seeds."""
    rows = [line for line in recorded() if line[0] in PLACES]
    rows += averaged(rows)
    lines: list[tuple[str, ...]] = [
        ("family", "way", "score", "mean", "half", "minus_best", "half_of_it", "seeds", "first_task", "seconds")
    ]
    for cell in [*cells(), *(f"{ALL}: {way}" for way in WAYS)]:
        name, way = cell.split(": ", 1)
        mine, best = ({line[3]: line for line in rows if line[:2] == [name, each]} for each in (way, "best"))
        if not mine:
            continue
        for column, score in enumerate(SCORES, start=4):
            values = np.array([float(line[column]) for line in mine.values()])
            apart = np.array([float(mine[seed][column]) - float(best[seed][column]) for seed in mine])
            numbers = [f"{number:.4g}" for number in (*interval(values), *interval(apart))]
            seconds = np.mean([float(line[7]) for line in mine.values()])
            late = PLACES[name].late if name in PLACES else 5
            lines.append((name, way, score, *numbers, str(len(values)), str(late), f"{seconds:.1f}"))
    with (HERE / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    drawn(lines)


def drawn(lines: list[tuple[str, ...]]) -> None:
    """explorers.png: steps by how alike tasks are."""
    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    ways = ("best", "best, no transfer", "beb", "voi", "psrl", "psrl, no transfer", "boss, as in the paper")
    for number, way in enumerate(ways):
        points = [
            (int(line[0].split()[1]), float(line[3]), float(line[4]))
            for line in lines
            if line[1:3] == (way, "steps") and line[0] in LIKENESSES
        ]
        if points:
            alike, mean, half = np.array(points).T
            shown = "best (ucb)" if way == "best" else way
            aside = 1.025 ** (number - 3)  # so that intervals do not cover each other
            axes.errorbar(
                alike * aside, mean, half, label=shown, capsize=3, linestyle="--" if "no transfer" in way else "-"
            )
    axes.set_xscale("log")
    axes.set_xticks(LIKENESS, [str(number) for number in LIKENESS])
    axes.minorticks_off()
    axes.set_ylim(0, 560)
    axes.set_xlabel("how alike tasks are (concentration of the hidden world)")
    axes.set_ylabel("steps of a task that are not 1-optimal")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "explorers.png", dpi=150)


def main(what: str, cell: str = "") -> None:
    HERE.mkdir(exist_ok=True)
    if what == "cells":
        print(*cells(), sep="\n")
    elif what == "run":
        run(cell)
    elif what == "table":
        table()
    else:
        (HERE / "seeds.csv").unlink(missing_ok=True)
        for each in cells():
            run(each)
        table()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["all"]))
