"""Sweeps and faults: workers killed, a machine lost; and what Ray costs. Short form: tests/experiment/test_sweep.py.

    python tests/soak/sweep.py kills  --out FILE.json    # a worker killed every 20 seconds, on Ray and local
    python tests/soak/sweep.py node   --out FILE.json    # a Ray cluster of two nodes, one of which is lost midway
    python tests/soak/sweep.py cost   --out FILE.json    # Ray against local processes, in turns
    python tests/soak/sweep.py lanes  --out FILE.json    # seeds as lanes of one run against one process for each

Records have to be equal to those of a sweep that nothing happened to, but for the clock. Only processes that this
program started are ended: those that the sweep's own status files name, and the node that was started here.
"""

import argparse
import json
import os
import random
import secrets
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from posterity.experiment.folder import session
from posterity.experiment.records import read_records
from posterity.experiment.sweep.folder import SweepFolder

BIN = Path(sys.executable).parent
# Ray's clusters ask for a token. This one is made up for the clusters that are started here, and gone with them.
# Ray's workers have niceness 15 unless they are told otherwise: beside other programs they would wait for all of them.
OWN_TOKEN = {
    "RAY_worker_niceness": "0",
    **os.environ,
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
SWEEP = """
families = ["item-search", "random-mdp"]
methods = ["blrl", "boss", { method = "blrl", name = "psrl", settings = { agent = { explorer = "psrl" } } }]
seeds = 4
settings = { tasks = %d, save_every = 1.0 }
"""
NEURAL = """
families = ["pendulum-gravity", "point-goal"]
seeds = 4
lanes = 2
evaluate = false
settings = { tasks = %d, iterations = 4, steps_per_iteration = 60, save_every = 1.0 }
[[methods]]
method = "vblrl"
[methods.settings.agent]
network = { hidden = [16, 16] }
planner = { horizon = 6, candidates = 16, elites = 4, cem_iterations = 2, particles = 2 }
learner = { gradient_steps = 10 }
task_min_transitions = 60
world_iterations = 1
replay = { finished_transitions = 100 }
[[methods]]
method = "single-task"
[methods.settings.agent]
network = { hidden = [16, 16] }
planner = { horizon = 6, candidates = 16, elites = 4, cem_iterations = 2, particles = 2 }
learner = { gradient_steps = 10 }
task_min_transitions = 60
[[methods]]
method = "npg"
"""


def sweep(out: Path, plan: Path, *flags: str) -> float:
    """Runs a sweep to its end; the seconds it took."""
    began = time.monotonic()
    done = subprocess.run(
        [BIN / "posterity", "sweep", plan, "--out", out, "--workers", "2", *flags], check=False, env=OWN_TOKEN
    )
    if done.returncode:
        raise SystemExit(f"posterity sweep {shlex.join(flags)} ended with {done.returncode}")
    return time.monotonic() - began


def unlike(one: Path, other: Path) -> list[str]:
    """The cells whose records differ in more than the clock."""
    return [name for name in SweepFolder(one).names() if lines(one, name) != lines(other, name)]


def lines(path: Path, name: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in record.items() if key != "wall_seconds"}
        for record in read_records(SweepFolder(path).run(name))
    ]


def running(path: Path) -> list[tuple[str, int]]:
    """The cells at work, and the processes that have them."""
    folder = SweepFolder(path)
    if not folder.exists():
        return []
    plan = folder.sweep()
    states = {name: folder.status(name, plan) for name in folder.names()}
    return [(name, state.pid) for name, state in states.items() if state.state == "running" and state.pid]


class Killer(threading.Thread):
    """Ends a worker at random every so many seconds."""

    def __init__(self, path: Path, every: float) -> None:
        super().__init__(daemon=True)
        self.path, self.every, self.killed, self.over = path, every, list[str](), threading.Event()

    def run(self) -> None:
        while not self.over.wait(self.every):
            if found := running(self.path):
                name, pid = random.choice(found)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed.append(name)
                print(f"killed the worker of {name}", flush=True)


