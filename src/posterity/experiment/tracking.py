"""Curves of a run in TensorBoard, Weights & Biases or Trackio, while it works (`--track`).

Nothing is measured here: what is tracked are the records, line by line. So a run can be tracked from any session on,
and a resumed one goes on in the same curves. Nothing leaves this computer unless the user tells the tool so.

    tensorboard   files in tensorboard/ of the run's folder, written anew from the records when a session begins
    wandb         offline, in wandb/ of the run's folder; environment variable WANDB_MODE=online sends it
    trackio       Trackio's own folder on this computer; its environment variables say otherwise
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple, Protocol, cast, get_args

from posterity import files
from posterity.errors import UserError, unknown
from posterity.experiment.checkpoint import Position
from posterity.experiment.config import RunConfig
from posterity.experiment.progress import Progress
from posterity.types import Record

Tool = Literal["tensorboard", "wandb", "trackio"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
MODULES: dict[Tool, str] = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}
KEPT = "tracking.json"  # in the run's folder: the tools, the names of the curves elsewhere, and how far they are
PLACE = ("kind", "seed", "task", "iteration", "steps")  # of a record: where it belongs, and no measurement
PROJECT = "posterity"
STEPS = "environment_steps"  # what curves are drawn against
QUIET = {  # environment variables, unless the user has set them
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


class Point(NamedTuple):
    """What one iteration of one seed brought."""

    seed: int
    number: int  # of the iteration, counted through all tasks from 0
    step: int  # of the environment, after it
    values: dict[str, float]


class Tracker(ABC):
    """Curves in one tool."""

    @abstractmethod
    def add(self, point: Point) -> None:
        """One more point."""

    def flush(self) -> None:  # noqa: B027 - most tools write at once
        """An iteration of all seeds is whole."""

    @abstractmethod
    def close(self) -> None:
        """The session is over."""


class Writer(Protocol):
    """What is used of a writer of tensorboardX."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> object:
        """One point."""

    def flush(self) -> object:
        """To the disk."""

    def close(self) -> object:
        """Its files."""


class Curves(Protocol):
    """What is used of a run of wandb or trackio."""

    def log(self, metrics: dict[str, float], /, *, step: int) -> object:
        """The points of one step."""

    def finish(self) -> object:
        """Nothing more will come."""


