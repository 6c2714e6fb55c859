"""Kills runs at random moments and resumes them: what is left has to equal a run that was never stopped.

    python tests/soak/kills.py --kills 100                     (all methods; make soak does this)
    python tests/soak/kills.py --kills 20 --methods blrl boss --out results/soak/kills.jsonl

A trial starts a run, kills it (SIGKILL) after a random time, resumes it, kills that too, and so on until it has been
killed `--chain` times; then it is resumed to its end. Records (without the clock), the state and every snapshot are
compared with those of a run without faults. The exit code is 1 if a single one differs.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posterity.cli import main as command
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


def started(args: Sequence[str], fork: bool) -> int:
    """The process id of a command. Forked, it need not import anything; JAX cannot be forked."""
    if not fork or "jax" in sys.modules:
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        words = [sys.executable, "-m", "posterity", *args]
        return os.posix_spawn(sys.executable, words, os.environ, file_actions=nowhere)
    pid = os.fork()
    if pid == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        code = 70
        try:
            code = command(args)
        finally:
            os._exit(code)
    return pid


def ended(pid: int, after: float) -> bool:
    """Whether a process ends by itself within `after` seconds; else it is killed."""
    until = time.monotonic() + after
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def content(path: Path) -> dict[str, object]:
    """What a run left, without the clock."""
    lines = [{k: v for k, v in line.items() if k != "wall_seconds"} for line in read_records(path)]
    found: dict[str, object] = {"records": lines}
    for file in sorted((path / "checkpoints").glob("*.safetensors")):
        found[file.name] = {name: (a.dtype.str, a.tobytes()) for name, a in checkpoint.read_all(file).items()}
    return found


def trial(method: str, chance: random.Random, place: Path, whole: dict[str, object], usual: float, chain: int):
    """One run that is killed `chain` times, or fewer if it is done before."""
    out, killed = place / "run", 0
    fork = method in ("blrl", "boss")
    fresh = ["run", *RUNS[method], "--method", method, "--save-every", "0", "--out", str(out)]
    while killed < chain:
        begun = (out / "config.toml").exists()
        pid = started(["resume", str(out)] if begun else fresh, fork)
        if ended(pid, chance.uniform(0.0, usual)):
            break
        killed += 1
    last = ["resume", str(out)] if (out / "config.toml").exists() else fresh
    ended(started(last, fork), 600.0)
    found = content(out)
    wrong = sorted(name for name in whole.keys() | found.keys() if whole.get(name) != found.get(name))
    return killed, wrong


def soak(kills: int, methods: Sequence[str], seed: int, chain: int = 3, out: Path | None = None) -> int:
    """Kills until there were so many; returns how many trials left something else than an unbroken run."""
    chance, bad, done = random.Random(seed), 0, 0
    wholes: dict[str, tuple[dict[str, object], float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(100 * kills):
            if done >= kills:
                break
            method, place = methods[number % len(methods)], Path(name) / str(number)
            if method not in wholes:
                reference = Path(name) / f"whole-{method}"
                args = ["run", *RUNS[method], "--method", method, "--save-every", "0", "--out", str(reference)]
                ended(started(args, method in ("blrl", "boss")), 900.0)
                began = time.monotonic()  # once more, with everything compiled and cached
                ended(started([*args[:-1], f"{reference}-again"], method in ("blrl", "boss")), 900.0)
                wholes[method] = content(reference), time.monotonic() - began
            place.mkdir()
            killed, wrong = trial(method, chance, place, *wholes[method], chain)
            done, bad = done + killed, bad + bool(wrong)
            line = json.dumps({"method": method, "kills": killed, "equal": not wrong, "differs": wrong})
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
    parser.add_argument("--methods", nargs="*", default=[*RUNS])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "posterity-soak"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    print(f"seed {asked.seed}")
    sys.exit(1 if soak(asked.kills, asked.methods, asked.seed, asked.chain, asked.out) else 0)
