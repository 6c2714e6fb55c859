"""Which explorer `best` should have in rivers, on seeds that nothing was chosen on: writes peers/rivers.csv.

    python results/finite/rivers.py        two CPU minutes

A line: the first of twelve seeds, a way to act, and over tasks 5 to 10 the steps that were not 1-optimal with a 95 %
interval, and the difference to certainty equivalence on the same seeds with its own.
"""

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import posterity
from posterity.experiment import truth
from posterity.report.metrics import suboptimal_steps
from posterity.types import FloatArray

truth._radius = lambda *_: None  # most of the time of such short runs, and not needed here
WAYS: dict[str, dict[str, Any]] = {
    "certainty": {"explorer": "certainty"},
    "ucb 0.25": {"explorer": "ucb", "bonus": 0.25},
    "ucb 0.5": {"explorer": "ucb", "bonus": 0.5},
    "beb": {"explorer": "beb", "bonus": 1.0},
    "voi": {"explorer": "voi", "models": 10},
    "psrl": {"explorer": "psrl"},
}


def interval(values: FloatArray) -> tuple[str, str]:
    """Mean, and half the width of the 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.3g}", f"{half:.3g}"


def steps(seed: int, agent: dict[str, Any]) -> FloatArray:
    """[12] of each seed."""
    with tempfile.TemporaryDirectory() as folder:
        sizes: dict[str, Any] = {"seeds": 12, "tasks": 10, "measure_truth": True}
        run = posterity.run("river-swim", preset="best", out=f"{folder}/run", seed=seed, agent=agent, **sizes)
    return suboptimal_steps(run, 1.0)[:, 4:].mean(axis=1)


def main() -> None:
    lines: list[tuple[object, ...]] = [("seeds from", "way", "steps", "+-", "minus certainty", "+-")]
    for seed in (300, 400):
        found = {way: steps(seed, agent) for way, agent in WAYS.items()}
        for way, values in found.items():
            lines.append((seed, way, *interval(values), *interval(values - found["certainty"])))
            print(*lines[-1])
    with (Path(__file__).parent / "peers" / "rivers.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
