"""A run folder: what was asked, on what it ran, and what happened.

    config.toml     the resolved configuration      versions.json   command, versions and machine of each session
    records.jsonl   append-only, a line per fact    checkpoints/    the state to go on from, and snapshots

What the lines say is in records.py. A checkpoint remembers how long records.jsonl was; whatever a killed run wrote
after that is cut off when it is resumed, and written again, the same.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import tomli_w

from posterity import files
from posterity.errors import UserError
from posterity.experiment import checkpoint, records, trust
from posterity.experiment.checkpoint import Position
from posterity.experiment.config import RunConfig, from_toml, names_of, to_toml
from posterity.experiment.record_checks import fingerprint
from posterity.experiment.records import check_format, read_sessions
from posterity.experiment.session import session
from posterity.families.base import Family
from posterity.families.lookup import LIVE, hand_over, origin, remember
from posterity.types import Facts

try:
    import fcntl
except ImportError:  # a system without file locks: two sessions in one folder are then the user's to avoid
    fcntl = None

Moment = Literal["begin", "start", "end"]  # of a task, at which a snapshot of the agent is taken
OWN = {
    "run.lock",
    "records.jsonl",
    "records.jsonl.sha256",
    "checkpoints",
    "versions.json",
    "versions.json.part",
    "config.toml.part",
    trust.NAME,
}


class Mark(NamedTuple):
    """A place in the records."""

    size: int  # bytes
    checksum: int  # of them


class RunFolder:
    """The files of one run. Holds the folder's lock while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = path / "records.jsonl"
        self.checkpoint = path / "checkpoints" / "state.safetensors"
        self._digest = ""  # of the configuration a checkpoint belongs to
        self._sum = 0  # checksum of the records so far
        self._file: Any = None
        self._lock: Any = None

    @classmethod
    def create(
        cls, path: Path, config: RunConfig, command: str, begin: Callable[[RunFolder], None] | None = None
    ) -> RunFolder:
        """A new run in a new or empty folder, or in one that a run left before it had a configuration.

        `begin` may save a first checkpoint, for a run that does not begin with nothing.
        """
        new = not path.exists()
        if not new:
            _check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        folder._take()  # before anything is written, and before anything may be removed
        try:
            if (path / "config.toml").exists():
                raise UserError(f"{path} holds a run. Go on with it: posterity resume {path}; or choose another --out")
            _check_free(path)  # again: another run may have been here in between
            text = to_toml(config)
            folder._open(Position(), text)
            folder._write("versions.json", _sessions([], command))
            trust.sign(path, config.family, config.method, origin(config.family).get("family_file", ""))
            if begin is not None:
                begin(folder)
            folder._write("config.toml", text)  # last: with a configuration a folder can be resumed
        except BaseException:
            folder.close()
            if new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        return folder

    @classmethod
    def reopen(
        cls,
        path: Path,
        command: str,
        tasks: int | None = None,
        family: Family | type[Family] | None = None,
        trusted: bool = False,
    ) -> tuple[RunFolder, RunConfig]:
        """A run to go on with; `tasks`: it is to meet so many in all. A finished run is left alone.

        `family`: the run's, where no file defines it. `trusted`: code that it names may run, whoever made it. Records
        written after the last checkpoint are cut off.
        """
        config = read_config(path, family, trusted)
        longer = config if tasks is None else with_tasks(config, tasks, path)
        folder = cls(path)
        new = not (path / "run.lock").exists()
        for written in ("run.lock", "records.jsonl", "checkpoints"):
            files.refuse_link(path / written)
        folder._take()  # first: another session might still be writing what is read now
        try:
            position = folder.position()
            folder.check_config(position)
            folder.check_records(position, config)
            if position.task > longer.tasks or position.iteration >= config.iterations:
                raise UserError(
                    f"{folder.checkpoint} is at task {position.task}, iteration {position.iteration}: not of this run"
                )
            if position.task >= longer.tasks:
                folder.close()
                return folder, config
            if folder.checkpoint.exists():
                checkpoint.read_all(folder.checkpoint)  # damage is found before anything is written
            sessions = read_sessions(path)
            text = (path / "config.toml").read_text(encoding="utf-8")
            folder._open(position, text)
            if longer is not config:  # the checkpoint fits both: it is given more room when it is loaded
                folder._write("config.toml", tomli_w.dumps({**tomllib.loads(text), "tasks": longer.tasks}))
            folder._write("versions.json", _sessions(sessions, command))
        except BaseException:
            folder.close()
            if new:  # a folder that cannot be gone on with is left as it was
                (path / "run.lock").unlink(missing_ok=True)
            raise
        return folder, longer

    def position(self) -> Position:
        """Where the run stands; the beginning if it never came to a checkpoint."""
        return checkpoint.read_position(self.checkpoint) if self.checkpoint.exists() else Position()

    def check_config(self, position: Position) -> None:
        """Refuses settings that are not those of the checkpoint. Tasks may be added."""
        if not self.checkpoint.exists():
            return
        text = (self.path / "config.toml").read_text(encoding="utf-8")
        if position.config != fingerprint(text):
            raise UserError(f"{self.path}/config.toml was changed since the checkpoint; undo that, or run anew")
        if tomllib.loads(text)["tasks"] < position.tasks:
            raise UserError(f"{self.path}/config.toml has fewer tasks than the run began with, {position.tasks}")

    def check_records(self, position: Position, config: RunConfig) -> None:
        """Refuses a folder in which going on would lose records, or build on damaged ones."""
        size = self.records.stat().st_size if self.records.exists() else 0
        begun = size > len(records.HEADER) or (self.path / "records.jsonl.xz").exists()
        if not self.checkpoint.exists() and begun:
            raise UserError(
                f"{self.path} has records but no checkpoint to go on from; its records are left as they are"
            )
        if size < position.records:
            raise UserError(
                f"{self.records} was cut: {size} bytes, but {position.records} when the checkpoint was written. "
                "Put the whole file back, or run anew into another folder"
            )
        if self.checkpoint.exists():
            seeds = range(config.seed, config.seed + config.seeds)
            records.check(self.records, position.records, position.records_sum, seeds)

    def write(self, kind: str, **facts: object) -> None:
        """Appends one line."""
        self._append(records.encode({"kind": kind, **facts}))

    def _append(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:  # an almost full disk takes a part; the next write then says why
            rest = rest[self._file.write(rest) :]
        self._sum = zlib.crc32(line, self._sum)

    def mark(self) -> Mark:
        """Where the records end now."""
        return Mark(self._file.tell(), self._sum)

    def rewind(self, mark: Mark) -> None:
        """Takes back what was written since `mark`."""
        self._file.truncate(mark.size)
        self._file.seek(0, os.SEEK_END)
        self._sum = mark.checksum

    def save(self, state: object, position: Position, task_memory: str) -> None:
        """A checkpoint of `state`. The records before it are on the disk before it is."""
        os.fsync(self._file.fileno())
        size, checksum = self.mark()
        place = position._replace(records=size, records_sum=checksum, config=self._digest)
        checkpoint.save(self.checkpoint, state, place, task_memory)

    def describe(self, facts: Mapping[str, str]) -> None:
        """Adds to what is on record of this session."""
        *earlier, last = read_sessions(self.path)
        self._write("versions.json", json.dumps({"sessions": [*earlier, {**last, **facts}]}, indent=1) + "\n")

    def first_session(self) -> Facts:
        """What is on record of the session that began the run."""
        return read_sessions(self.path)[0]

    def snapshot_path(self, task: int, moment: Moment) -> Path:
        """Where the snapshot of a moment of a task lies."""
        return self.path / "checkpoints" / f"task-{task:04d}-{moment}.safetensors"

    def write_snapshot(self, task: int, moment: Moment, snapshot: object) -> None:
        """Puts aside what it takes to act later as now: evaluation is apart from training."""
        checkpoint.save_tree(self.snapshot_path(task, moment), snapshot)

    def close(self) -> None:
        """Lets go of the files and the lock. Records that were written to get a seal, for when they are published."""
        if self._file is not None:
            with suppress(OSError):  # a full disk: then they have none
                files.replace(files.seal_of(self.records), files.seal(self.records, self.records.read_bytes()))
        for handle in (self._file, self._lock):
            if handle is not None:
                handle.close()

    def _take(self) -> None:
        """Takes the folder's lock, or says that somebody has it."""
        self._lock = _locked(self.path)

    def _open(self, position: Position, config: str) -> None:
        self._digest = fingerprint(config)
        files.own_folder(self.checkpoint.parent)
        files.seal_of(self.records).unlink(missing_ok=True)  # it is the last session's
        self._file = files.append(self.records)
        self.rewind(Mark(position.records, position.records_sum))
        if position.records == 0:  # new, or stopped before its first checkpoint
            self._append(records.HEADER)
        task = position.task
        for left in self.checkpoint.parent.glob("task-*-rows.safetensors"):  # of a session that came further, unsaved
            number = left.name.split("-")[1]
            if number.isdecimal() and int(number) >= task:  # else it is none of ours
                left.unlink()

    def _write(self, name: str, text: str) -> None:
        files.replace(self.path / name, text.encode())


@contextmanager
def in_hand(path: Path) -> Generator[None]:
    """Keeps other processes from going on with the run in `path` meanwhile."""
    new = not (path / "run.lock").exists()
    lock = _locked(path)
    try:
        yield
    finally:
        if new:  # the folder is left as it was
            (path / "run.lock").unlink(missing_ok=True)
        lock.close()


def _locked(path: Path) -> IO[bytes]:
    """The folder's lock, held until it is closed."""
    lock = files.append(path / "run.lock")
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise UserError(f"{path} is in use by another process") from None
    return lock


def with_tasks(config: RunConfig, tasks: int, path: Path) -> RunConfig:
    """The configuration of the run in `path` with more tasks."""
    if tasks < config.tasks:
        raise UserError(f"{path} is a run of {config.tasks} tasks; --tasks can add to them, not take away")
    return config if tasks == config.tasks else config.model_copy(update={"tasks": tasks})


def _check_free(path: Path) -> None:
    """Refuses a folder in which there is anything to lose."""
    if not path.is_dir() or {file.name for file in path.iterdir()} - OWN:
        raise UserError(f"{path} is in the way. Go on with it: posterity resume {path}; or choose another --out")
    written, saved = path / "records.jsonl", path / "checkpoints"
    begun = written.exists() and not records.HEADER.startswith(written.read_bytes())
    if begun or (saved.exists() and any(saved.iterdir())):
        raise UserError(
            f"{path} has records or checkpoints but no config.toml. Choose another --out; nothing is touched"
        )


def _sessions(earlier: Sequence[Facts], command: str) -> str:
    return json.dumps({"sessions": [*earlier, session(command)]}, indent=1) + "\n"


def read_config(path: Path, family: Family | type[Family] | None = None, trusted: bool = False) -> RunConfig:
    """The configuration of the run in folder `path`. `family`: what its family's name stands for, if it is at hand.

    Code that it names is loaded if this user began the run here, or if it is `trusted` (trust.py).
    """
    file = path / "config.toml"
    if not file.is_file():
        raise UserError(f"{path} holds no run (no config.toml)")
    check_format(path)  # first: settings of another version would be called unknown
    try:
        text = files.read_plain(file).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not the configuration of a run: {error}") from error
    name, method = names_of(text, str(file))
    first = read_sessions(path)[:1]
    lay = str(first[0].get("family_file", "")) if first else ""
    trust.check(path, name, method, lay, trusted, family is not None or name.startswith(LIVE))
    if family is not None:
        hand_over(name, family)
    elif lay:  # where it lay when the run began: the present folder may be another
        remember(name, lay)
    return from_toml(text, str(file))
