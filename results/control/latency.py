"""The figure of latency in docs/control.md, from what `posterity bench control --json` printed.

python results/control/latency.py
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
COLOURS = {"pendulum": "#0072B2", "hopper": "#D55E00"}


def main() -> None:
    """One panel for each rate, one line of steps for each machine."""
    figure, axes = plt.subplots(1, 2, figsize=(7.0, 2.6), sharey=True, layout="constrained")
    for machine, colour in COLOURS.items():
        measured = json.loads((HERE / f"bench-{machine}-2-cores.json").read_text())["measured"]
        rows = [row for row in measured if row["measured"] == "latency"]
        for axis, row in zip(axes, rows, strict=True):
            edges, counts = np.array(row["histogram_edges_ms"]), np.array(row["histogram"])
            axis.stairs(counts / np.diff(edges), edges, color=colour, label=machine, linewidth=1.5)
            axis.set_title(f"{row['rate_hz']} Hz")
            axis.axvline(row["budget_ms"], color="0.5", linewidth=1)
            axis.axvline(row["budget_ms"] + row["slack_ms"], color="0.5", linewidth=1, linestyle="--")
            axis.set(xlim=(0, 20), xlabel="ms from observation to action")
    axes[0].set_ylabel("actions a ms, of 500")
    axes[1].legend(frameon=False, title="solid: budget\ndashed: with slack")
    figure.savefig(HERE / "latency.png", dpi=140)


if __name__ == "__main__":
    main()
