"""Runs that differ in nothing but their seeds, as one: what several machines or processes did side by side.

    a: seeds 0, 1      b: seeds 2, 3      ->      seeds 0, 1, 2, 3

Lanes know nothing of each other, so a run of four seeds and two runs of two are the same experiment. What is joined can
be reported and published; it has no checkpoints, so it is the parts that are resumed and evaluated, before.

A compact copy is for publishing: returns have five digits, all else three (seconds are whole), records are compressed,
and commands do not name the folders in front of `runs/`. A task's factors stay exact.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomli_w

from posterity.errors import UserError
from posterity.experiment.records import (
    EXACT,
    HEADER,
    Record,
    Run,
    encode,
    read_records,
    read_run,
    read_scores,
    rounded,
)
from posterity.files import packed, seal, seal_of
from posterity.types import Facts

OWN = ("seed", "seeds", "save_every")  # what may differ


def join(parts: Sequence[Path], out: Path, compact: bool = False) -> Facts:
    """Writes the runs in `parts` as one into the new folder `out`; returns its configuration."""
    if not parts:
        raise UserError("Join which runs? For example: posterity join runs/a runs/b --out runs/both")
    if out.exists():
        raise UserError(f"{out} is in the way; choose another --out")
    runs = [read_run(path) for path in parts]
    whole = _whole(runs)
    records = sorted((record for path in parts for record in read_records(path)), key=_place)
    content = HEADER + _lines(records, compact)
    sessions = json.dumps({"sessions": [session for run in runs for session in run.sessions]}, indent=1) + "\n"
    files = {f"evaluation/{name}": _lines(lines, compact) for name, lines in _scores(parts).items()}
    files["records.jsonl"] = content
    if compact:
        best = 9 | lzma.PRESET_EXTREME
        files = {packed(Path(name)).as_posix(): lzma.compress(text, preset=best) for name, text in files.items()}
        sessions = re.sub(r"[\w.~-]*(/[\w.~-]+)*/(?=runs/)", "", sessions)
    files |= {"config.toml": (_comments(parts) + tomli_w.dumps(whole)).encode(), "versions.json": sessions.encode()}
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))  # a name that nobody has
    try:
        _write(unfinished, files)
        unfinished.rename(out)  # all of it or nothing
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return whole


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.chmod(0o777 & ~_umask())  # not private, as a temporary folder is
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
        if name.endswith(".jsonl"):  # what is compressed has a checksum of its own
            seal_of(folder / name).write_bytes(seal(folder / name, text))


def _umask() -> int:
    """What new files are not to be allowed: told only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _whole(runs: Sequence[Run]) -> Facts:
    """The configuration of all seeds, or why there is none."""
    first = runs[0]
    for run in runs[1:]:
        for name in sorted({*first.config, *run.config} - {*OWN}):
            if first.config.get(name) != run.config.get(name):
                raise UserError(f"{first.path} and {run.path} are not one experiment: they differ in {name}")
    seeds = sorted(seed for run in runs for seed in run.seeds)
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        listed = ", ".join(map(str, seeds))
        raise UserError(f"Their seeds are {listed}; joined, each has to be there once and none in between be missing")
    return {**first.config, "seed": seeds[0], "seeds": len(seeds)}


def _comments(parts: Sequence[Path]) -> str:
    """Comment lines of the configurations: settings of an earlier version, in which the parts may not differ."""
    texts = [(path / "config.toml").read_text(encoding="utf-8").splitlines(keepends=True) for path in parts]
    comments = {"".join(line for line in text if line.startswith("#")) for text in texts}
    if len(comments) > 1:
        raise UserError("They are not one experiment: the comments in their config.toml differ")
    return comments.pop()


def _scores(parts: Sequence[Path]) -> dict[str, list[Record]]:
    """The evaluations by file name. All parts have to have the same; each may have its own number of episodes."""
    found: dict[str, list[list[Record]]] = {}
    for path in parts:
        for name, lines in read_scores(path).items():
            found.setdefault(name, []).append(lines)
    for name, several in found.items():
        if len(several) < len(parts):
            lacking = next(path for path in parts if name not in read_scores(path))
            raise UserError(f"{lacking} lacks the scores {name.removesuffix('.jsonl')}; evaluate it too, then join")
    return {name: [line for lines in several for line in lines] for name, several in found.items()}


def _lines(records: Sequence[Record], compact: bool) -> bytes:
    return b"".join(encode({name: _short(name, value) for name, value in r.items()} if compact else r) for r in records)


def _short(name: str, value: object) -> object:
    """What a compact copy has for a value."""
    if name == "wall_seconds" and isinstance(value, int | float):
        return round(value)
    return value if name in EXACT else rounded(value, 5 if name in ("return", "reward") else 3)


def _place(record: Record) -> tuple[int, int, int]:
    """Tasks, iterations, seeds: the order in which one run would have written them."""
    return record["task"], record.get("iteration", -1), record["seed"]
