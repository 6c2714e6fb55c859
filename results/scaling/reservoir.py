"""How many transitions of a finished task have to stay: the same stream and seeds with few, more and all of them.

    OUT=DIR python results/scaling/reservoir.py --tasks 40 --time-limit 7m

One run with four seeds for each bound, all at once, each in a process of its own; the run folders are DIR/finished-N
(0 is everything). Then the mean return while learning tasks 21 and on, and Train and Back where they were played, are
compared with those of everything kept, paired by seed: DIR/reservoir.json. A bound changes nothing before a second
task begins, and differences need tasks to build up, hence the second half only.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy import stats

import posterity

BOUNDS = (0, 500, 250, 100, 25)  # 0: everything, which is 800 transitions
SIZES = "--iterations 4 --steps-per-iteration 200 --seeds 4 --network.hidden 32 32 --planner.horizon 16"
SIZES += " --planner.candidates 40 --planner.elites 5 --planner.cem-iterations 2 --planner.particles 3"
SIZES += " --learner.gradient-steps 200"


def run(place: Path, bound: int, tasks: int, limit: str) -> "subprocess.Popen[bytes]":
    """Starts the run with one bound."""
    words = ["run", "pendulum-gravity", "--method", "vblrl", *SIZES.split(), "--tasks", str(tasks)]
    words += ["--replay.finished-transitions", str(bound), "--time-limit", limit, "--out", str(place)]
    return subprocess.Popen([sys.executable, "-m", "posterity", *words], stdout=subprocess.DEVNULL)


def by_seed(place: Path, tasks: slice) -> list[float]:
    """The mean return of each seed over these tasks."""
    returns = posterity.read(place).returns  # [L, K, I]
    return [float(value) for value in np.nanmean(np.asarray(returns)[:, tasks], axis=(1, 2))]


def complete(place: Path) -> int:
    """Tasks of which all iterations are there."""
    returns = np.asarray(posterity.read(place).returns)
    return int(np.isfinite(returns).all(axis=(0, 2)).sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--time-limit", default="7m")
    parser.add_argument("--bounds", type=int, nargs="+", default=BOUNDS, help="0, everything, has to be among them")
    asked = parser.parse_args()
    out = Path(os.environ.get("OUT", "."))
    places = {bound: out / f"finished-{bound}" for bound in asked.bounds}
    processes = [run(place, bound, asked.tasks, asked.time_limit) for bound, place in places.items()]
    print([process.wait() for process in processes])
    tasks = min(complete(place) for place in places.values())
    later = slice(tasks // 2, tasks)
    told: dict[str, object] = {"tasks_all_have": tasks, "tasks_compared": [later.start + 1, later.stop], "bounds": {}}
    whole = by_seed(places[0], later)
    for bound, place in places.items():
        mine = by_seed(place, later)
        less = np.subtract(mine, whole)
        wide = stats.t.ppf(0.975, len(less) - 1) * np.std(less, ddof=1) / np.sqrt(len(less))
        told["bounds"][str(bound)] = {  # pyright: ignore[reportIndexIssue]
            "mean_return_by_seed": mine,
            "minus_everything": {"mean": float(less.mean()), "half_width_95": float(wide)},
        }
    text = json.dumps(told, indent=1)
    (out / "reservoir.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
