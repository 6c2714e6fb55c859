"""The state of a run on disk: one safetensors file, replaced as a whole or not at all.

A state is nested NamedTuples, lists and dictionaries of arrays and numbers. It is written as named leaves and read back
into the shape of a state that the code makes afresh, so nothing in the file is executed and a file of another version
is told apart. The place in the loop and the length of the records at that moment go with it.
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

FORMAT = 1


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
    arrays = {name: np.array(leaf, order="C") for name, leaf in leaves(state)}
    metadata = {"format": str(FORMAT), "position": json.dumps(position._asdict())}
    replace(path, to_bytes(arrays, metadata))


def load(path: Path, template: Any) -> tuple[Any, Position]:
    """The saved state in the shape of `template`, and its place."""
    try:
        with safe_open(path, framework="numpy") as file:
            position = _position(path, file.metadata())
            kept = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in _slices(file)}
            wanted = {name: (np.shape(leaf), _dtype(leaf)) for name, leaf in leaves(template)}
            if kept != wanted:
                raise UserError(f"{path} holds the state of another method, size or version")
            return _filled(template, "state", file.get_tensor), position
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read the checkpoint {path}: {error}") from error


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


def leaves(node: Any, name: str = "state") -> Iterator[tuple[str, Any]]:
    """The arrays and numbers of a state, each with the path that leads to it."""
    children = _children(node)
    if children is None:
        yield name, node
    else:
        for part, child in children:
            yield from leaves(child, f"{name}.{part}")


def _filled(node: Any, name: str, tensor: Any) -> Any:
    children = _children(node)
    if children is None:
        array = tensor(name)
        return type(node)(array.item()) if isinstance(node, bool | int | float) else array
    filled = [_filled(child, f"{name}.{part}", tensor) for part, child in children]
    if isinstance(node, dict):
        return dict(zip(node, filled, strict=True))
    return type(node)(*filled) if hasattr(node, "_fields") else type(node)(filled)
