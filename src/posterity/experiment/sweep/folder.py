"""The folder of a sweep.

    sweep.toml           what was asked for             plan/CELL.toml     the configuration of each cell
    cells/CELL/          its run: an ordinary folder    status/CELL.json   what its worker last said
    logs/CELL.log        what its worker printed        stop               while it is there, workers save and leave

CELL is FAMILY/METHOD/SEEDS. A sweep may grow by families, methods and seeds; a cell that is planned never changes.
"""

from __future__ import annotations

import json
import os
import socket
import time
import tomllib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, cast

from posterity import files
from posterity.agents import METHODS
from posterity.errors import UserError
from posterity.experiment import config as run_config
from posterity.experiment.checkpoint import read_position
from posterity.experiment.config import RunConfig
from posterity.experiment.sweep.plan import Cell, Sweep, checked_sweep, to_toml
from posterity.families import FAMILIES
from posterity.families.lookup import remember
from posterity.types import Facts, Record

try:
    import fcntl
except ImportError:  # a system without file locks: two workers in one cell are then the user's to avoid
    fcntl = None

State = Literal["waiting", "running", "stopped", "failed", "done"]
STATES: tuple[State, ...] = ("waiting", "running", "stopped", "failed", "done")
SILENT = 60.0  # seconds after which a worker on another machine that says nothing is taken for lost
OWN = {"plan", "sweep.lock"}  # what a sweep that was stopped before it began may have left


class Status(NamedTuple):
    """What is known of a cell."""

    state: State = "waiting"
    reason: str = ""  # why it failed or stopped
    doing: str = ""  # task and iteration, or the evaluation
    share: float = 0.0  # of its run that is done
    wall: float = 0.0  # seconds of work so far
    left: float = -1.0  # seconds that the rest will take; negative: not known
    episodes: int = 0  # with which it was evaluated
    host: str = ""
    pid: int = 0
    time: float = 0.0  # when this was said


