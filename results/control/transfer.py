"""What transfer is worth on the examples: the first episodes of later tasks, against a learner that begins each afresh.

    cd examples
    posterity run cartpole_masses.py:family --seeds 5 --out runs/cartpole_masses-vblrl
    posterity run cartpole_masses.py:family --seeds 5 --method single-task --out runs/cartpole_masses-single-task
    ...                                                                    and so for the other three
    python ../results/control/transfer.py runs ../results/control/transfer

Numbers are means over the tasks after the first of the return of their first (and second) iteration, for each seed;
intervals are 95 % by Student's t over seeds. Both learners meet the same tasks. Examples that are not among the runs
keep the numbers that they have in the JSON file.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import posterity

EXAMPLES = {
    "torque_gain": "Pendulum, hidden torque gain",
    "pole_mass": "InvertedDoublePendulum, hidden pole mass",
    "swimmer_viscosity": "Swimmer, hidden viscosity",
    "cartpole_masses": "CartPole, hidden masses and length",
}
METHODS = ("vblrl", "single-task")
ITERATIONS = 2  # of a later task, or one where a run ended before


def first_returns(run: Path, iterations: int) -> dict[str, list[list[float]]]:
    """[seeds][iterations] for the tasks after the first; those that both methods have met are compared."""
    returns = posterity.read(run).returns  # [L, K, I]
    return {
        str(task): returns[:, task, :iterations].tolist()
        for task in range(1, returns.shape[1])
        if np.isfinite(returns[:, task, :iterations]).all()
    }


def summary(runs: Path) -> dict[str, dict[str, list[list[float]]]]:
    """[seeds][iterations] means over tasks, for each example and method that is there."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for name in EXAMPLES:
        paths = [runs / f"{name}-{method}" for method in METHODS]
        if not all((path / "config.toml").exists() for path in paths):
            continue
        for iterations in range(ITERATIONS, 0, -1):
            both = [first_returns(path, iterations) for path in paths]
            common = sorted(set(both[0]) & set(both[1]))
            if common:
                break
        else:
            continue
        found[name] = {
            method: np.mean([each[task] for task in common], axis=0).round(3).tolist()
            for method, each in zip(METHODS, both, strict=True)
        }
        found[name]["tasks"] = [[float(task)] for task in common]
    return found


def interval(values: np.ndarray) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def main(runs: str, out: str) -> None:
    """Writes the numbers and the figure, and prints a table."""
    file = Path(f"{out}.json")
    found = (json.loads(file.read_text()) if file.exists() else {}) | summary(Path(runs))
    found = {name: found[name] for name in EXAMPLES if name in found}
    file.write_text(json.dumps(found, indent=1) + "\n")
    figure, axes = plt.subplots(1, len(found), figsize=(3 * len(found), 3), squeeze=False)
    for axis, (name, methods) in zip(axes[0], found.items(), strict=True):
        for shift, method in zip((-0.08, 0.08), METHODS, strict=True):
            told = [interval(column) for column in np.array(methods[method]).T]
            means, halves = zip(*told, strict=True)
            places = np.arange(len(told)) + 1 + shift
            axis.errorbar(places, means, halves, fmt="o", capsize=4, label=method)
            print(
                f"| {EXAMPLES[name]} | {method} |", " | ".join(f"{mean:.1f} ± {half:.1f}" for mean, half in told), "|"
            )
        difference = np.array(methods[METHODS[0]]) - np.array(methods[METHODS[1]])
        words = " | ".join(f"{mean:.1f} ± {half:.1f}" for mean, half in map(interval, difference.T))
        print(f"| {EXAMPLES[name]} | difference, by seed | {words} |")
        axis.set_title(EXAMPLES[name].replace(", ", "\n"), fontsize=9)
        axis.set(xticks=np.arange(ITERATIONS) + 1, xlim=(0.7, ITERATIONS + 0.3))
        axis.set_xlabel("iteration of a later task")
    axes[0, 0].set_ylabel("return")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(f"{out}.png", dpi=120)


if __name__ == "__main__":
    main(*sys.argv[1:])
