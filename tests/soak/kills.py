"""Kills runs at random moments and resumes them: what is left has to equal a run that was never stopped.

    python tests/soak/kills.py --kills 100                     (all methods; make soak does this)
    python tests/soak/kills.py --kills 20 --methods blrl boss --workers 2 --out results/soak/kills.jsonl

A trial starts a run, kills it (SIGKILL) after a random time, resumes it, kills that too, and so on until it has been
killed `--chain` times; then it is resumed to its end. Half of the kills wait until the run's folder is there, because
much of a short run is the start of Python. Records (without the clock), the state and every snapshot are compared
with those of a run without faults, which comes first and leaves its compiled programs in a cache for all others. A line
for every trial says how much was saved at each kill. The exit code is 1 if a single run differs.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity.experiment import checkpoint
from posterity.experiment.records import read_records

FINITE = ["--tasks", "4", "--iterations", "3", "--seeds", "2", "--snapshots"]
REAL = ["--tasks", "2", "--iterations", "2", "--steps-per-iteration", "20", "--seeds", "2", "--snapshots"]
POLICY = [*REAL, "--hidden", "8", "8"]
MODEL = [*REAL, "--network.hidden", "8", "8", "--planner.horizon", "4", "--planner.candidates", "8"]
MODEL += ["--planner.elites", "2", "--planner.cem-iterations", "1", "--planner.particles", "2"]
MODEL += ["--learner.gradient-steps", "3", "--task-min-transitions", "20", "--world-iterations", "1"]
MODEL += ["--replay.finished-transitions", "10"]
RUNS = {
    "blrl": ["random-mdp", *FINITE],
    "boss": ["random-mdp", *FINITE],
    "vblrl": ["pendulum-gravity", *MODEL],
    "single-task": ["pendulum-gravity", *MODEL],
    "pooled": ["pendulum-gravity", *MODEL],
    "hip-mdp": ["pendulum-gravity", *MODEL],
    "actor-critic": ["pendulum-gravity", *REAL, "--updates-per-step", "1", "--hidden", "8"],
    "npg": ["pendulum-gravity", *POLICY],
    "ewc": ["pendulum-gravity", *POLICY],
    "lpg-ftw": ["pendulum-gravity", *POLICY],
}


class Whole(NamedTuple):
    """A run that nothing happened to."""

    content: dict[str, object]
    seconds: float  # that it takes once everything is compiled
    begins: float  # seconds until its folder is there


def begun(method: str, out: Path) -> "subprocess.Popen[bytes]":
    """Starts the run, or resumes it where there is something to resume."""
    fresh = ["run", *RUNS[method], "--method", method, "--save-every", "0", "--out", str(out)]
    words = ["resume", str(out)] if (out / "config.toml").exists() else fresh
    return subprocess.Popen(
        [sys.executable, "-m", "posterity", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def ended(process: "subprocess.Popen[bytes]", after: float) -> bool:
    """Whether a process ends by itself within `after` seconds; else it is killed."""
    try:
        process.wait(after)
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return False


def content(path: Path) -> dict[str, object]:
    """What a run left, without the clock."""
    lines = [{k: v for k, v in line.items() if k != "wall_seconds"} for line in read_records(path)]
    found: dict[str, object] = {"records": lines}
    for file in sorted((path / "checkpoints").glob("*.safetensors")):
        found[file.name] = {name: (a.dtype.str, a.tobytes()) for name, a in checkpoint.read_all(file).items()}
    return found


def saved(path: Path) -> str:
    """How much of a run is there: nothing, its folder, or so many lines of records."""
    records = path / "records.jsonl"
    if not records.exists():
        return "folder" if (path / "config.toml").exists() else "nothing"
    return f"{records.read_bytes().count(10)} records"


def unbroken(method: str, place: Path) -> Whole:
    """The run without faults: twice, the second time with everything compiled."""
    for name in (f"whole-{method}", f"timed-{method}"):
        began, begins, process = time.monotonic(), 0.0, begun(method, place / name)
        while process.poll() is None:
            time.sleep(0.01)
            if not begins and (place / name / "config.toml").exists():
                begins = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"The run of {method} without faults ended with {process.returncode}")
        seconds = time.monotonic() - began
    one, other = content(place / f"whole-{method}"), content(place / f"timed-{method}")
    if one != other:
        raise SystemExit(f"Two runs of {method} without faults differ: nothing can be told about kills")
    return Whole(one, seconds, begins)


def trial(method: str, seed: int, place: Path, whole: Whole, chain: int) -> dict[str, object]:
    """One run that is killed `chain` times, or fewer if it is done before."""
    chance, stages = random.Random(seed), list[str]()
    while len(stages) < chain:
        first = chance.choice([0.0, whole.begins])
        if ended(begun(method, place), chance.uniform(first, whole.seconds)):
            break
        stages.append(saved(place))
    finished = ended(begun(method, place), 600.0)
    found = content(place) if finished else {}
    wrong = sorted(name for name in whole.content.keys() | found.keys() if whole.content.get(name) != found.get(name))
    return {"method": method, "kills": len(stages), "saved_at_kills": stages, "equal": not wrong, "differs": wrong}


def soak(
    kills: int, methods: Sequence[str], seed: int, chain: int = 3, out: Path | None = None, workers: int = 1
) -> int:
    """Kills until there were so many; returns how many trials left something else than an unbroken run."""
    bad, done = 0, 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(workers) as pool:
        place = Path(name)
        wholes = dict(zip(methods, pool.map(lambda method: unbroken(method, place), methods), strict=True))
        for first in range(0, 100 * kills, workers):
            if done >= kills:
                break
            turn = [(methods[number % len(methods)], number) for number in range(first, first + workers)]

            def one(what: tuple[str, int]) -> dict[str, object]:
                method, number = what
                return trial(method, seed + number, place / str(number), wholes[method], chain)

            for result in pool.map(one, turn):
                done, bad = done + len(result["saved_at_kills"]), bad + (not result["equal"])  # pyright: ignore[reportArgumentType]
                line = json.dumps(result)
                print(f"{done} of {kills}: {line}", flush=True)
                if out is not None:
                    with out.open("a") as file:
                        file.write(line + "\n")
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--chain", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(np.random.default_rng().integers(1 << 30)))
    parser.add_argument("--methods", nargs="*", default=[*RUNS], choices=[*RUNS])
    parser.add_argument("--workers", type=int, default=1, help="runs at once")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "posterity-soak"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    print(f"seed {asked.seed}")
    sys.exit(1 if soak(asked.kills, asked.methods, asked.seed, asked.chain, asked.out, asked.workers) else 0)
