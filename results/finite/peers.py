"""Explorers beside each other on fresh worlds: writes peers/table.csv, a line for each family, setting and number.

    python results/finite/peers.py [family ...]         about twenty minutes on one core

Runs are made in a folder that is thrown away; the table has the settings of each. Intervals are Student's t over seeds.
"""

import csv
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import posterity
from posterity.experiment import truth
from posterity.report.metrics import suboptimal_steps

HERE = Path(__file__).parent / "peers"
TASK = {"unknown": "task"}
WAYS: dict[str, dict[str, Any]] = {
    "best": {},
    "voi": {"explorer": "voi", "models": 10},
    "psrl": {"explorer": "psrl"},
    "psrl, no transfer": {"explorer": "psrl", "transfer": False},
    "beb": {"explorer": "beb"},
    "certainty": {"explorer": "certainty"},
    "boss, as in the paper": {"explorer": "boss", "models": 5, "unknown": "world"},
    "boss, no transfer": {"explorer": "boss", "models": 5, "transfer": False},
}
truth._radius = lambda *_: None  # most of the time of such short runs, and not needed here
SLOW: dict[str, dict[str, Any]] = {"best": {}, "bamcp": {"explorer": "bamcp", "simulations": 60}}


def interval(values: Any) -> tuple[float, float]:
    """Mean, and half the width of the 95 % interval, over seeds [L]."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def measured(family: str, worlds: tuple[int, ...], seeds: int, env: dict[str, Any], agent: dict[str, Any], **run: Any):
    """[L, K] steps not 1-optimal, return and first return of every task, over worlds and seeds."""
    found: list[list[Any]] = []
    for number, world in enumerate(worlds):
        place = {**env, "world": world} if family == "random-mdp" else env
        with tempfile.TemporaryDirectory() as folder:
            made = posterity.run(
                family,
                preset="best",
                out=f"{folder}/run",
                seeds=seeds,
                seed=number * seeds,
                env=place,
                agent=agent,
                measure_truth=True,
                **run,
            )
        found.append([suboptimal_steps(made, 1.0), made.returns.mean(axis=2), made.returns[:, :, 0]])
    return [np.concatenate(part) for part in zip(*found, strict=True)]


def compared(name: str, family: str, ways: dict[str, dict[str, Any]], late: int, **more: Any) -> None:
    """Writes the lines of one comparison. Tasks from number `late` on count."""
    for way, agent in ways.items():
        began = time.process_time()
        numbers = measured(family, agent=agent, **more)
        seconds = time.process_time() - began
        with (HERE / "table.csv").open("a", newline="") as file:
            for score, values in zip(("steps", "return", "first return"), numbers, strict=True):
                mean, half = interval(values[:, late - 1 :].mean(axis=1))
                row = [name, way, score, f"{mean:.4g}", f"{half:.3g}", len(values), values.shape[1], late]
                csv.writer(file).writerow([*row, f"{seconds:.0f}"])
        print(
            name,
            way,
            [f"{interval(v[:, late - 1 :].mean(axis=1))[0]:.4g}" for v in numbers],
            f"{seconds:.0f} s",
            flush=True,
        )


def main(chosen: list[str]) -> None:
    HERE.mkdir(exist_ok=True)
    table = HERE / "table.csv"
    if not table.exists():
        table.write_text("family,way,score,mean,half,seeds,tasks,first_task,cpu_seconds\n")
    for alike in (1, 2, 5, 20):
        if f"random-mdp-{alike}" in chosen:
            env = {"concentration": alike}
            compared(f"random-mdp {alike}", "random-mdp", WAYS, 5, worlds=(21, 22), seeds=3, env=env, tasks=12)
    for family in ("river-swim", "chain"):
        if family in chosen:
            compared(family, family, WAYS, 5, worlds=(0,), seeds=5, env={}, tasks=12)
    if "kinds" in chosen:
        ways = {"best, one kind": {}, "best, up to 6 kinds": {"kinds": 6}, "best, no transfer": {"transfer": False}}
        env = {"concentration": 20, "kinds": 3}
        compared("random-mdp of 3 kinds", "random-mdp", ways, 9, worlds=(21, 22), seeds=3, env=env, tasks=18)
    if "bamcp" in chosen:
        compared("river-swim, short", "river-swim", SLOW, 3, worlds=(0,), seeds=3, env={}, tasks=6, iterations=6)


if __name__ == "__main__":
    main(sys.argv[1:] or ["river-swim", "chain", *(f"random-mdp-{n}" for n in (20, 5, 1, 2)), "kinds", "bamcp"])
