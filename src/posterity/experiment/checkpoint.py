"""The state of a run on disk: one safetensors file, replaced as a whole or not at all.

A state is nested NamedTuples, lists and dictionaries of arrays and numbers. It is written as named leaves and read back
into the shape of a state that the code makes afresh, so nothing in the file is executed and a file of another version
is told apart. The place in the loop and the length of the records at that moment go with it. A checksum of both tells
of damage.

A part of the state that is a memory of all tasks (`Agent.task_memory`, its arrays [L, K, ...]) would make checkpoints
ever heavier. Only the present task's share of it is in that file; a finished task's never changes, and is written once,
to a file of its own beside it. What is called `present` in it belongs to the present task alone. So a run can be given
more tasks: the state is read into a template with more room.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from posterity import tree
from posterity.errors import UserError
from posterity.files import plain, replace
from posterity.types import HostArray, Record

Tree = TypeVar("Tree")
Form = tuple[tuple[int, ...], str]  # shape and type of an array

FORMAT = 3
HEADER = "posterity"  # what is said of the arrays in a file, as JSON


class DamageError(UserError):
    """A file that does not hold what was written to it."""


class Position(NamedTuple):
    """Where a run stands: the next iteration to do, and what was on record before it."""

    task: int = 0
    iteration: int = 0
    records: int = 0  # bytes of records.jsonl
    wall: float = 0.0  # seconds of work so far
    config: str = ""  # fingerprint of the configuration the state belongs to
    records_sum: int = 0  # checksum of those bytes
    tasks: int = 0  # that the state has room for, beside the earlier ones
    earlier: int = 0  # tasks the agent had met in another run before this one began

    def after(self, iterations: int, wall: float) -> Position:
        """The place one iteration on; after the last iteration of a task, the beginning of the next task."""
        task, iteration = divmod(self.task * iterations + self.iteration + 1, iterations)
        return self._replace(task=task, iteration=iteration, wall=wall)

    @property
    def met(self) -> int:
        """Tasks the agent has met, the present one and those of another run included."""
        return self.earlier + self.task + (self.iteration > 0)


def save(path: Path, state: object, position: Position, task_memory: str = "") -> None:
    """Writes beside `path`, makes sure it is on the disk, and only then takes the old one's place."""
    named = dict(tree.leaves(state))
    memory = _memory(named, task_memory)
    done = position.earlier + position.task
    first = done  # they are written in order: those before one that is there are there too
    while memory and first > 0 and not rows_file(path, first - 1, position.earlier).exists():
        first -= 1
    for task in range(first, done if memory else 0):
        write(rows_file(path, task, position.earlier), {name: leaf[:, task] for name, leaf in memory.items()}, {})
    present = {name: leaf[:, min(done, leaf.shape[1] - 1)] for name, leaf in memory.items()}
    place = json.dumps(position._asdict())
    write(path, {**named, **present}, {"position": place, "position_checksum": _digest(place.encode())})


def load(path: Path, template: Tree, task_memory: str = "", grow: bool = False) -> tuple[Tree, Position]:
    """The saved state in the shape of `template`, and its place.

    `grow`: the template may have room for more than was saved. Memory of tasks then fills a part of the template's;
    other arrays keep the size they were saved with.
    """
    position = read_position(path)
    named = dict(tree.leaves(template))
    memory = {name: np.array(leaf) for name, leaf in _memory(named, task_memory).items()}
    share = {name: leaf[:, 0] for name, leaf in memory.items()}
    found = read(path, {**named, **share}, grow)
    done = position.earlier + position.task
    pieces = {task: read(rows_file(path, task, position.earlier), share, grow) for task in range(done if memory else 0)}
    if position.iteration > 0:  # else the present task has not begun, and there is nothing of it
        pieces[done] = dict(found)
    for name, leaf in memory.items():
        for task, piece in pieces.items():
            tree.put_corner(leaf[:, task], piece[name])
        found[name] = leaf
    for name, array in found.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise DamageError(f"{path} cannot be gone on from: {name} holds what is not a number")
    filled = tree.filled(template, found)
    return tree.map_leaves(tree.in_library_of, template, filled), position


def _memory(named: Mapping[str, object], part: str) -> Record:
    """The leaves that belong to the memory of all tasks."""
    start = f"state.{part}."
    return {
        name: leaf
        for name, leaf in named.items()
        if part and name.startswith(start) and not name.startswith(f"{start}present.")
    }


