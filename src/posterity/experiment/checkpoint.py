"""The state of a run on disk: one safetensors file, replaced as a whole or not at all.

A state is nested NamedTuples, lists and dictionaries of arrays and numbers. It is written as named leaves and read back
into the shape of a state that the code makes afresh, so nothing in the file is executed and a file of another version
is told apart. The place in the loop and the length of the records at that moment go with it.

A part of the state that is a memory of all tasks (`Agent.task_memory`, its arrays [L, K, ...]) would make checkpoints
ever heavier. Only the present task's share of it is in that file; a finished task's never changes, and is written once,
to a file of its own beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from posterity import tree
from posterity.errors import UserError
from posterity.files import replace
from posterity.types import HostArray, Record

Tree = TypeVar("Tree")

FORMAT = 2


class Position(NamedTuple):
    """Where a run stands: the next iteration to do, and what was on record before it."""

    task: int = 0
    iteration: int = 0
    records: int = 0  # bytes of records.jsonl
    wall: float = 0.0  # seconds of work so far
    finished: bool = False
    config: str = ""  # fingerprint of the configuration the state belongs to

    def after(self, iterations: int, wall: float) -> Position:
        """The place one iteration on; after the last iteration of a task, the beginning of the next task."""
        task, iteration = divmod(self.task * iterations + self.iteration + 1, iterations)
        return Position(task, iteration, wall=wall)


def save(path: Path, state: object, position: Position, task_memory: str = "") -> None:
    """Writes beside `path`, makes sure it is on the disk, and only then takes the old one's place."""
    named = dict(tree.leaves(state))
    memory = _memory(named, task_memory)
    for task in range(position.task if memory else 0):
        if not (file := rows_file(path, task)).exists():
            write(file, {name: leaf[:, task] for name, leaf in memory.items()}, {})
    present = {name: leaf[:, min(position.task, leaf.shape[1] - 1)] for name, leaf in memory.items()}
    write(path, {**named, **present}, {"position": json.dumps(position._asdict())})


def load(path: Path, template: Tree, task_memory: str = "") -> tuple[Tree, Position]:
    """The saved state in the shape of `template`, and its place."""
    position = read_position(path)
    named = dict(tree.leaves(template))
    memory = {name: np.array(leaf) for name, leaf in _memory(named, task_memory).items()}
    share = {name: leaf[:, 0] for name, leaf in memory.items()}
    found = read(path, {**named, **share})
    for task in range(position.task if memory else 0):
        past = read(rows_file(path, task), share)
        for name, leaf in memory.items():
            leaf[:, task] = past[name]
    for name, leaf in memory.items():
        if position.task < leaf.shape[1]:
            leaf[:, position.task] = found[name]
        found[name] = leaf
    return tree.map_leaves(_as, template, tree.filled(template, found)), position


def _as(like: object, leaf: object) -> object:
    """An array of the library that `like` is of: a JAX array goes back to its device. A number stays one."""
    if isinstance(like, np.ndarray | np.generic) or tree.is_number(like):
        return leaf
    return cast(Any, like).__array_namespace__().asarray(leaf)


def _memory(named: Mapping[str, object], part: str) -> Record:
    """The leaves that belong to the memory of all tasks."""
    return {name: leaf for name, leaf in named.items() if part and name.startswith(f"state.{part}.")}


def rows_file(path: Path, task: int) -> Path:
    """Where the memory of a finished task lies."""
    return path.with_name(f"task-{task:04d}-rows.safetensors")


def write(path: Path, arrays: Mapping[str, object], metadata: dict[str, str]) -> None:
    """Named arrays into the file `path`, at once."""
    plain = {name: np.array(leaf, order="C") for name, leaf in arrays.items()}
    replace(path, to_bytes(plain, {"format": str(FORMAT), **metadata}))


def read(path: Path, like: Mapping[str, object]) -> dict[str, HostArray]:
    """Named arrays of the names, shapes and types of `like`."""
    try:
        with _opened(path) as file:
            kept = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in _slices(file)}
            wanted = {name: (np.asarray(leaf).shape, _dtype(leaf)) for name, leaf in like.items()}
            if kept != wanted:
                raise UserError(f"{path} holds the state of another method, size or version")
            return {name: file.get_tensor(name) for name in like}
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read the checkpoint {path}: {error}") from error


def save_tree(path: Path, snapshot: object) -> None:
    """A tree by itself, for later."""
    write(path, dict(tree.leaves(snapshot)), {})


def load_tree(path: Path, template: Tree) -> Tree:
    """A tree in the shape of `template`."""
    return tree.filled(template, read(path, dict(tree.leaves(template))))


def _opened(path: Path) -> Any:
    """A safetensors file, of which nothing is loaded yet. The library does not say its type."""
    return cast(Any, safe_open)(path, framework="numpy")


def _slices(file: Any) -> list[tuple[str, Any]]:
    return [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118  (the file is no dictionary)


def _dtype(leaf: object) -> str:
    """A leaf's type as safetensors names it: F64, I64, BOOL, ..."""
    kind = np.asarray(leaf).dtype
    return "BOOL" if kind == np.bool_ else f"{kind.kind.upper()}{8 * kind.itemsize}"


def read_position(path: Path) -> Position:
    """The place alone, without loading the state."""
    try:
        with _opened(path) as file:
            return _position(path, file.metadata())
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read the checkpoint {path}: {error}") from error


def _position(path: Path, metadata: dict[str, str] | None) -> Position:
    if metadata is None or metadata.get("format") != str(FORMAT):
        raise UserError(f"{path} is not a checkpoint of this version (format {FORMAT})")
    return Position(**json.loads(metadata["position"]))
