"""Numbers from records. Reads run folders and nothing else.

An interval is a 95 % Student-t interval of the mean over seeds, each seed being one mean over the tasks looked at. With
a single seed it is over tasks instead, and says so.
"""

from __future__ import annotations

import json
import lzma
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from posterity.errors import UserError
from posterity.types import FloatArray


class Run(NamedTuple):
    """The records of one run as arrays; what is not on record is NaN."""

    path: Path
    config: Mapping[str, Any]
    sessions: list[Mapping[str, Any]]
    seeds: list[int]
    returns: FloatArray  # [L, K, iterations]
    gap: FloatArray  # [L, K, iterations] value lost, where it was probed
    radius: FloatArray  # [L, K] d_pi at the start of a task, where it was probed
    hidden_radius: FloatArray  # [L, K] the same for the distribution that tasks are drawn from
    success: FloatArray  # [L, K, iterations] share of episodes that were solved, where the family tells
    wall: float  # seconds

    @property
    def family(self) -> str:
        """Its family's name."""
        return self.config["family"]

    @property
    def method(self) -> str:
        """Its method's name."""
        return self.config["method"]


class Solved(NamedTuple):
    """How many tasks a run solved, for each seed."""

    over: FloatArray  # [L, iterations] solved in their i-th iteration; an iteration of several episodes counts in part
    most: FloatArray  # [L] the greatest of these: the paper's "maximum number of successfully completed tasks"
    last: FloatArray  # [L] the mean over the last iterations
    ever: FloatArray  # [L] solved at least once


class Interval(NamedTuple):
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float
    over: str  # "seeds" or "tasks"

    def __str__(self) -> str:
        """A Student-t interval is as wide above the mean as below it."""
        if not np.isfinite(self.mean):
            return "-"
        digits = 0 if abs(self.mean) >= 100 else 3 if abs(self.mean) < 10 else 1
        width = f"± {self.high - self.mean:.{digits}f}" if np.isfinite(self.high) else "(one value)"
        return f"{self.mean:.{digits}f} {width}"


def called(runs: Sequence[tuple[str, str, Path]]) -> list[str]:
    """What runs of (family, method, folder) are called: by the folder too, where the rest does not tell them apart."""
    plain = [f"{family} {method}" for family, method, _ in runs]
    pairs = zip(plain, runs, strict=True)
    return [name if plain.count(name) == 1 else f"{name} ({path.name})" for name, (_, _, path) in pairs]


def tasks_of(count: Interval) -> str:
    """A number of tasks for a table: with its interval, if there are several seeds."""
    return f"{count.mean:.3g} ± {count.high - count.mean:.2g}" if np.isfinite(count.high) else f"{count.mean:.3g}"


def read_run(path: Path) -> Run:
    """The run in folder `path`."""
    records = read_records(path)
    try:
        config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        sessions = json.loads((path / "versions.json").read_text(encoding="utf-8"))["sessions"]
    except OSError as error:
        raise UserError(f"{path} holds no run: {error.strerror} ({error.filename})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} holds no readable run: {type(error).__name__}, {error}") from error
    try:
        return _arrays(path, config, sessions, records)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: config.toml and records do not fit together: {type(error).__name__}, {error}"
        ) from error


def read_records(path: Path) -> list[dict[str, Any]]:
    """What the run in folder `path` wrote, whole lines only; refused if it is less than a checkpoint remembers."""
    try:
        written = _checkpointed(path)  # before the records: a run in progress may add to them in between
        lines = _records(path)
    except OSError as error:
        raise UserError(f"{path} holds no run: {error.strerror} ({error.filename})") from error
    except (ValueError, KeyError, TypeError, lzma.LZMAError) as error:
        raise UserError(f"{path} holds no readable run: {type(error).__name__}, {error}") from error
    if len(lines) < (written or 0):
        raise UserError(
            f"{path}/records.jsonl was cut: {len(lines)} bytes, but {written} when the checkpoint was written"
        )
    return _parse(path / "records.jsonl", lines, torn=written is not None)


