"""The record format: what a run writes down, and how it is read back. The one module that knows it; it needs no JAX.

    config.toml          the resolved configuration
    versions.json        {"sessions": [...]}: command, versions, commit and machine of each session
    records.jsonl        a header, then a line for every fact; published runs have records.jsonl.xz instead
    evaluation/*.jsonl   a line for every episode played: zero-shot, start, train, back or back-VARIANT;
                         published runs have *.jsonl.xz

The header is {"kind": "header", "format": 2}. The lines after it are {"kind": "task", ...} when a lane meets a task and
{"kind": "iteration", ...} after each iteration. Numbers have six significant digits, but for a task's factors, which it
takes to build the task again, and the clock. A number that is not finite is left out.
"""

from __future__ import annotations

import json
import lzma
import math
import tomllib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from posterity.errors import UserError
from posterity.experiment.record_checks import check_config, check_lines, checkpointed, decoded, fingerprint
from posterity.experiment.scores import Scores, evaluation_files, evaluation_lines, read_evaluation
from posterity.files import check_seal, packed, plain, read_packed, read_plain
from posterity.types import Facts, FloatArray, HostArray, Record

FORMAT = 2
HEADER = f'{{"kind": "header", "format": {FORMAT}}}\n'.encode()  # the first line
EXACT = ("factors", "wall_seconds")  # written as they are
DEFAULT_VARIANT = "confidence"  # how a method with several ways of playing Back plays it, unless it is set otherwise


class Run(NamedTuple):
    """The records of one run as arrays; what is not on record is NaN."""

    paths: tuple[Path, ...]  # its folder; several where runs are pooled
    config: Facts
    sessions: list[Facts]
    seeds: list[int]
    returns: FloatArray  # [L, K, iterations] mean return of an episode
    reward: FloatArray  # [L, K, iterations] sum over all steps
    episodes: FloatArray  # [L, K, iterations] that ended
    terminated: FloatArray  # [L, K, iterations] episodes that terminated
    success: FloatArray  # [L, K, iterations] share of episodes that were solved, where the family tells
    value_gap: FloatArray  # [L, K, iterations] value lost, where it was measured
    aleatoric_std: FloatArray  # [L, K, iterations] the noise that the acting model predicted
    epistemic_std: FloatArray  # [L, K, iterations] the spread over its sampled networks
    coverage_90: FloatArray  # [L, K, iterations] share of targets inside its 90 % interval
    forecast: FloatArray  # [L, K, iterations] the return that plans predicted for their horizon
    forecast_realised: FloatArray  # [L, K, iterations] the return that followed
    seconds: FloatArray  # [L, K, iterations] since the run began
    radius: FloatArray  # [L, K] d_pi at the start of a task, where it was measured
    hidden_radius: FloatArray  # [L, K] the same for the distribution that tasks are drawn from
    latent: FloatArray  # [L, K, Z] the mean of the latent after a task's last iteration; Z is 0 where there is none
    factors: FloatArray  # [L, K, F] the numbers that tasks differ by, as far as all tasks have the same ones
    factor_names: tuple[str, ...]  # [F]
    same_tasks: bool  # whether all seeds met the same tasks, as far as it is on record
    wall_seconds: float
    scores: Mapping[str, Scores]  # by the names of the files in evaluation/

    @property
    def path(self) -> Path:
        """Its folder; of pooled runs the first one's."""
        return self.paths[0]

    @property
    def folders(self) -> str:
        """All its folders, as text."""
        return " + ".join(map(str, self.paths))

    @property
    def family(self) -> str:
        """Its family's name."""
        return self.config["family"]

    @property
    def method(self) -> str:
        """Its method's name."""
        return self.config["method"]

    @property
    def back(self) -> str:
        """The name of its score Back: played in the one way that its method has, or in the way it is set to."""
        variant = self.config.get("agent", {}).get("backward", {}).get("variant", DEFAULT_VARIANT)
        return "back" if "back" in self.scores else f"back-{variant}"


ITERATION = {  # array of a run: key in an iteration's line
    "returns": "return",
    "reward": "reward",
    "episodes": "episodes",
    "terminated": "terminated",
    "success": "success",
    "value_gap": "value_gap",
    "aleatoric_std": "aleatoric_std",
    "epistemic_std": "epistemic_std",
    "coverage_90": "coverage_90",
    "forecast": "forecast",
    "forecast_realised": "forecast_realised",
    "seconds": "wall_seconds",
}
TASK = {"radius": "radius", "hidden_radius": "radius_of_hidden_world"}  # the same of a task's line
LISTS = ("latent", "factors")  # arrays [L, K, ...] of numbers that belong together


