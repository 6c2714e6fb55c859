"""What is forgotten: each task's score at the end of a run minus its score when it was learned (Back - Train).

    python results/baselines/forgetting.py

The interval is over all pairs of seed and task, 95 % Student-t.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import stats

from posterity.report.metrics import read_run
from posterity.report.scores import read_scores


def line(name: str) -> str:
    """One run on hopper-gravity."""
    run = read_run(Path(__file__).parent / f"hopper-gravity-{name}")
    train, back = read_scores(run, "train"), read_scores(run, "back-confidence")
    if train is None or back is None:
        raise SystemExit(f"{run.path} was not evaluated")
    lost = back.returns - train.returns
    half = stats.t.ppf(0.975, lost.size - 1) * lost.std(ddof=1) / np.sqrt(lost.size)
    seeds = ", ".join(f"{seed:.0f}" for seed in lost.mean(axis=1))
    means = f"{train.returns.mean():.0f} | {back.returns.mean():.0f} | {lost.mean():.0f} ± {half:.0f}"
    return f"| {name} | {means} | {seeds} |"


if __name__ == "__main__":
    print("| | Train | Back | Back - Train | by seed |\n|---|---|---|---|---|")
    print("\n".join(line(name) for name in ("fine-tune", "ewc", "lpg-ftw", "npg")))
