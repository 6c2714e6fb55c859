"""The work of one cell, the same whoever does it: begin or resume its run, evaluate it, say how it ended.

All that is known of a cell lies in its folder. So a worker needs a folder and a name, may be lost at any moment, and is
replaced by any other. `python -m posterity.experiment.sweep.cell FOLDER CELL` is a worker of the local executor; it
leaves, with everything saved, when its standard input is closed: when whoever started it is gone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from posterity.agents.base import SCORES, Score
from posterity.errors import UserError
from posterity.experiment.config import RunConfig, to_toml
from posterity.experiment.evaluate import Plan, entries_of, evaluate
from posterity.experiment.folder import RunFolder
from posterity.experiment.progress import Plain
from posterity.experiment.records import evaluation_name
from posterity.experiment.run import Stopped, build, check, guarded, lifelong
from posterity.experiment.stop import Stop
from posterity.experiment.sweep.folder import State, Status, SweepFolder
from posterity.experiment.sweep.plan import Sweep

TELL, LOOK = 2.0, 1.0  # seconds between two lines of a worker about itself, and between two looks for `stop`
PATIENCE = 60.0  # seconds to wait for another worker that has the cell: one that was lost may need them to end
CODES: dict[State, int] = {"done": 0, "failed": 2, "stopped": 3, "running": 4}  # exit codes; running: by another worker


def never() -> str:
    """No reason to stop."""
    return ""


def run_cell(path: Path, name: str, should_stop: Callable[[], str] = never, patience: float = PATIENCE) -> State:
    """Brings the cell `name` of the sweep in `path` to its end, from wherever it stands."""
    folder = SweepFolder(path)
    sweep = folder.sweep()
    if sweep.home and Path(sweep.home).is_dir():
        os.chdir(sweep.home)
    with folder.held(name, patience) as mine:
        if not mine:
            return "running"
        if folder.status(name, sweep).state == "done":
            return "done"
        with folder.log(name).open("a", encoding="utf-8") as log:
            console = Console(file=log, width=120, force_terminal=False, soft_wrap=True)
            return _Worker(folder, name, should_stop, console).work()


class _Worker:
    """One session with a cell."""

    def __init__(self, folder: SweepFolder, name: str, should_stop: Callable[[], str], console: Console) -> None:
        self.folder, self.name, self.asked, self.console = folder, name, should_stop, console
        self.sweep = folder.sweep()
        self.status = folder.said(name)._replace(state="running", reason="", left=-1.0)
        self.looked, self.found = 0.0, False
        self.told = 0.0

    def work(self) -> State:
        """Runs and evaluates; what goes wrong becomes the cell's one-line reason."""
        try:
            self.tell(self.status._replace(doing="starting"), now=True)
            config = self.folder.config(self.name)
            reason = self._learn(config) or (self._evaluate(config) if self.sweep.evaluate else "")
        except UserError as error:
            return self._end("failed", str(error))
        except Exception as error:  # a defect of ours, or of a family or method of one's own: the other cells go on
            self.console.print(traceback.format_exc(), markup=False)
            return self._end("failed", f"{type(error).__name__}: {error}".splitlines()[0])
        return self._end("stopped", reason) if reason else self._end("done", "")

    def _learn(self, config: RunConfig) -> str:
        """Begins or goes on with the run; gives the reason if it stopped before its end."""
        path = self.folder.run(self.name)
        command = f"posterity sweep cell {self.folder.path.name} {self.name}"
        if not (path / "config.toml").exists():
            ready = check(config)
            for note in ready.notes:
                self.console.print(f"Note: {note}", markup=False)
            run = RunFolder.create(path, config, command)
        else:
            text = (path / "config.toml").read_text(encoding="utf-8")
            if tomllib.loads(text) != tomllib.loads(to_toml(config)):
                raise UserError(f"{path}/config.toml is not what the sweep has planned; undo the change")
            run, config = RunFolder.reopen(path, command)
            if run.position().task >= config.tasks:
                return ""
        progress = _Telling(self, self.console)
        return guarded(run, lambda: lifelong(config, run, progress, self.should_stop)).reason

    def _evaluate(self, config: RunConfig) -> str:
        """Plays what is not played yet; gives the reason if it stopped before its end."""
        path = self.folder.run(self.name)

        def told(score: Score, done: int, total: int) -> None:
            self.tell(self.status._replace(doing=f"{score} {done}/{total}"))

        self.tell(self.status._replace(doing="evaluating", share=1.0, left=-1.0), now=True)
        try:
            for plan in lacking(path, config, self.sweep):
                evaluate(path, plan, told, self.should_stop)
        except Stopped as stopped:
            return str(stopped)
        self.status = self.status._replace(episodes=self.sweep.episodes)
        return ""

    def should_stop(self) -> str:
        """A reason to stop, if whoever runs this has one or the sweep was asked to stop."""
        if reason := self.asked():
            return reason
        if time.monotonic() - self.looked >= LOOK:
            self.looked, self.found = time.monotonic(), self.folder.stop.exists()
        return "interrupted" if self.found else ""

    def tell(self, status: Status, *, now: bool = False) -> None:
        """Says where it is, every few seconds."""
        if now or time.monotonic() - self.told >= TELL:
            self.told, self.status = time.monotonic(), status
            self.folder.say(self.name, status)

    def _end(self, state: State, reason: str) -> State:
        said = self.status._replace(state=state, reason=reason, doing="", left=-1.0)
        self.folder.say(self.name, said._replace(share=1.0) if state == "done" else said)
        used = f"{time.process_time():.1f} s of processor time"
        self.console.print(f"{self.name}: {state}{reason and f' ({reason})'}, {used}", markup=False)
        return state