# Writing


def encode(facts: Facts) -> bytes:
    """One line: rounded, and without what is not finite."""
    plain = {name: value if name in EXACT else rounded(value, 6) for name, value in facts.items()}
    known = {name: value for name, value in plain.items() if name in EXACT or _finite(value)}
    return json.dumps(known, allow_nan=False, default=_listed).encode() + b"\n"


def rounded(value: object, digits: int) -> object:
    """A number, or every number of an array, to so many significant digits; anything else as it is."""
    plain = cast(object, value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    if isinstance(plain, list | tuple):
        return [rounded(each, digits) for each in cast(Sequence[object], plain)]
    return float(f"{plain:.{digits}g}") if isinstance(plain, float) else plain


def evaluation_name(score: str, variant: str = "") -> str:
    """What a score is called: its file in evaluation/, without .jsonl. `variant`: the way of playing Back, if any."""
    return f"{score}-{variant}" if variant else score


def encode_evaluation(lines: Iterable[Facts]) -> bytes:
    """A file of evaluation/: one line an episode, with score, seed, task, episode, after, return and steps."""
    return b"".join(map(encode, lines))


def _finite(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_finite, cast(list[object], value)))
    return not isinstance(value, float) or math.isfinite(value)


def _listed(value: HostArray | np.generic) -> object:
    """NumPy's numbers and arrays as JSON's."""
    return value.tolist()


# Reading


def read_run(path: Path) -> Run:
    """The run in folder `path`."""
    records = read_records(path)
    try:
        text = read_plain(path / "config.toml").decode()
        config = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path} holds no run: {error.strerror} ({error.filename})") from error
    except ValueError as error:
        raise UserError(f"{path} holds no readable run: {type(error).__name__}, {error}") from error
    check_config(path, config)
    if (saved := checkpointed(path)) and saved.config != fingerprint(text):
        raise UserError(f"{path}/config.toml was changed since the checkpoint; put the file back as it was")
    if not (path / "versions.json").exists():
        raise UserError(f"{path} holds no run (no versions.json)")
    sessions = read_sessions(path)
    try:
        return _arrays(path, config, sessions, records)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: config.toml and records do not fit together: {type(error).__name__}, {error}"
        ) from error


def read_sessions(path: Path) -> list[Facts]:
    """The sessions a run has had."""
    try:
        sessions = list(json.loads(read_plain(path / "versions.json"))["sessions"])
        if not all(isinstance(each, dict) for each in sessions):
            raise TypeError("a session is not a table")
        return cast(list[Facts], sessions)
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}/versions.json cannot be read: {error}") from error


def read_records(path: Path) -> list[Record]:
    """What the run in folder `path` wrote after the header, whole lines only.

    Refused if it is of another format, or less than a checkpoint remembers.
    """
    try:
        saved = checkpointed(path)  # before the records: a run in progress may add to them in between
        lines = read_packed(path / "records.jsonl")
    except OSError as error:
        raise UserError(f"{path} holds no run: {error.strerror} ({error.filename})") from error
    except (ValueError, KeyError, TypeError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"{path} holds no readable run: {type(error).__name__}, {error}") from error
    if saved and len(lines) < saved.records:
        raise UserError(
            f"{path}/records.jsonl was cut: {len(lines)} bytes, but {saved.records} when the checkpoint was written"
        )
    parsed = _parse(path / "records.jsonl", lines, torn=saved is not None)  # first: it names a broken line
    if saved and zlib.crc32(lines[: saved.records]) != saved.records_sum:
        raise UserError(f"{path}/records.jsonl was changed since the checkpoint; put the file back as it was")
    if saved is None and (path / "records.jsonl").exists():
        check_seal(path / "records.jsonl", lines)
    return parsed


def read_scores(path: Path) -> dict[str, list[Record]]:
    """The lines of a run's evaluation, by the names of its files."""
    return {file.name: [json.loads(line) for line in evaluation_lines(file)] for file in evaluation_files(path)}


def check(path: Path, size: int, checksum: int, seeds: Iterable[int]) -> None:
    """Refuses records whose first `size` bytes are not those that were written, and names the line if one is broken."""
    with path.open("rb") as file:
        content = file.read(size)
    if zlib.crc32(content) == checksum:
        return
    known = [*seeds]  # a damaged line may hold a list, which no set takes
    lines = content.split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        record = decoded(path, number, line)
        whole = record.get("kind") == "header" if number == 1 else record.get("seed") in known
        if not whole:
            raise UserError(f"{path}, line {number}, is not a record of this run")
    raise UserError(f"{path} was changed since the checkpoint; put the file back as it was, or run anew")