def kills(work: Path, plan: Path, every: float, executors: list[str]) -> dict[str, Any]:
    """The same sweep without faults, and with a worker killed every so often."""
    result: dict[str, Any] = {"seconds_without_faults": round(sweep(work / "whole", plan), 1)}
    for executor in executors:
        out = work / executor
        killer = Killer(out, every)
        killer.start()
        seconds = sweep(out, plan, "--executor", executor)
        killer.over.set()
        result[executor] = {
            "seconds": round(seconds, 1),
            "killed": killer.killed,
            "sessions": sum(sessions(out, name) for name in SweepFolder(out).names()),
            "cells_that_differ": unlike(work / "whole", out),
        }
    return result


def sessions(path: Path, name: str) -> int:
    return len(json.loads((SweepFolder(path).run(name) / "versions.json").read_text())["sessions"])


def node(work: Path, plan: Path, share: float) -> dict[str, Any]:
    """Two Ray nodes on this machine; the second is lost when so large a share of the cells is done."""
    result: dict[str, Any] = {"seconds_without_faults": round(sweep(work / "whole", plan), 1)}
    out, address = work / "two-nodes", "127.0.0.1:6397"
    begin = [str(BIN / "ray"), "start", "--block", "--disable-usage-stats", "--num-cpus", "1"]
    head = started([*begin, "--head", "--port", "6397", "--include-dashboard", "false"], work / "head.log")
    time.sleep(15)
    second = started([*begin, "--address", address], work / "second.log")
    time.sleep(10)
    lost: dict[str, Any] = {}

    def lose() -> None:
        folder = SweepFolder(out)
        while not lost:
            time.sleep(1.0)
            if not folder.exists():
                continue
            names = folder.names()
            done = sum(folder.finished(name) for name in names)
            if done >= share * len(names):
                ours = descendants(second.pid)
                at_work = [name for name, pid in running(out) if pid in ours]
                if at_work:
                    for pid in sorted(ours):
                        end(pid)
                    lost.update(cells_done_by_then=done, cells_on_it=at_work, processes_killed=len(ours))

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    try:
        seconds = sweep(out, plan, "--executor", "ray", "--address", address, "--workers", "0")
    finally:
        for process in (second, head):
            for pid in sorted(descendants(process.pid)):
                end(pid)
    return result | {"seconds": round(seconds, 1), "lost": lost, "cells_that_differ": unlike(work / "whole", out)}


def started(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=OWN_TOKEN, start_new_session=True)


