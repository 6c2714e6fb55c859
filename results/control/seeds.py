"""The runs behind three measurements, every seed in a process of its own with one thread.

    python results/control/seeds.py pole-mass hopper pendulum --workers 15 --time-limit 8m --out OUT

    pole-mass   examples/pole_mass.py with vblrl (the preset quick) and single-task (its first iterations), five seeds
    hopper      a stream of hoppers whose gravity changes and comes back, unannounced and told, five seeds
    pendulum    the same of pendulums, with seeds that nobody had looked at when the detector was made

OUT (or the folder that the environment variable OUT names) gets one folder for each measurement and method, with the
records of all its seeds in one records.jsonl, and seeds.json with what came of it: delays, alarms and returns by seed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import boundaries

ROOT = Path(__file__).parents[2]
SMALL = "--planner.candidates 60 --planner.elites 8 --planner.particles 4 --planner.horizon 15"
PENDULUM = "--env.recurring 0.5 --env.max-episode-steps 100 --steps-per-iteration 100 --tasks 5 --iterations 7"
PENDULUM += f" {SMALL} --learner.gradient-steps 200"
HOPPER = "--env.recurring 0.5 --steps-per-iteration 200 --tasks 5 --iterations 8"
POLE = "examples/pole_mass.py:family --tasks 4"
# the arguments of `posterity run` by measurement and method, longest first
RUNS = {
    "hopper": {
        "detect": f"hopper-gravity {HOPPER} --boundaries detect",
        "told": f"hopper-gravity {HOPPER}",
    },
    "pole-mass": {
        "vblrl": POLE,
        "single-task": f"{POLE} --method single-task --iterations 2",
    },
    "pendulum": {
        "detect": f"pendulum-gravity {PENDULUM} --boundaries detect",
        "told": f"pendulum-gravity {PENDULUM}",
    },
}
SEEDS = {"hopper": range(10, 15), "pole-mass": range(5), "pendulum": range(10, 15)}
THREADS = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
KEPT = ("config.toml", "versions.json")


class Job(NamedTuple):
    """One run of one seed."""

    measurement: str
    method: str
    seed: int
    arguments: str


def played(job: Job, scratch: Path, seconds: float, deadline: float) -> tuple[Job, Path, int, float]:
    """Runs it, for so many seconds at most, and tells its folder, how it ended and how long it took."""
    began = time.monotonic()
    out = scratch / f"{job.measurement}-{job.method}-{job.seed}"
    left = int(min(seconds, deadline - began))
    if left < 5:
        return job, out, -1, 0.0
    words = [*job.arguments.split(), "--seed", str(job.seed), "--out", str(out), "--time-limit", f"{left}s"]
    environment = {**os.environ, **THREADS, "PYTHONPATH": str(ROOT / "src")}
    with out.with_suffix(".log").open("w") as log:
        command = [sys.executable, "-m", "posterity", "run", *words]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False)
    print(f"{job.measurement} {job.method} {job.seed}: exit {done.returncode}", flush=True)
    return job, out, done.returncode, time.monotonic() - began


def gathered(measurement: str, method: str, done: list[tuple[Job, Path, int, float]], out: Path) -> Path:
    """The records of all seeds of a method, in one folder."""
    folder = out / f"{measurement}-{method}"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [
        path / "records.jsonl" for job, path, _, _ in done if (job.measurement, job.method) == (measurement, method)
    ]
    there = [text for text in texts if text.exists()]
    (folder / "records.jsonl").write_text("".join(text.read_text() for text in there))
    for name in KEPT:
        if there:
            shutil.copy(there[0].with_name(name), folder / name)
    return folder


def measured(measurement: str, folders: dict[str, Path]) -> dict[str, object]:
    """By seed: what was detected, and returns; of transfer, the returns of every task's first iterations."""
    seeds = {method: boundaries.read(folder) for method, folder in folders.items()}
    found: dict[str, object] = {
        f"iterations {method}": {seed: boundaries.returns(lines) for seed, lines in each.items()}
        for method, each in seeds.items()
    }
    if "detect" in seeds:
        found["detected"] = {seed: boundaries.detected(lines) for seed, lines in seeds["detect"].items() if lines}
    return found


def main() -> None:
    """Runs what was asked for and writes seeds.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("measurements", nargs="+", choices=[*RUNS])
    parser.add_argument("--out", default=os.environ.get("OUT", "runs/seeds"))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=8.0, help="for everything together")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--more", default="", help="further arguments of every run: for a small trial")
    told = parser.parse_args()
    out = Path(told.out).resolve()
    scratch = out / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(measurement, method, seed, f"{arguments} {told.more}")
        for measurement in told.measurements
        for method, arguments in RUNS[measurement].items()
        for seed in [*SEEDS[measurement]][: told.seeds]
    ]
    deadline = time.monotonic() + 60.0 * told.minutes
    with ThreadPoolExecutor(told.workers) as pool:
        done = list(pool.map(lambda job: played(job, scratch, 60.0 * told.minutes, deadline), jobs))
    result: dict[str, object] = {
        "command": f"python results/control/seeds.py {' '.join(sys.argv[1:])}",
        "arguments": {name: RUNS[name] for name in told.measurements},
        "runs": [{**job._asdict(), "exit": code, "seconds": round(took, 1)} for job, _, code, took in done],
    }
    for measurement in told.measurements:
        folders = {method: gathered(measurement, method, done, out) for method in RUNS[measurement]}
        result[measurement] = measured(measurement, folders)
    (out / "seeds.json").write_text(json.dumps(result, indent=1) + "\n")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