def check_format(path: Path) -> None:
    """Refuses a run folder whose records are of another format; one that has none yet is let be."""
    written = plain(path / "records.jsonl")
    published = plain(packed(written))
    try:
        if not written.exists() and not published.exists():
            return
        with written.open("rb") if written.exists() else lzma.open(published) as file:
            first = file.readline()
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"{path} holds no readable run: {type(error).__name__}, {error}") from error
    if first.endswith(b"\n"):
        _check_header(path / "records.jsonl", decoded(path / "records.jsonl", 1, first))


def _check_header(path: Path, first: Record) -> None:
    found = first.get("format") if first.get("kind") == "header" else 1
    if found != FORMAT:
        whose = " (posterity 0.1)" if found == 1 else ""
        raise UserError(f"{path} is in record format {found}{whose}; this version reads and writes format {FORMAT}")


def _parse(path: Path, lines: bytes, torn: bool) -> list[Record]:
    """The records. `torn`: an unfinished last line is that of a run in progress or killed, which will write it anew."""
    *whole, rest = lines.split(b"\n")
    if rest and not torn:
        raise UserError(f"{path} was cut: its last line, number {len(whole) + 1}, is not whole")
    if not whole:
        return []
    _check_header(path, decoded(path, 1, whole[0]))
    return [decoded(path, number, line) for number, line in enumerate(whole[1:], 2)]


def _arrays(path: Path, config: Facts, sessions: list[Facts], records: list[Record]) -> Run:
    check_lines(path / "records.jsonl", config, records)
    iterations = [record for record in records if record["kind"] == "iteration"]
    if not iterations:
        raise UserError(f"{path} has no finished iteration to report yet")
    seeds = list(range(config["seed"], config["seed"] + config["seeds"]))
    shape = (len(seeds), config["tasks"], config["iterations"])
    lane = {seed: index for index, seed in enumerate(seeds)}
    by_iteration = {name: np.full(shape, np.nan) for name in ITERATION}
    by_task = {name: np.full(shape[:2], np.nan) for name in TASK}
    for record in iterations:
        place = lane[record["seed"]], record["task"], record["iteration"]
        for name, key in ITERATION.items():
            by_iteration[name][place] = record["return"] if key == "return" else _number(record.get(key))
    for record in records:
        if record["kind"] == "task":
            for name, key in TASK.items():
                by_task[name][lane[record["seed"]], record["task"]] = _number(record.get(key))
    wall = max(float(each["wall_seconds"]) for each in iterations)
    scores = read_evaluation(path, seeds, config["tasks"])
    met = {(lane[r["seed"]], r["task"]): cast(Facts, r.get("factors") or {}) for r in records if r["kind"] == "task"}
    names = _shared_names([_flat(each) for each in met.values()])
    return Run(
        (path,),
        config,
        sessions,
        seeds,
        **by_iteration,
        **by_task,
        latent=_listed_numbers(shape[:2], {(lane[r["seed"]], r["task"]): r.get("latent", []) for r in iterations}),
        factors=_listed_numbers(
            shape[:2], {place: [_flat(each)[name] for name in names] for place, each in met.items()}
        ),
        factor_names=names,
        same_tasks=bool(met) and all(each and each == met.get((0, place[1])) for place, each in met.items()),
        wall_seconds=wall,
        scores=scores,
    )


def _shared_names(tasks: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """The names that all tasks have, in order."""
    return tuple(name for name in tasks[0] if all(name in task for task in tasks)) if tasks else ()


def _flat(factors: Facts) -> dict[str, float]:
    """The numbers among a task's factors, by name; those of a list by name and place. A key is no such number."""
    found: dict[str, float] = {}
    for name, value in factors.items():
        parts = cast(list[object], value) if isinstance(value, list) else [value]
        numbers = [float(each) for each in parts if isinstance(each, int | float)]
        if name != "key" and len(numbers) == len(parts):
            found |= {name if len(parts) == 1 else f"{name} {place}": each for place, each in enumerate(numbers, 1)}
    return found


def _listed_numbers(shape: tuple[int, ...], lists: Mapping[tuple[int, int], Sequence[float]]) -> FloatArray:
    """[L, K, n], NaN where nothing is on record. The last list of a place counts, as the latest on record."""
    width = max((len(each) for each in lists.values()), default=0)
    array = np.full((*shape, width), np.nan)
    for place, each in lists.items():
        if len(each) == width:
            array[place] = each
    return array


def _number(value: float | None) -> float:
    return np.nan if value is None else value
