"""What each part of vblrl is worth: the table of docs/methods/vblrl.md, from the runs that `make.sh` made.

    python results/ablations/table.py runs/ablations     # the runs' returns into records.json, then the table
    python results/ablations/table.py                    # the table from records.json

A difference is one without the part minus the whole, by seed, on the same tasks: the mean over tasks after the first
of the return of the first iteration, and of the last two. Intervals are 95 % by Student's t over seeds.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import posterity

RECORDS = Path(__file__).parent / "records.json"
FIRST, LAST = slice(0, 1), slice(-2, None)


def gathered(runs: Path) -> dict[str, dict[str, Any]]:
    """Of every run FAMILY-PART its command, its seeds and its returns [L, K, I]."""
    found = {}
    for path in sorted(runs.glob("*/config.toml")):
        run = posterity.read(path.parent)
        command = str(run.sessions[0]["command"]).split(" --out ")[0]
        found[path.parent.name] = {
            "command": command,
            "seeds": list(run.seeds),
            "returns": np.round(run.returns, 2).tolist(),
        }
    return found


def shown(values: np.ndarray) -> str:
    """Mean and half of the 95 % interval over seeds [L]."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.1f} ± {half:.1f}"


def later(returns: list[Any], part: slice, first_task: int) -> np.ndarray:
    """[L] of the tasks from `first_task` on that were met to their end."""
    values = np.array(returns, dtype=float)
    whole = [task for task in range(first_task, values.shape[1]) if np.isfinite(values[:, task]).all()]
    return values[:, whole, part].mean(axis=(1, 2))


def main() -> None:
    """Prints a Markdown table."""
    if len(sys.argv) > 1:
        RECORDS.write_text(json.dumps(gathered(Path(sys.argv[1])), separators=(",", ":")) + "\n")
    records = json.loads(RECORDS.read_text())
    print("| family | | first iteration | last two |\n|---|---|---|---|")
    for name, run in records.items():
        family, _, part = name.partition("-")
        whole = records[f"{family}-full"]["returns"]
        first_task = len(whole[0]) // 2 if family == "point_goal" else 1
        for_seeds = [[later(each, part_, first_task) for part_ in (FIRST, LAST)] for each in (run["returns"], whole)]
        if part == "full":
            print(f"| {family} | whole: its return | {' | '.join(map(shown, for_seeds[1]))} |")
        else:
            differences = [own - full for own, full in zip(*for_seeds, strict=True)]
            print(f"| {family} | {part} | {' | '.join(map(shown, differences))} |")


if __name__ == "__main__":
    main()
