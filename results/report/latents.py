"""The latents of all tasks as the world posterior has them when a run is over, against the hidden factor.

    python results/report/latents.py runs/latent-0 runs/latent-1 results/report/latents

Records hold the latent of a task as it was when the task ended. What is learned later moves all of them, so only those
of one moment can be compared. This reads them from the checkpoint, and writes NAME.csv and NAME.png.
"""

import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import posterity
from posterity.experiment import checkpoint
from posterity.report.robust import rank_correlation

LATENTS = "state.world.posterior.latents.mean"  # [L, E, K, Z]


def main(paths: list[str], out: str) -> None:
    plt.rcParams |= {"font.size": 8, "axes.grid": True, "grid.alpha": 0.4}
    figure, axes = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    rows: list[tuple[float, ...]] = []
    factor = posterity.read(paths[0]).factor_names[0]
    for path, marker, colour in zip(paths, "os^v", ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=False):
        run = posterity.read(path)
        hidden, then = run.factors[0, :, 0], run.latent[0, :, 0]
        found = checkpoint.read_all(Path(path) / "checkpoints" / "state.safetensors")[LATENTS][0, 0, :, 0]
        rank, recorded = (rank_correlation(hidden, each) for each in (found, then))
        label = f"seed {run.seeds[0]}, rank correlation {abs(rank):.2f}"
        print(
            f"seed {run.seeds[0]}: {rank:.2f} at the end of the run, {recorded:.2f} as recorded at the end of each task"
        )
        axes.plot(hidden, found * np.sign(rank), marker, color=colour, markersize=4, alpha=0.8, label=label)
        rows += [
            (run.seeds[0], task, *map(float, each))
            for task, each in enumerate(zip(hidden, found, then, strict=True), 1)
        ]
    axes.set(xlabel=f"{factor}, never told to the learner", ylabel="latent z at the end of the run")
    figure.legend(loc="outside upper center", fontsize=7)
    figure.savefig(f"{out}.png", dpi=200)
    with Path(f"{out}.csv").open("w", newline="", encoding="utf-8") as file:
        written = csv.writer(file)
        written.writerow(("seed", "task", factor, "z at the end of the run", "z at the end of the task"))
        written.writerows((*row[:2], *(f"{each:.5g}" for each in row[2:])) for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:-1], sys.argv[-1])