def descendants(pid: int) -> set[int]:
    """A process and all that came of it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def cost(work: Path, plan: Path, turns: int) -> dict[str, Any]:
    """Local processes and a Ray cluster that is up, in turns, on the three methods of random-mdp, two seeds of each.

    Seconds are of no use on a machine with other work. Processor seconds of the workers are: a worker's begin with
    the start of its process. What the cluster's own processes use meanwhile is added.
    """
    address = "127.0.0.1:6398"
    begin = [str(BIN / "ray"), "start", "--block", "--disable-usage-stats", "--num-cpus", "2", "--head"]
    head = started([*begin, "--port", "6398", "--include-dashboard", "false"], work / "head.log")
    time.sleep(15)
    taken: dict[str, list[float]] = {"local": [], "ray": []}
    workers: dict[str, list[float]] = {"local": [], "ray": []}
    cluster: list[float] = []
    try:
        ways = [("local", ()), ("ray", ("--executor", "ray", "--address", address))]
        for turn in range(turns):
            for way, flags in ways if turn % 2 == 0 else ways[::-1]:  # what comes first may find the machine busier
                out, before = work / f"{way}-{turn}", processor_seconds(head.pid)
                taken[way].append(round(sweep(out, plan, "--seeds", "2", "--families", "random-mdp", *flags), 1))
                said = [text for log in out.glob("logs/**/*.log") for text in log.read_text().splitlines()]
                used = [float(text.split()[-5]) for text in said if text.endswith("s of processor time")]
                workers[way].append(round(sum(used), 1))
                if way == "ray":
                    cluster.append(round(processor_seconds(head.pid) - before, 1))
                print(way, taken[way][-1], workers[way][-1], cluster, flush=True)
    finally:
        for pid in sorted(descendants(head.pid)):
            end(pid)
    cells = 6 * turns
    ours = [ray + own for ray, own in zip(workers["ray"], cluster, strict=True)]
    return {
        "seconds": taken,
        "ratio_of_seconds": ratios(taken["ray"], taken["local"]),
        "processor_seconds_of_workers": workers,
        "processor_seconds_of_the_cluster": cluster,
        "processor_seconds_more_a_cell": round((sum(workers["ray"]) - sum(workers["local"])) / cells, 2),
        "ratio_of_processor_seconds": ratios(ours, workers["local"]),
        "cells_that_differ": unlike(work / "local-0", work / "ray-0"),
    }


def ratios(ray: list[float], local: list[float]) -> dict[str, Any]:
    """Of each turn, whose two halves met much the same machine; and their median."""
    each = [round(one / other, 3) for one, other in zip(ray, local, strict=True)]
    return {"by_turn": each, "median": round(statistics.median(each), 3)}


def processor_seconds(cluster: int) -> float:
    """What the processes of a cluster have used that are not workers."""
    ticks = 0
    for pid in descendants(cluster):
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


LANES = {
    "item-search blrl": ("--families item-search --methods blrl --tasks 60", 4),
    "pendulum-gravity npg": ("--families pendulum-gravity --methods npg --tasks 4", 4),
    "pendulum-gravity vblrl": ("--families pendulum-gravity --methods vblrl --tasks 2 --iterations 4", 4),
}


def lanes(work: Path, turns: int) -> dict[str, Any]:
    """Four seeds as lanes of one process, and as four processes of which two run at once, in turns."""
    result: dict[str, Any] = {}
    for name, (flags, seeds) in LANES.items():
        taken: dict[str, list[float]] = {"one process, four lanes": [], "four processes, two at once": []}
        for turn in range(turns):
            for way, count in (("one process, four lanes", seeds), ("four processes, two at once", 1)):
                out = work / f"{name.replace(' ', '-')}-{count}-{turn}"
                words = [*flags.split(), "--seeds", str(seeds), "--lanes", str(count), "--out", str(out)]
                began = time.monotonic()
                subprocess.run([BIN / "posterity", "sweep", *words, "--workers", "2"], check=True)
                taken[way].append(round(time.monotonic() - began, 1))
        one, four = (sum(seconds) for seconds in taken.values())
        result[name] = {"seconds": taken, "processes_to_lanes": round(four / one, 3)}
    return result


def main() -> int:
    """Runs one of the experiments; exits with 1 if records differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["kills", "node", "cost", "lanes"])
    parser.add_argument("--out", type=Path, help="where to write what came of it, as JSON")
    parser.add_argument("--tasks", type=int, default=40, help="tasks of every cell")
    parser.add_argument("--neural", action="store_true", help="methods in JAX on pendulum-gravity and point-goal")
    parser.add_argument("--executors", nargs="+", default=["ray", "local"], help="whose workers are killed")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--turns", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="posterity-soak-") as scratch:
        work = Path(scratch)
        plan = work / "plan.toml"
        plan.write_text((NEURAL if asked.neural else SWEEP) % asked.tasks)
        chosen: dict[str, Callable[[], dict[str, Any]]] = {
            "kills": lambda: kills(work, plan, asked.every, asked.executors),
            "node": lambda: node(work, plan, 0.25),
            "cost": lambda: cost(work, plan, asked.turns),
            "lanes": lambda: lanes(work, asked.turns),
        }
        came = chosen[asked.what]()
    command = f"python tests/soak/sweep.py {shlex.join(sys.argv[1:])}"
    told = {**session(command), **came, "load_average_at_the_end": [round(value, 1) for value in os.getloadavg()]}
    text = json.dumps(told, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")
    parts = [came, *(each for each in came.values() if isinstance(each, dict))]
    return 1 if any(part.get("cells_that_differ") for part in parts) else 0


if __name__ == "__main__":
    sys.exit(main())
