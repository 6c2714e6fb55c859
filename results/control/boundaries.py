"""What a run that had to detect its tasks has detected: delay, false alarms and tasks that were recognised.

    posterity run FAMILY --boundaries detect --env.recurring 0.5 --seed 0 --out runs/detect-0      and seeds 1 to 4
    posterity run FAMILY --env.recurring 0.5 --seeds 5 --out runs/told
    python results/control/boundaries.py runs/told runs/detect-*

A change is detected by the first switch after it and before the next. All other switches are false alarms. A task that
comes back is recognised if, when it ends, the same task is believed to be the present one as when it ended before.
"""

import json
import lzma
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

Line = dict[str, Any]


def _lines(run: Path) -> list[str]:
    """Of the records of a run, which may be compressed."""
    packed = run / "records.jsonl.xz"
    text = lzma.decompress(packed.read_bytes()).decode() if packed.exists() else (run / "records.jsonl").read_text()
    return text.splitlines()


def read(run: Path) -> dict[int, list[Line]]:
    """The records of a run by seed."""
    seeds: dict[int, list[Line]] = {}
    for text in _lines(run):
        line = json.loads(text)
        if line["kind"] != "header":
            seeds.setdefault(line["seed"], []).append(line)
    return seeds


def detected(lines: list[Line]) -> dict[str, float]:
    """The measures of one seed."""
    tasks = {line["task"]: json.dumps(line["factors"]) for line in lines if line["kind"] == "task"}
    delays, alarms, missed, again, known = [], 0, 0, 0, 0
    believed: dict[str, int] = {}  # what was believed when a task last ended
    for task, factors in tasks.items():
        iterations = [line for line in lines if line["kind"] == "iteration" and line["task"] == task]
        if not iterations:  # the run ended before
            continue
        switches = sum(line["switches"] for line in iterations)
        first = [(n, line) for n, line in enumerate(iterations) if line["switches"]]
        if task > 0 and first:
            number, line = first[0]
            delays.append(number * line["steps"] + line["switch_first_step"])
            switches -= 1
        elif task > 0:
            missed += 1
        alarms += switches
        last = iterations[-1]["believed_task"]
        if factors in believed:
            again += 1
            known += last == believed[factors]
        believed[factors] = last
    steps = sum(line["steps"] for line in lines if line["kind"] == "iteration")
    return {
        "changes": len(tasks) - 1,
        "missed": missed,
        "median_delay": float(np.median(delays)) if delays else float("nan"),
        "false_alarms_per_1000_steps": 1000 * alarms / steps,
        "returns": again,
        "recognised": known,
        "tasks_believed": len({line["believed_task"] for line in lines if line["kind"] == "iteration"}),
        "tasks": len(set(tasks.values())),
    }


def returns(lines: list[Line]) -> dict[int, list[float]]:
    """Of every iteration, by task."""
    told: dict[int, list[float]] = {}
    for line in lines:
        if line["kind"] == "iteration":
            told.setdefault(line["task"], []).append(round(line["return"], 3))
    return told


def mean_return(lines: list[Line], after: int = 1) -> float:
    """Over all iterations of all tasks but the first."""
    return float(np.mean([line["return"] for line in lines if line["kind"] == "iteration" and line["task"] >= after]))


def interval(values: list[float]) -> str:
    """The mean over seeds and its 95 % interval, by Student's t."""
    whole = np.array(values)
    half = stats.t.ppf(0.975, len(whole) - 1) * whole.std(ddof=1) / np.sqrt(len(whole)) if len(whole) > 1 else np.nan
    return f"{whole.mean():.1f} ± {half:.1f}"


def main(told: str, *detect: str) -> None:
    """Prints a line for each seed, and the returns of both."""
    seeds = {seed: lines for run in detect for seed, lines in read(Path(run)).items()}
    for seed, lines in sorted(seeds.items()):
        print(seed, json.dumps(detected(lines)))
    ours = {seed: mean_return(lines) for seed, lines in seeds.items()}
    theirs = {seed: mean_return(lines) for seed, lines in read(Path(told)).items() if seed in ours}
    print("detect", interval(list(ours.values())))
    print("told", interval(list(theirs.values())))
    print("detect - told, by seed", interval([ours[seed] - theirs[seed] for seed in theirs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
