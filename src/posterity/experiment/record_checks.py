"""What records have to be before a number of them is believed. It needs no JAX.

A record is one of the run's: a seed, a task and an iteration that the configuration has, each once, with finite
numbers. The records of a seed have no gap: a line that is lost in the middle is missed. The first thing that is wrong
is told with the number of its line.

While a run has a checkpoint, that knows a checksum of the records before it and a fingerprint of the configuration.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard, cast

from posterity.errors import UserError, printable
from posterity.files import plain
from posterity.types import Facts, Record

MOST = 20_000_000  # iterations of all seeds and tasks together; arrays of them are laid out before lines are read


class Saved(NamedTuple):
    """What a checkpoint knows of the files beside it."""

    records: int  # bytes of records.jsonl
    records_sum: int  # checksum of those bytes
    config: str  # fingerprint of the configuration


def checkpointed(path: Path) -> Saved | None:
    """What the checkpoint of the run in folder `path` knows. Published runs have none."""
    file = plain(path / "checkpoints" / "state.safetensors")
    if not file.exists():
        return None
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        header = json.loads(handle.read(min(length, file.stat().st_size)))  # a damaged length may be any number
    position = json.loads(json.loads(header["__metadata__"]["posterity"])["position"])
    return Saved(int(position["records"]), int(position["records_sum"]), str(position["config"]))


def fingerprint(text: str) -> str:
    """Of a configuration. The number of tasks is no part of it: a run may be given more."""
    settings = {name: value for name, value in tomllib.loads(text).items() if name != "tasks"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def check_config(path: Path, config: Facts) -> None:
    """Refuses a configuration that cannot be that of a run, or whose sizes no run has."""
    for name in ("family", "method"):
        if not isinstance(config.get(name), str):
            raise UserError(f"{path}/config.toml: {name} is {config.get(name)!r}; expected a name")
    for name, least in {"seed": 0, "seeds": 1, "tasks": 1, "iterations": 1, "steps_per_iteration": 1}.items():
        value = config.get(name)
        if not _whole(value) or value < least:
            raise UserError(f"{path}/config.toml: {name} is {value!r}; expected a whole number from {least} on")
    if (count := config["seeds"] * config["tasks"] * config["iterations"]) > MOST:
        raise UserError(f"{path}/config.toml promises {count:,} iterations; a report takes {MOST:,} at most")


def decoded(path: Path, number: int, line: bytes) -> Record:
    """A line as a record."""
    try:
        record = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}, line {number}, is not a record: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{path}, line {number}, is not a record")
    return cast(Record, record)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of a record")


_DECODER = json.JSONDecoder(parse_constant=_no_number)  # one for all lines: making one takes longer than a line


def check_lines(path: Path, config: Facts, records: Sequence[Record], first_line: int = 2) -> None:
    """Refuses records that are not this run's, come twice, or have a gap between them."""
    bounds = {
        "seed": (config["seed"], config["seed"] + config["seeds"]),
        "task": (0, config["tasks"]),
        "iteration": (0, config["iterations"]),
    }
    met = dict.fromkeys(range(*bounds["seed"]), 0)  # of each seed the number of tasks begun
    due = dict(met)  # and the iteration that comes next, counted over all tasks
    for number, record in enumerate(records, first_line):
        kind = record.get("kind")
        names = {"task": ("seed", "task"), "iteration": ("seed", "task", "iteration")}.get(str(kind))
        if names is None:
            raise UserError(
                f"{path}, line {number}, is of the kind {printable(repr(kind))}; expected task or iteration"
            )
        check_place(path, number, record, {name: bounds[name] for name in names})
        seed, task = record["seed"], record["task"]
        if kind == "task":
            check_numbers(path, number, record, ())
            here, wanted = task, met[seed]
            met[seed] += 1
        else:
            check_numbers(path, number, record, ("return", "wall_seconds"))
            here, wanted = task * config["iterations"] + record["iteration"], due[seed]
            due[seed] += 1
        if here != wanted or task >= met[seed]:
            raise UserError(
                f"{path}, line {number}, is not the next of seed {seed}: a line before it is missing, or there twice"
            )


def check_place(path: Path, number: int, record: Record, bounds: Mapping[str, tuple[int, int]]) -> None:
    """Refuses a line of a seed, task or iteration that the run does not have."""
    for name, (low, high) in bounds.items():
        value = record.get(name)
        if not _whole(value) or not low <= value < high:
            raise UserError(f"{path}, line {number}: {name} is {value!r}; expected {low} to {high - 1}")


def check_numbers(path: Path, number: int, record: Record, needed: Sequence[str]) -> None:
    """Refuses numbers that are not finite, or not there although they are `needed`."""
    for name in needed:
        if isinstance(record.get(name), bool) or not isinstance(record.get(name), int | float):
            raise UserError(f"{path}, line {number}: {name} is {record.get(name)!r}; expected a number")
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{path}, line {number}: {printable(name)} is {value}; expected a finite number")


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
