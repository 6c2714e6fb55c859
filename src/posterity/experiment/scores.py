"""The files of evaluation/ as arrays: a part of the record format (`records`). It needs no JAX."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posterity.errors import UserError
from posterity.experiment.record_checks import check_numbers, check_place, decoded
from posterity.files import check_seal, read_packed
from posterity.types import FloatArray, Record

MEANS = ("return", "world_reward", "world_state", "success")  # what an episode's line may hold


class Scores(NamedTuple):
    """One score of a run's evaluation; what was not evaluated is NaN."""

    returns: FloatArray  # [L, K] mean over episodes
    tasks: int  # finished when it was evaluated
    world_reward: FloatArray  # [L, K] share of rewards that the world model predicted; NaN where there was no choice
    world_state: FloatArray  # [L, K] the same of states
    success: FloatArray  # [L, K] share of episodes that were solved; NaN where the family does not tell
    after: FloatArray  # [L, K, K] of Back: the mean return in a task (last axis) after the n-th task was learned
    episodes: tuple[int, ...]  # of a task; several numbers where seeds or tasks were played differently often


def read_evaluation(path: Path, seeds: Sequence[int], tasks: int) -> dict[str, Scores]:
    """Every score of the run in folder `path`, by the name of its file; Back is that after the last task."""
    return {file.stem: _scores(file, seeds, tasks) for file in evaluation_files(path)}


def evaluation_files(path: Path) -> list[Path]:
    """The files of scores of a run, by name; a published one is there compressed, as FILE.xz."""
    found = (path / "evaluation").glob("*.jsonl*")
    names = {file.name.removesuffix(".xz") for file in found if file.suffix in (".jsonl", ".xz")}
    return [path / "evaluation" / name for name in sorted(names) if name.endswith(".jsonl")]


def evaluation_lines(file: Path) -> list[bytes]:
    """Its lines, refused if they are not those that were written."""
    return check_seal(file, read_packed(file)).splitlines()


def _scores(path: Path, seeds: Sequence[int], tasks: int) -> Scores:
    """One score. Seeds that were joined may have come to different tasks, and have different numbers of episodes."""
    back = path.stem.startswith("back")
    try:
        lines = [decoded(path, number, line) for number, line in enumerate(evaluation_lines(path), 1)]
        for number, line in enumerate(lines, 1):
            check_place(path, number, line, {"seed": (seeds[0], seeds[-1] + 1), "task": (0, tasks)})
            check_numbers(path, number, line, ("return", "after"))
        latest = {seed: max(line["after"] for line in lines if line["seed"] == seed) for seed in {*_of(lines, "seed")}}
        after = _after(lines, seeds, tasks) if back else np.full((len(seeds), 0, 0), np.nan)
        if back:
            lines = [line for line in lines if line["after"] == latest[line["seed"]]]
        sums = {name: np.zeros((len(seeds), tasks)) for name in MEANS}
        counts = {name: np.zeros((len(seeds), tasks)) for name in sums}
        for line in lines:
            place = seeds.index(line["seed"]), line["task"]
            for name, total in sums.items():
                if name in line or name == "return":
                    total[place] += line[name]
                    counts[name][place] += 1
        done = min(latest.values()) + (0 if back else 1)
    except (ValueError, KeyError, IndexError, TypeError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"{path} cannot be read: {type(error).__name__}, {error}") from error
    means = {name: _mean(total, counts[name]) for name, total in sums.items()}
    played = tuple(int(count) for count in np.unique(counts["return"]) if count)
    return Scores(means["return"], done, means["world_reward"], means["world_state"], means["success"], after, played)


def _after(lines: Sequence[Record], seeds: Sequence[int], tasks: int) -> FloatArray:
    """[L, K, K] Back after each task that it was played after."""
    total, count = np.zeros((2, len(seeds), tasks, tasks))
    for line in lines:
        place = seeds.index(line["seed"]), line["after"] - 1, line["task"]
        total[place] += line["return"]
        count[place] += 1
    return _mean(total, count)


def _mean(total: FloatArray, count: FloatArray) -> FloatArray:
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _of(lines: Iterable[Record], name: str) -> list[Any]:
    return [line[name] for line in lines]
