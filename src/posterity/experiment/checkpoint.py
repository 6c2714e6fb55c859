"""The state of a run on disk: one safetensors file, replaced as a whole or not at all.

A state is nested NamedTuples, lists and dictionaries of arrays and numbers. It is written as named leaves and read back
into the shape of a state that the code makes afresh, so nothing in the file is executed and a file of another version
is told apart. The place in the loop and the length of the records at that moment go with it.

A part of the state that is a memory of all tasks (a NamedTuple with `per_task = True`, its arrays [L, K, ...]) would
make checkpoints ever heavier. Only the present task's share of it is in that file; a finished task's never changes, and
is written once, to a file of its own beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from posterity.errors import UserError

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


def save(path: Path, state: Any, position: Position) -> None:
    """Writes beside `path`, makes sure it is on the disk, and only then takes the old one's place."""
    memory = {name: leaf for name, leaf, per_task in _marked(state) if per_task}
    for task in range(position.task if memory else 0):
        if not (file := rows_file(path, task)).exists():
            write(file, {name: leaf[:, task] for name, leaf in memory.items()}, {})
    present = {
        name: leaf[:, min(position.task, leaf.shape[1] - 1)] if per_task else leaf
        for name, leaf, per_task in _marked(state)
    }
    write(path, present, {"position": json.dumps(position._asdict())})


def load(path: Path, template: Any) -> tuple[Any, Position]:
    """The saved state in the shape of `template`, and its place."""
    position = read_position(path)
    like = {name: leaf[:, 0] if per_task else leaf for name, leaf, per_task in _marked(template)}
    found = read(path, like)
    memory = {name: np.array(leaf) for name, leaf, per_task in _marked(template) if per_task}
    for task in range(position.task if memory else 0):
        past = read(rows_file(path, task), {name: leaf[:, 0] for name, leaf in memory.items()})
        for name, leaf in memory.items():
            leaf[:, task] = past[name]
    for name, leaf in memory.items():
        if position.task < leaf.shape[1]:
            leaf[:, position.task] = found[name]
        found[name] = leaf
    return _filled(template, "state", found.__getitem__), position


def rows_file(path: Path, task: int) -> Path:
    """Where the memory of a finished task lies."""
    return path.with_name(f"task-{task:04d}-rows.safetensors")


def write(path: Path, arrays: dict[str, Any], metadata: dict[str, str]) -> None:
    """Named arrays into the file `path`, at once."""
    plain = {name: np.array(leaf, order="C") for name, leaf in arrays.items()}
    replace(path, to_bytes(plain, {"format": str(FORMAT), **metadata}))


def read(path: Path, like: dict[str, Any]) -> dict[str, Any]:
    """Named arrays of the names, shapes and types of `like`."""
    try:
        with safe_open(path, framework="numpy") as file:
            kept = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in _slices(file)}
            wanted = {name: (np.shape(leaf), _dtype(leaf)) for name, leaf in like.items()}
            if kept != wanted:
                raise UserError(f"{path} holds the state of another method, size or version")
            return {name: file.get_tensor(name) for name in like}
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read the checkpoint {path}: {error}") from error


def save_tree(path: Path, tree: Any) -> None:
    """A tree by itself, for later."""
    write(path, dict(leaves(tree)), {})


def load_tree(path: Path, template: Any) -> Any:
    """A tree in the shape of `template`."""
    return _filled(template, "state", read(path, dict(leaves(template))).__getitem__)


def _slices(file: Any) -> list[tuple[str, Any]]:
    return [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118  (the file is no dictionary)


def _dtype(leaf: Any) -> str:
    """A leaf's type as safetensors names it: F64, I64, BOOL, ..."""
    kind = np.asarray(leaf).dtype
    return "BOOL" if kind == np.bool_ else f"{kind.kind.upper()}{8 * kind.itemsize}"


def read_position(path: Path) -> Position:
    """The place alone, without loading the state."""
    try:
        with safe_open(path, framework="numpy") as file:
            return _position(path, file.metadata())
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read the checkpoint {path}: {error}") from error


def replace(path: Path, content: bytes) -> None:
    """Puts `content` in the place of `path` at once: a reader sees the old file or the new one."""
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _position(path: Path, metadata: dict[str, str] | None) -> Position:
    if metadata is None or metadata.get("format") != str(FORMAT):
        raise UserError(f"{path} is not a checkpoint of this version (format {FORMAT})")
    return Position(**json.loads(metadata["position"]))


def _children(node: Any) -> list[tuple[str, Any]] | None:
    """The named parts of a branch, or None for a leaf."""
    if isinstance(node, dict):
        return [(str(name), child) for name, child in node.items()]
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return list(zip(node._fields, node, strict=True))  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(node, list | tuple):
        return [(str(index), child) for index, child in enumerate(node)]
    return None


def leaves(node: Any) -> Iterator[tuple[str, Any]]:
    """The arrays and numbers of a state, each with the path that leads to it."""
    for name, leaf, _ in _marked(node):
        yield name, leaf


def _marked(node: Any, name: str = "state", per_task: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """The leaves, and which of them belong to a memory of all tasks."""
    children = _children(node)
    if children is None:
        yield name, node, per_task
    else:
        inside = per_task or getattr(node, "per_task", False)
        for part, child in children:
            yield from _marked(child, f"{name}.{part}", inside)


def _filled(node: Any, name: str, tensor: Any) -> Any:
    children = _children(node)
    if children is None:
        array = tensor(name)
        return type(node)(array.item()) if isinstance(node, bool | int | float) else array
    filled = [_filled(child, f"{name}.{part}", tensor) for part, child in children]
    if isinstance(node, dict):
        return dict(zip(node, filled, strict=True))
    return type(node)(*filled) if hasattr(node, "_fields") else type(node)(filled)
