"""What a task costs at the beginning and at the end of a long stream: time, memory, disk and seconds to save.

    python results/scaling/long_stream.py vblrl 1000      (or: blrl 10000)

Writes a line for every task to METHOD-TASKS.jsonl.xz and the table to METHOD-TASKS.md, into the folder that the
environment variable OUT names, or beside this file. A checkpoint is written after every iteration. Seconds are the
process's own CPU seconds, with wall seconds beside them: other programs may run on the machine.
"""

import json
import lzma
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from posterity.experiment.config import resolve
from posterity.experiment.folder import RunFolder
from posterity.experiment.progress import Quiet
from posterity.experiment.run import lifelong

SMALL = {
    "network": {"hidden": [32, 32]},
    "planner": {"horizon": 8, "candidates": 24, "elites": 4, "cem_iterations": 2, "particles": 2},
    "learner": {"gradient_steps": 20, "task_batch_size": 32, "world_batch_size": 16},
    "task_min_transitions": 20,
    "world_iterations": 1,
    "replay": {"finished_transitions": 20},
}
AT = (10, 100, 1000, 10_000)


class Meter(Quiet):
    """Notes what every task took."""

    def __init__(self, folder: RunFolder, iterations: int) -> None:
        self.folder, self.iterations, self.done = folder, iterations, 0
        self.saving, self.saves = 0.0, 0
        self.lines: list[dict[str, float]] = []
        self.cpu, self.wall = time.process_time(), time.monotonic()

    def advance(self, mean_return: float) -> None:
        """An iteration is over."""
        self.done += 1
        if self.done % self.iterations:
            return
        cpu, wall = time.process_time(), time.monotonic()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        prefix = f"task-{len(self.lines):04d}-*"
        disk = sum(file.stat().st_size for file in self.folder.checkpoint.parent.glob(prefix)) if self.sampled else 0
        self.lines.append(
            {
                "task": len(self.lines) + 1,
                "cpu_seconds": round(cpu - self.cpu, 5),
                "wall_seconds": round(wall - self.wall, 5),
                "save_cpu_seconds": round(self.saving / max(self.saves, 1), 6),
                "rss_mib": pages * 4096 / 2**20,
                "disk_kib": disk / 2**10,
                "state_kib": self.folder.checkpoint.stat().st_size / 2**10,
                "return": mean_return,
            }
        )
        self.saving, self.saves = 0.0, 0
        self.cpu, self.wall = time.process_time(), time.monotonic()

    @property
    def sampled(self) -> bool:
        """A listing of the folder takes longer with every task, so only some tasks have one."""
        return any(abs(len(self.lines) - at) <= 3 for at in AT)


def main() -> None:
    method, tasks = sys.argv[1], int(sys.argv[2])
    family = "random-mdp" if method == "blrl" else "pendulum-gravity"
    sizes = {"tasks": tasks, "iterations": 2, "steps_per_iteration": 20, "save_every": 0.0, "snapshots": True}
    if method != "blrl":
        sizes["agent"] = SMALL
    config = resolve(family, method, "quick", sizes)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place) / "run", config, "results/scaling/long_stream.py")
        meter, save = Meter(folder, config.iterations), folder.save

        def timed(*what: object) -> None:
            began = time.process_time()
            save(*what)  # pyright: ignore[reportArgumentType]
            meter.saving, meter.saves = meter.saving + time.process_time() - began, meter.saves + 1

        folder.save = timed  # pyright: ignore[reportAttributeAccessIssue]
        lifelong(config, folder, meter, lambda: "")
        folder.close()
    out = Path(os.environ.get("OUT", Path(__file__).parent)) / f"{method}-{tasks}"
    text = "".join(json.dumps(line) + "\n" for line in meter.lines)
    out.with_suffix(".jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    out.with_suffix(".md").write_text(table(meter.lines, f"{family}, {method}, {tasks} tasks of 2 x 20 steps"))
    print(out.with_suffix(".md").read_text())


def table(lines: list[dict[str, float]], title: str) -> str:
    """Medians over the tasks near 10, 100, 1,000 and 10,000."""
    heads = ("cpu_seconds", "wall_seconds", "save_cpu_seconds", "rss_mib", "disk_kib", "state_kib")
    rows = [
        f"{title}; Python {platform.python_version()}, {platform.machine()}, load average {os.getloadavg()[1]:.1f}",
        "",
    ]
    rows += ["| at task | " + " | ".join(name.replace("_", " ") for name in heads) + " |", "|---" * 7 + "|"]
    for at in AT:
        if at > len(lines):
            break
        wide = max(3, at // 10)
        near = lines[max(0, at - 1 - wide) : min(len(lines), at + wide)]
        cells = []
        for name in heads:
            known = [line[name] for line in near if name != "disk_kib" or line[name]]
            cells.append(f"{np.median(known):.4g}")
        rows.append(f"| {at} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
