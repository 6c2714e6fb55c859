"""Scores of several runs as of one, over the same first tasks, and beside others: what docs/results.md says of them.

    python results/table1/pooled.py 17 cheetah-gravity-vblrl cheetah-gravity-vblrl-2 cheetah-gravity-vblrl-3 \
        --against cheetah-gravity-hip-mdp

Folders are those beside this file. A seed counts once: of runs that share one, its mean. Differences are by Welch, and
by seed where both sides have the same seeds. Every score is also set against Train, and every way of going back against
confidence, by seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from posterity.report.metrics import read_run
from posterity.report.scores import columns, read_scores

HERE = Path(__file__).parent


def by_seed(names: Sequence[str], tasks: int) -> dict[str, dict[int, float]]:
    """Score -> seed -> mean over the first tasks; a score that not all runs have is left out."""
    found: dict[str, dict[int, list[float]]] = {}
    runs = [read_run(HERE / name) for name in names]
    shared = set.intersection(*(set(columns([run])) for run in runs))
    for run in runs:
        for name in columns([run]):
            scores = read_scores(run, name)
            if scores is not None and name in shared:
                for seed, returns in zip(run.seeds, scores.returns[:, :tasks], strict=True):
                    found.setdefault(name, {}).setdefault(seed, []).append(float(returns.mean()))
    return {name: {seed: float(np.mean(some)) for seed, some in seeds.items()} for name, seeds in found.items()}


def interval(values: Sequence[float]) -> str:
    """Mean ± the half of its 95 % Student-t interval."""
    error = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return f"{np.mean(values):.1f} ± {error:.1f}"


def welch(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Difference of means ± the half of its 95 % interval."""
    low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return f"{(low + high) / 2:.1f} ± {(high - low) / 2:.1f}"


def line(name: str, ours: dict[str, dict[int, float]], theirs: dict[str, dict[int, float]]) -> str:
    """One score."""
    values = ours[name]
    told = [f"{name}: {interval([*values.values()])}, {len(values)} seeds"]
    bases = ("train", "back-confidence") if name.startswith("back-") else ("train",)
    told += [
        f"minus {base} {interval([value - ours[base][seed] for seed, value in values.items()])}"
        for base in bases
        if base != name and base in ours
    ]
    if name in theirs:
        told.append(f"against {welch([*values.values()], [*theirs[name].values()])}")
        if values.keys() == theirs[name].keys():
            told.append(f"by seed {interval([value - theirs[name][seed] for seed, value in values.items()])}")
    return "; ".join(told)


def main() -> None:
    """Every score that all the runs have."""
    asked = argparse.ArgumentParser()
    asked.add_argument("tasks", type=int)
    asked.add_argument("runs", nargs="+")
    asked.add_argument("--against", nargs="+", default=[])
    told = asked.parse_args()
    ours = by_seed(told.runs, told.tasks)
    theirs = by_seed(told.against, told.tasks) if told.against else {}
    for name in ours:
        print(line(name, ours, theirs))


if __name__ == "__main__":
    main()
