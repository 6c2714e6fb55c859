"""Our scores beside the paper's Table 1, as a Markdown table, from the evaluations in run folders.

    python results/table1/beside.py results/baselines results/table1

The paper's numbers are in paper.csv beside this file (Fu et al., NeurIPS 2022, Table 1: mean and what follows its
plus-minus sign, over tasks and three seeds; its LPG-FTW and EWC have twice VBLRL's samples, as ours have).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from posterity.report.metrics import read_run
from posterity.report.scores import evaluated, intervals

SCORES = {"start": "start", "train": "train", "back": "back-confidence"}  # ours by the paper's name


def paper() -> dict[tuple[str, str, str], str]:
    """(family, method, score) -> mean ± spread."""
    with (Path(__file__).parent / "paper.csv").open(encoding="utf-8") as file:
        return {
            (row["family"], row["method"], row["score"]): f"{float(row['mean']):.0f} ± {float(row['spread']):.0f}"
            for row in csv.DictReader(file)
        }


def lines(folders: list[Path]) -> list[str]:
    """One line a run that was evaluated."""
    published = paper()
    made = ["| family | method | Start | paper | Train | paper | Back | paper |", "|---|---|---|---|---|---|---|---|"]
    paths = sorted(path.parent for folder in folders for path in folder.glob("**/config.toml"))
    for run in evaluated([read_run(path) for path in paths]):
        scores = intervals(run)
        cells = [run.family, run.path.name.removeprefix(f"{run.family}-")]
        for name, ours in SCORES.items():
            cells += [str(scores[ours]) if ours in scores else "-", published.get((run.family, run.method, name), "-")]
        made.append(f"| {' | '.join(cells)} |")
    return made


if __name__ == "__main__":
    print("\n".join(lines([Path(name) for name in sys.argv[1:]] or [Path("results")])))
