"""The table and the figure of docs/families/point-goal.md, from the runs beside this file.

    python results/point-goal/compare.py

Regret is what the Bayes-optimal explorer earns less what was earned: 43.2 in the first episode of a task, 53.2 in
a later one. Numbers are means over tasks from FROM on, for each seed; intervals are 95 % by Student's t over seeds.
"""

from pathlib import Path

import numpy as np
from scipy import stats

import posterity
from posterity.report import drawing
from posterity.report.drawing import GREY, OTHERS
from posterity.report.figures import styled
from posterity.report.metrics import band

HERE = Path(__file__).parent
FROM = 9  # the first task that counts, of 1 and up
OPTIMUM, LATER, THOMPSON = 43.2, 53.2, 27.4
RUNS = ("vblrl", "hip-mdp", "posterior-off", "pooled", "single-task")
WINDOW = 3  # tasks in a point of a curve


def shown(values: np.ndarray) -> str:
    """Mean and half of the 95 % interval over seeds [L]."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.1f} ± {half:.1f}"


def main() -> None:
    """Prints a Markdown table and draws the first episodes."""
    found = {name: posterity.read(HERE / name).returns for name in RUNS if (HERE / name).exists()}  # [L, K, I]
    print("| learner | first episode | its regret | last episode | its regret | goal seen in the first |")
    print("|---|---|---|---|---|---|")
    for name, returns in found.items():
        late = returns[:, FROM - 1 :]
        first, last = late[:, :, 0].mean(axis=1), late[:, :, -1].mean(axis=1)
        seen = 100 * (late[:, :, 0] > 0).mean(axis=1)
        cells = [shown(first), shown(OPTIMUM - first), shown(last), shown(LATER - last), f"{shown(seen)} %"]
        print(f"| {name} | {' | '.join(cells)} |")
    curves(found).savefig(HERE / "first-episodes.png", dpi=200)


@styled
def curves(found: dict[str, np.ndarray]) -> drawing.Figure:
    """The return of first episodes over the stream of tasks."""
    figure, [axes] = drawing.figure(height=3.0)
    for index, (name, returns) in enumerate(found.items()):
        kernel = np.ones(WINDOW) / WINDOW
        smooth = np.stack([np.convolve(seed, kernel, mode="valid") for seed in returns[:, :, 0]])
        across = np.arange(smooth.shape[1]) + (WINDOW + 1) / 2
        low, high = band(smooth)
        colour = drawing.COLOURS.get(name, OTHERS[2 * index % len(OTHERS)])
        axes.plot(across, smooth.mean(axis=0), color=colour, linestyle=drawing.LINES[index], label=name)
        axes.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)
    for value, text in ((OPTIMUM, "Bayes-optimal"), (THOMPSON, "Thompson sampling")):
        axes.axhline(value, color=GREY, linewidth=1, linestyle=":")
        axes.text(1, value + 0.6, text, color=GREY, fontsize=7)
    axes.set(xlabel=f"task (mean of {WINDOW})", ylabel="return of the first episode", ylim=(-3, 47))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    main()