def rows_file(path: Path, task: int, earlier: int = 0) -> Path:
    """Where the memory of a finished task lies. The first `earlier` tasks are those of another run."""
    name = f"earlier-{task:04d}" if task < earlier else f"task-{task - earlier:04d}"
    return path.with_name(f"{name}-rows.safetensors")


def write(path: Path, arrays: Mapping[str, object], metadata: dict[str, str]) -> None:
    """Named arrays into the file `path`, at once."""
    plain = {name: np.array(leaf, order="C") for name, leaf in arrays.items()}
    header = {"format": str(FORMAT), "checksum": _checksum(plain), **metadata}
    replace(path, to_bytes(plain, {HEADER: json.dumps(header)}))  # one entry: the library writes several in any order


def read(path: Path, like: Mapping[str, object], grow: bool = False) -> dict[str, HostArray]:
    """Named arrays of the names, shapes and types of `like`; with `grow` they may be smaller."""
    arrays = read_all(path)
    kept = {name: (array.shape, array.dtype.str) for name, array in arrays.items()}
    wanted = {name: (np.asarray(leaf).shape, np.asarray(leaf).dtype.str) for name, leaf in like.items()}
    if not (_room(kept, wanted) if grow else kept == wanted):
        raise UserError(f"{path} holds the state of another method, size or version")
    return {name: arrays[name] for name in like}


def read_all(path: Path) -> dict[str, HostArray]:
    """Every array of a file, if they are those that were written."""
    try:
        with _opened(path) as file:
            metadata = _metadata(path, file)
            arrays = {name: cast(HostArray, file.get_tensor(name)) for name in cast(list[str], file.keys())}
    except (SafetensorError, OSError) as error:
        raise DamageError(f"Cannot read the checkpoint {path}: {error}") from error
    if metadata.get("checksum") != _checksum(arrays):
        raise DamageError(f"{path} is damaged: what it holds does not fit its checksum. Put a good copy in its place")
    return arrays


def _room(kept: Mapping[str, Form], wanted: Mapping[str, Form]) -> bool:
    """Whether every array has its place in one of the same name and type that is as large or larger."""
    return kept.keys() == wanted.keys() and all(
        kind == wanted[name][1]
        and len(shape) == len(wanted[name][0])
        and all(size <= room for size, room in zip(shape, wanted[name][0], strict=True))
        for name, (shape, kind) in kept.items()
    )


def _checksum(arrays: Mapping[str, HostArray]) -> str:
    """Of names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def save_tree(path: Path, snapshot: object) -> None:
    """A tree by itself, for later."""
    write(path, dict(tree.leaves(snapshot)), {})


def load_tree(path: Path, template: Tree) -> Tree:
    """A tree in the shape of `template`. It may have been saved when the run had fewer tasks, and room for no more."""
    found = read(path, dict(tree.leaves(template)), grow=True)
    return tree.extended(tree.filled(template, found), template)


def _opened(path: Path) -> Any:
    """A safetensors file, of which nothing is loaded yet. The library does not say its type."""
    return cast(Any, safe_open)(plain(path), framework="numpy")


def read_position(path: Path) -> Position:
    """The place alone, without loading the state."""
    try:
        with _opened(path) as file:
            metadata = _metadata(path, file)
    except (SafetensorError, OSError) as error:
        raise DamageError(f"Cannot read the checkpoint {path}: {error}") from error
    place = metadata.get("position", "")
    if metadata.get("position_checksum") != _digest(place.encode()):
        raise DamageError(f"{path} is damaged: its place in the run does not fit its checksum")
    return _checked(path, json.loads(place))


def _checked(path: Path, facts: Record) -> Position:
    """A place that a run can be in, or one line that says that it is none."""
    usual = Position()._asdict()
    same = facts.keys() == usual.keys() and all(type(facts[name]) is type(value) for name, value in usual.items())
    counts = [value for value in facts.values() if isinstance(value, int | float)]
    if not same or min(counts) < 0 or not np.isfinite(counts).all():
        raise DamageError(f"{path} is damaged: its place in the run is none, {facts}")
    return Position(**facts)


def _metadata(path: Path, file: Any) -> dict[str, str]:
    try:
        metadata = cast("dict[str, str]", json.loads(file.metadata()[HEADER]))
    except (KeyError, TypeError, ValueError):
        metadata = {}
    if metadata.get("format") != str(FORMAT):
        raise UserError(f"{path} is not a checkpoint of this version (format {FORMAT})")
    return metadata