class _Telling(Plain):
    """Progress of a run as lines in the cell's log, and as its status."""

    def __init__(self, worker: _Worker, console: Console) -> None:
        super().__init__(console)
        self.worker, self.before = worker, worker.status.wall
        self.began = time.monotonic()

    def step(self, step: int) -> None:
        """Tells where the run is."""
        super().step(step)
        if self.pace is not None:
            left, share = self.pace.left(), (self.pace.done + self.pace.fraction) / self.pace.total
            wall = self.before + time.monotonic() - self.began
            facts = self.worker.status._replace(
                doing=self.pace.place(), share=round(share, 4), wall=round(wall, 1), left=round(left or -1.0, 1)
            )
            self.worker.tell(facts)


def lacking(path: Path, config: RunConfig, sweep: Sweep) -> list[Plan]:
    """What the sweep wants of a run's evaluation and is not on record. Every way of playing Back is a plan."""
    known = build(config)[1].back_variants
    ways = dict.fromkeys(known[0] if way == "auto" else way for way in sweep.back_variants) if known else [""]
    found: list[Plan] = []
    for place, way in enumerate(ways):
        plan = Plan(SCORES if place == 0 else ("back",), way or "auto", sweep.episodes, sweep.back_every)
        scores = tuple(score for score in plan.scores if not _whole(path, score, way, config, plan))
        if scores:
            found.append(plan._replace(scores=scores))
    return found


def _whole(path: Path, score: Score, way: str, config: RunConfig, plan: Plan) -> bool:
    """Whether a score is on record with all its episodes. A file of scores is written at once, or not at all."""
    file = path / "evaluation" / f"{evaluation_name(score, way if score == 'back' else '')}.jsonl"
    due = len(entries_of(score, plan, config.seeds, config.tasks))
    return file.is_file() and len(file.read_bytes().splitlines()) == due


def main(args: list[str]) -> int:
    """A worker of the local executor."""
    gone = threading.Event()
    threading.Thread(target=_until_closed, args=(gone,), daemon=True).start()
    with Stop() as stop:
        state = run_cell(Path(args[0]), args[1], lambda: stop.reason() or ("interrupted" if gone.is_set() else ""))
    return CODES[state]


def _until_closed(gone: threading.Event) -> None:
    while os.read(0, 1):  # not sys.stdin: a thread that waits in it ends the process by a signal at its exit
        pass
    gone.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