def _arrays(path: Path, config: Mapping[str, Any], sessions: list[Any], records: list[dict[str, Any]]) -> Run:
    iterations = [record for record in records if record["kind"] == "iteration"]
    if not iterations:
        raise UserError(f"{path} has no finished iteration to report yet")
    seeds = list(range(config["seed"], config["seed"] + config["seeds"]))
    shape = (len(seeds), config["tasks"], config["iterations"])
    returns, gap, success = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    radius, hidden = np.full(shape[:2], np.nan), np.full(shape[:2], np.nan)
    for record in records:
        lane, task = seeds.index(record["seed"]), record["task"]
        if record["kind"] == "iteration":
            returns[lane, task, record["iteration"]] = record["return"]
            gap[lane, task, record["iteration"]] = _number(record.get("gap"))
            success[lane, task, record["iteration"]] = _number(record.get("success"))
        elif record["kind"] == "task":
            radius[lane, task] = _number(record.get("radius"))
            hidden[lane, task] = _number(record.get("radius_of_hidden_world"))
    return Run(
        path,
        config,
        sessions,
        seeds,
        returns,
        gap,
        radius,
        hidden,
        success,
        max(float(each["wall"]) for each in iterations),
    )


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _records(path: Path) -> bytes:
    """The records as written, which may have gone on since they were packed, or as published: compressed."""
    plain, packed = path / "records.jsonl", path / "records.jsonl.xz"
    return lzma.decompress(packed.read_bytes()) if packed.exists() and not plain.exists() else plain.read_bytes()


def _checkpointed(path: Path) -> int | None:
    """How long the records were when the checkpoint was written. Published records come without one."""
    file = path / "checkpoints" / "state.safetensors"
    if not file.exists():
        return None
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        header = json.loads(handle.read(min(length, file.stat().st_size)))  # a damaged length may be any number
    return json.loads(header["__metadata__"]["position"])["records"]


def _parse(path: Path, lines: bytes, torn: bool) -> list[dict[str, Any]]:
    """The records. `torn`: an unfinished last line is that of a run in progress or killed, which will write it anew."""
    *whole, rest = lines.split(b"\n")
    if rest and not torn:
        raise UserError(f"{path} was cut: its last line, number {len(whole) + 1}, is not whole")
    records = []
    for number, line in enumerate(whole, 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"{path}, line {number}, is not a record: {error}") from error
    return records


def interval(values: FloatArray) -> Interval:
    """Of the mean of `values` [L, K]: over seeds if there are several, else over tasks. NaN is left out."""
    over = "seeds" if values.shape[0] > 1 else "tasks"
    sample = mean_known(values, axis=1) if over == "seeds" else values[0]
    sample = sample[np.isfinite(sample)]
    if sample.size == 0:
        return Interval(np.nan, np.nan, np.nan, over)
    low, high = band(sample[:, None])
    return Interval(float(sample.mean()), float(low[0]), float(high[0]), over)


def band(sample: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends of the 95 % Student-t intervals of the means of the columns of `sample` [n, ...]; NaN for a single value."""
    count = np.isfinite(sample).sum(axis=0)
    mean = mean_known(sample, axis=0)
    squares = np.nansum((sample - mean) ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        width = stats.t.ppf(0.975, np.maximum(count - 1, 1)) * np.sqrt(squares / (count - 1) / count)
    return np.where(count > 1, mean - width, np.nan), np.where(count > 1, mean + width, np.nan)


def rolling(values: FloatArray, window: int) -> FloatArray:
    """Mean over the last `window` columns of [L, K], fewer at the beginning."""
    return np.stack(
        [mean_known(values[:, max(0, k + 1 - window) : k + 1], axis=1) for k in range(values.shape[1])], axis=1
    )


def suboptimal_steps(run: Run, epsilon: float) -> FloatArray:
    """[L, K] steps of each task after which the policy was not epsilon-optimal: what Proposition 4.4 bounds."""
    late = np.where(np.isfinite(run.gap), (run.gap > epsilon).astype(float), np.nan)
    return late.sum(axis=2) * run.config["steps"]


def solved(run: Run, late: int = 3) -> Solved | None:
    """The solved tasks of a run, if its family tells. `late` iterations of a task are its end; NaN is left out."""
    if not np.isfinite(run.success).any():
        return None
    over = np.nansum(run.success, axis=1)
    over[~np.isfinite(run.success).any(axis=1)] = np.nan
    ever = (np.nan_to_num(run.success) > 0).any(axis=2).sum(axis=1).astype(float)
    return Solved(over, np.fmax.reduce(over, axis=1), mean_known(over[:, -late:], axis=1), ever)


def mean_known(values: FloatArray, axis: int) -> FloatArray:
    """Mean without NaN, and NaN, without a warning, where there is nothing else."""
    count = np.isfinite(values).sum(axis=axis)
    return np.where(count > 0, np.nansum(values, axis=axis) / np.maximum(count, 1), np.nan)
