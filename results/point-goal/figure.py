"""What is learned on point-goal: first and second episodes over the stream, and the map after it.

    posterity run point-goal --seeds 5 --seed 30 --out runs/vblrl     (likewise pooled, single-task, posterior-off)
    posterity join runs/vblrl --compact --out results/point-goal/vblrl
python results/point-goal/figure.py --map runs/vblrl              map.json, of the first seed's last checkpoint
python results/point-goal/figure.py                               learned.png and the table
"""

import argparse
import json
from pathlib import Path
from typing import cast

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import posterity
from posterity.agents.vblrl_state import VblrlState

HERE = Path(__file__).parent
METHODS = {"vblrl": "tab:blue", "posterior-off": "tab:purple", "pooled": "tab:orange", "single-task": "tab:green"}
OPTIMUM, THOMPSON = 43.2, 27.4  # of a first episode (docs/families/point-goal.md)
LATER = slice(20, 40)  # tasks 21 to 40


def save_map(run: str) -> None:
    """The prior's mean and deviation at every point, in units of the reward, and where the points are."""
    state = cast(VblrlState, posterity.load(run).state)
    assert state.reward_prior is not None
    scale = float(np.asarray(state.normaliser.target_scale)[0, 0])
    reach = 3.0 * np.asarray(state.normaliser.input_scale)[0, :2]
    prior = state.reward_prior
    points = round(np.sqrt(prior.mean.shape[1]))
    kept = {
        "low": (np.asarray(prior.centre)[0] - reach).tolist(),
        "high": (np.asarray(prior.centre)[0] + reach).tolist(),
        "mean": np.round(scale * np.asarray(prior.mean)[0].reshape(points, points), 3).tolist(),
        "std": np.round(scale * np.sqrt(np.asarray(prior.variance)[0]).reshape(points, points), 3).tolist(),
    }
    (HERE / "map.json").write_text(json.dumps(kept) + "\n")


def half(values: np.ndarray) -> np.ndarray:
    """Half of the 95 % interval over seeds [L, ...]."""
    return stats.t.ppf(0.975, len(values) - 1) * values.std(axis=0, ddof=1) / np.sqrt(len(values))


def spoken(values: np.ndarray) -> str:
    """Mean and interval over seeds [L]."""
    return f"{values.mean():.1f} ± {half(values):.1f}"


def main() -> None:
    """Draws the figure and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--map", metavar="RUN")
    if (run := parser.parse_args().map) is not None:
        save_map(run)
        return
    returns = {name: posterity.read(HERE / name).returns for name in METHODS}  # [5 seeds, 40 tasks, 2 episodes]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), width_ratios=(1.5, 1, 1), layout="constrained")
    for name, colour in METHODS.items():
        parts = returns[name][..., 0].reshape(len(returns[name]), -1, 10).mean(axis=2)  # means of ten tasks
        mean, wide, place = parts.mean(axis=0), half(parts), 5.5 + 10 * np.arange(parts.shape[1])
        axes[0].plot(place, mean, color=colour, label=name)
        axes[0].fill_between(place, mean - wide, mean + wide, color=colour, alpha=0.15, lw=0)
    for value, what in ((OPTIMUM, "Bayes-optimal"), (THOMPSON, "Thompson sampling, goals' distribution known")):
        axes[0].axhline(value, color="0.5", lw=1, ls=":")
        axes[0].text(4, value + 0.7, what, color="0.35", fontsize=8)
    axes[0].set(xlabel="task (means of ten)", ylabel="return of the first episode", ylim=(-3, 50))
    axes[0].legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, fontsize=8)
    kept = json.loads((HERE / "map.json").read_text())
    angle = np.linspace(0, np.pi, 100)
    extent = (kept["low"][0], kept["high"][0], kept["low"][1], kept["high"][1])
    for axis, part, title in ((axes[1], "mean", "expected reward"), (axes[2], "std", "how much tasks differ")):
        image = axis.imshow(np.array(kept[part]).T, origin="lower", extent=extent, cmap="viridis", vmin=0.0)
        axis.plot(np.cos(angle), np.sin(angle), color="white", lw=1, ls="--")
        axis.plot(0, 0, "o", color="white", ms=3)
        axis.set_title(f"{title}, after 40 tasks", fontsize=10)
        figure.colorbar(image, ax=axis, shrink=0.8)
    figure.savefig(HERE / "learned.png", dpi=110)
    print("| method | first episode | second episode | vblrl minus it, first | second |\n|---|---|---|---|---|")
    for name, each in returns.items():
        own = [each[:, LATER, episode].mean(axis=1) for episode in (0, 1)]
        away = [returns["vblrl"][:, LATER, episode].mean(axis=1) - own[episode] for episode in (0, 1)]
        minus = ["", ""] if name == "vblrl" else [spoken(part) for part in away]
        print(f"| {name} | {spoken(own[0])} | {spoken(own[1])} | {minus[0]} | {minus[1]} |")


if __name__ == "__main__":
    main()