class SweepFolder:
    """The files of one sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # workers may be elsewhere

    # What is planned

    def exists(self) -> bool:
        """Whether there is a sweep."""
        return (self.path / "sweep.toml").is_file()

    def sweep(self) -> Sweep:
        """What was asked for."""
        if not self.exists():
            raise UserError(f"{self.path} holds no sweep (no sweep.toml)")
        return checked_sweep(_toml(self.path / "sweep.toml"), str(self.path / "sweep.toml"))

    def names(self) -> list[str]:
        """The cells that are planned."""
        self.sweep()
        below = self.path / "plan"
        return sorted(str(file.relative_to(below).with_suffix("")) for file in below.glob("*/*/*.toml"))

    def config(self, name: str) -> RunConfig:
        """The configuration of a cell."""
        file = self._file("plan", name, ".toml")
        if not file.is_file():
            raise UserError(f"{self.path} has no cell '{name}'; `posterity sweep status {self.path}` lists them")
        for family, origin in self.sweep().origins.items():
            remember(family, origin)
        return run_config.from_toml(file.read_text(encoding="utf-8"), str(file))

    def foreign(self) -> str:
        """A family or method of the plan that is not posterity's own; empty if all are. Nothing is imported."""
        for name in self.names():
            config = _toml(self._file("plan", name, ".toml"))
            for kind, known in (("family", FAMILIES), ("method", METHODS)):
                if config.get(kind) not in known:
                    return f"the {kind} '{config.get(kind)}'"
        return ""

    def check_free(self) -> None:
        """Refuses a folder that is something else."""
        there = self.path.exists() and not self.exists()
        if there and (not self.path.is_dir() or {file.name for file in self.path.iterdir()} - OWN):
            raise UserError(f"{self.path} is in the way, and is no sweep; choose another --out")

    def write(self, sweep: Sweep, cells: Sequence[Cell]) -> None:
        """Plans a new sweep, or adds to one; refuses to change what was planned."""
        if self.exists():
            self._check_same(sweep, cells)
        for cell in cells:
            file = self._file("plan", cell.name, ".toml")
            file.parent.mkdir(parents=True, exist_ok=True)
            if not (self.exists() and file.exists()):
                files.replace(file, run_config.to_toml(cell.config).encode())
        files.replace(self.path / "sweep.toml", to_toml(sweep).encode())  # last: with it there is a sweep

    def _check_same(self, sweep: Sweep, cells: Sequence[Cell]) -> None:
        old, new = self.sweep(), {cell.name: cell for cell in cells}
        on = f"Go on with it as it is: posterity sweep {self.path}; or choose another --out"
        for name in self.names():
            if name not in new:
                raise UserError(f"{self.path} has a cell {name} that this sweep has not. {on}")
            was, now = (_toml_text(text) for text in (self._plan_text(name), run_config.to_toml(new[name].config)))
            if difference := _difference(was, now):
                raise UserError(f"{self.path} was begun with other settings: {name} has {difference}. {on}")
        if old.evaluate and (sweep.evaluate, sweep.episodes) != (True, old.episodes):
            raise UserError(f"{self.path} was begun with an evaluation of {old.episodes} episodes. {on}")
        for name in ("back_variants", "back_every") if old.evaluate else ():
            was, now = (each.model_dump()[name] for each in (old, sweep))
            if was != now:
                raise UserError(f"{self.path} was begun with {name} = {was}, not {now}. {on}")

    def _plan_text(self, name: str) -> str:
        return self._file("plan", name, ".toml").read_text(encoding="utf-8")

    # What has come of it

    def run(self, name: str) -> Path:
        """The run folder of a cell."""
        return self.path / "cells" / name

    def log(self, name: str) -> Path:
        """Where its worker prints to."""
        file = self._file("logs", name, ".log")
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def said(self, name: str) -> Status:
        """What its worker last said."""
        try:
            said = json.loads(self._file("status", name, ".json").read_text(encoding="utf-8"))
            known = {field: said[field] for field in Status._fields if field in said}
            return Status(**known) if known.get("state") in STATES else Status()
        except (OSError, ValueError, TypeError):
            return Status()

    def say(self, name: str, status: Status) -> None:
        """Writes it down, with who says it and when."""
        file = self._file("status", name, ".json")
        file.parent.mkdir(parents=True, exist_ok=True)
        now = status._replace(host=socket.gethostname(), pid=os.getpid(), time=round(time.time(), 1))
        files.replace(file, (json.dumps(now._asdict()) + "\n").encode())

    def status(self, name: str, sweep: Sweep) -> Status:
        """What is true of a cell: its worker may have been lost, its folder deleted."""
        said = self.said(name)
        if self.finished(name) and (not sweep.evaluate or said.episodes == sweep.episodes):
            return said._replace(state="done", reason="")
        if said.state == "running" and not self._alive(name, said):
            return said._replace(state="stopped", reason="its worker was lost")
        return said._replace(state="waiting") if said.state == "done" else said

    def finished(self, name: str) -> bool:
        """Whether a cell has met all its tasks."""
        checkpoint = self.run(name) / "checkpoints" / "state.safetensors"
        planned = self._file("plan", name, ".toml")
        if not (checkpoint.is_file() and planned.is_file()):
            return False
        try:
            return read_position(checkpoint).task >= int(_toml(planned)["tasks"])
        except UserError:  # damaged: whoever goes on with it says so
            return False

    def _alive(self, name: str, said: Status) -> bool:
        if said.host != socket.gethostname() or fcntl is None:
            return time.time() - said.time < SILENT
        try:
            with self._file("status", name, ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @contextmanager
    def held(self, name: str, patience: float) -> Generator[bool]:
        """Holds a cell, so that no other worker has it. False: another one has, and kept it for `patience` seconds.

        A worker that was taken for lost may need a moment to end.
        """
        file = self._file("status", name, ".lock")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as lock:
            yield _locked(lock.fileno(), patience)

    @contextmanager
    def driven(self) -> Generator[None]:
        """Holds the whole sweep, so that no other process hands out its cells."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "sweep.lock").open("a") as lock:
            if not _locked(lock.fileno(), 0.0):
                raise UserError(f"{self.path} is being run by another process; see: posterity sweep status {self.path}")
            yield

    # Stopping

    @property
    def stop(self) -> Path:
        """While this file is there, workers save and leave."""
        return self.path / "stop"

    def _file(self, kind: str, name: str, ending: str) -> Path:
        return self.path / kind / f"{name}{ending}"


def is_sweep(path: Path) -> bool:
    """Whether there is a sweep in folder `path`."""
    return SweepFolder(path).exists()


def _locked(handle: int, patience: float) -> bool:
    until = time.monotonic() + patience
    while fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        else:
            return True
    return True


def _toml(file: Path) -> Record:
    return _toml_text(file.read_text(encoding="utf-8"), str(file))


def _toml_text(text: str, source: str = "") -> Record:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is not TOML: {error}") from error


def _difference(was: Facts, now: Facts, place: str = "") -> str:
    """The first setting in which two configurations differ."""
    for name in sorted({*was, *now}):
        old, new = was.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if found := _difference(cast(Facts, old), cast(Facts, new), f"{place}{name}."):
                return found
        elif old != new:
            return f"{place}{name} = {old}, not {new}"
    return ""
