"""Our scores beside the paper's Table 1, as a Markdown table, from the evaluations in run folders.

    python results/table1/beside.py results/table1 results/baselines
    python results/table1/beside.py results/table1 results/baselines --tasks 5      # only the first five tasks of ours

The paper's numbers are in paper.csv beside this file (Fu et al., NeurIPS 2022, Table 1: mean and one standard
deviation, over tasks and three seeds; its LPG-FTW and EWC have twice VBLRL's samples, as ours have).
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from posterity.report.metrics import Run, interval, read_run
from posterity.report.scores import evaluated, read_scores

# the paper's name: ours; `blend` is no score of the paper's
SCORES = {
    "zero-shot": "zero-shot",
    "start": "start",
    "train": "train",
    "back": "back-confidence",
    "blend": "back-blend",
}


def paper() -> dict[tuple[str, str, str], str]:
    """(family, method, score) -> mean ± deviation."""
    with (Path(__file__).parent / "paper.csv").open(encoding="utf-8") as file:
        return {
            (row["family"], row["method"], row["score"]): f"{float(row['mean']):.0f} ± {float(row['spread']):.0f}"
            for row in csv.DictReader(file)
        }


def line(run: Run, tasks: int | None) -> str:
    """One run: of how many tasks its scores are, then ours and the paper's for each."""
    published, cells, count = paper(), [], 0
    for name, ours in SCORES.items():
        scores = read_scores(run, ours)
        returns = np.full((len(run.seeds), 1), np.nan) if scores is None else scores.returns[:, :tasks]
        count = max(count, int(np.isfinite(returns).all(axis=0).sum()))
        cells.append("-" if scores is None else str(interval(returns[:, np.isfinite(returns).all(axis=0)])))
        if name in ("start", "train", "back"):
            cells.append(published.get((run.family, run.method, name), "-"))
    who = [run.family, run.path.name.removeprefix(f"{run.family}-"), str(count)]
    return f"| {' | '.join([*who, *cells, f'{run.wall / 60:.0f}'])} |"


def main() -> None:
    """Every run below the folders that was evaluated."""
    asked = argparse.ArgumentParser()
    asked.add_argument("folders", nargs="*", type=Path, default=[Path("results")])
    asked.add_argument("--tasks", type=int)
    told = asked.parse_args()
    print(
        "| family | method | tasks | zero-shot | Start | paper | Train | paper | Back | paper | Back, blend | minutes |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    paths = [path.parent for folder in told.folders for path in folder.glob("**/config.toml")]
    runs = evaluated([read_run(path) for path in paths])
    for run in sorted(runs, key=lambda run: (run.family, run.method != "vblrl", run.path.name)):
        print(line(run, told.tasks))


if __name__ == "__main__":
    main()