class TensorBoard(Tracker):
    """A folder of event files, one below it for each seed. They are written anew: no point can be there twice."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        tool = _module("tensorboard")
        self.path = folder / "tensorboard"
        shutil.rmtree(self.path, ignore_errors=True)
        self.writers: dict[int, Writer] = {
            seed: tool.SummaryWriter(str(self.path / f"seed-{seed}")) for seed in _seeds(config)
        }

    def add(self, point: Point) -> None:
        """Against steps."""
        for name, value in point.values.items():
            self.writers[point.seed].add_scalar(name, value, point.step)

    def flush(self) -> None:
        """To the disk, where a TensorBoard that is open sees it."""
        for writer in self.writers.values():
            writer.flush()

    def close(self) -> None:
        """All files."""
        for writer in self.writers.values():
            writer.close()


class Elsewhere(Tracker):
    """One run of Weights & Biases or Trackio for each seed, with names that stay. What it has is not sent again."""

    def __init__(self, tool: Tool, folder: Path, config: RunConfig) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        self.folder, self.config = folder, config
        self.tool: Tool = tool
        self.module = _module(tool)
        self.names, self.done = _kept(folder, tool)
        self.runs: dict[int, Curves] = {}
        self.latest = self.done

    def add(self, point: Point) -> None:
        """Against steps, unless it was added in an earlier session."""
        if point.number <= self.done:
            return
        if point.seed not in self.runs:
            self.runs[point.seed] = self._begun(point.seed)
        self.runs[point.seed].log({**point.values, STEPS: point.step}, step=point.number)
        self.latest = max(self.latest, point.number)

    def flush(self) -> None:
        """Remembers how far the curves are."""
        if self.latest > self.done:
            self.done = self.latest
            _keep(self.folder, self.tool, self.names, self.done)

    def close(self) -> None:
        """All runs."""
        for run in self.runs.values():
            run.finish()

    def _begun(self, seed: int) -> Curves:
        name = self.names.setdefault(str(seed), f"{self.folder.name}-seed-{seed}-{uuid.uuid4().hex[:8]}")
        _keep(self.folder, self.tool, self.names, self.done)
        settings = self.config.model_dump(mode="json") | {"seed": seed, "seeds": 1}
        common = {"project": PROJECT, "name": name, "group": self.folder.name, "config": settings, "resume": "allow"}
        if self.tool == "wandb":
            run = self.module.init(**common, id=name, dir=str(self.folder), reinit="create_new")
            run.define_metric("*", step_metric=STEPS)  # else curves are drawn against the number of the iteration
            return run
        return self.module.init(**common, embed=False)


class Tracked:
    """A progress that also tracks. It reads the records that the run has written."""

    def __init__(self, shown: Progress, folder: Path, tools: Sequence[Tool]) -> None:
        self.shown, self.folder, self.tools = shown, folder, tools
        self.trackers: list[Tracker] = []
        self.read = 0  # bytes of the records
        self.config: RunConfig | None = None

    def start(self, config: RunConfig, position: Position, at_random: int = 1) -> None:
        """What is on record already is tracked first."""
        self.config = config
        for tool in self.tools:
            made = TensorBoard(self.folder, config) if tool == "tensorboard" else Elsewhere(tool, self.folder, config)
            self.trackers.append(made)
        self._catch_up()
        self.shown.start(config, position, at_random)

    def advance(self, mean_return: float) -> None:
        """An iteration of all lanes is on record."""
        self._catch_up()
        self.shown.advance(mean_return)

    def close(self) -> None:
        """Of all tools, and of what is shown."""
        for tracker in self.trackers:
            tracker.close()
        self.shown.close()

    def note(self, text: str) -> None:
        """Is shown."""
        self.shown.note(text)

    def begin(self, task: int, iteration: int) -> None:
        """Is shown."""
        self.shown.begin(task, iteration)

    def step(self, step: int) -> None:
        """Is shown."""
        self.shown.step(step)

    def saved(self) -> None:
        """Is shown."""
        self.shown.saved()

    def compiling(self, name: str) -> None:
        """Is shown."""
        self.shown.compiling(name)

    def compiled(self, name: str, seconds: float) -> None:
        """Is shown."""
        self.shown.compiled(name, seconds)

    def _catch_up(self) -> None:
        """Every line that was written since."""
        with (self.folder / "records.jsonl").open("rb") as file:
            file.seek(self.read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.read += len(whole)
        assert self.config is not None
        points = [point for line in whole.splitlines() if (point := point_of(json.loads(line), self.config))]
        for tracker in self.trackers:
            for point in points:
                tracker.add(point)
            tracker.flush()


def tracked(shown: Progress, folder: Path, asked: Sequence[str]) -> Progress:
    """`shown`, with the tools that are asked for now or were in an earlier session of the run."""
    tools = check_tools(dict.fromkeys((*_tools(folder), *asked)))
    if not tools:
        return shown
    kept = _read(folder) | {"tools": list(tools)}
    files.replace(folder / KEPT, json.dumps(kept, indent=1).encode())
    return Tracked(shown, folder, tools)


def check_tools(asked: Sequence[str] | dict[str, None]) -> list[Tool]:
    """Refuses tools that are unknown or not installed, before a run begins."""
    for tool in asked:
        if tool not in TOOLS:
            raise unknown("tool", tool, TOOLS)
        _module(tool)
    return cast("list[Tool]", list(asked))


def point_of(line: Record, config: RunConfig) -> Point | None:
    """The numbers of an iteration's record; None for another kind of record."""
    if line.get("kind") != "iteration":
        return None
    number = line["task"] * config.iterations + line["iteration"]
    values = {
        name: float(value)
        for name, value in line.items()
        if name not in PLACE and isinstance(value, int | float) and not isinstance(value, bool)
    }
    return Point(
        line["seed"], number, (number + 1) * config.steps_per_iteration, {**values, "task": line["task"] + 1.0}
    )


def _module(tool: Tool) -> ModuleType:
    try:
        return import_module(MODULES[tool])
    except ImportError as error:
        raise UserError(f"--track {tool} needs a package: pip install 'posterity[{tool}]'") from error


def _seeds(config: RunConfig) -> range:
    return range(config.seed, config.seed + config.seeds)


def _read(folder: Path) -> Record:
    """What is kept of tracking; nothing of a run that was not tracked."""
    path = folder / KEPT
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise UserError(f"{path} is damaged; without it the run is tracked anew") from error


def _tools(folder: Path) -> list[str]:
    return list(_read(folder).get("tools", []))


def _kept(folder: Path, tool: Tool) -> tuple[dict[str, str], int]:
    """The names of the curves, and the last iteration that they have; -1: none."""
    kept = _read(folder).get(tool, {})
    return dict(kept.get("names", {})), int(kept.get("iteration", -1))


def _keep(folder: Path, tool: Tool, names: dict[str, str], iteration: int) -> None:
    kept = _read(folder) | {tool: {"names": names, "iteration": iteration}}
    files.replace(folder / KEPT, json.dumps(kept, indent=1).encode())
