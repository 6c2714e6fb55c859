"""Runs that differ in nothing but their seeds, as one: what several machines or processes did side by side.

    a: seeds 0, 1      b: seeds 2, 3      ->      seeds 0, 1, 2, 3

Lanes know nothing of each other, so a run of four seeds and two runs of two are the same experiment. What is joined can
be reported and published; it has no checkpoints, so it is the parts that are resumed and evaluated, before.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.config import RunConfig, to_toml
from posterity.experiment.record import read_config, read_sessions

OWN = ("seed", "seeds", "save_every")  # what may differ


def join(parts: Sequence[Path], out: Path) -> RunConfig:
    """Writes the runs in `parts` as one into the new folder `out`; returns its configuration."""
    if len(parts) < 2:
        raise UserError("Join which runs? For example: posterity join runs/a runs/b --out runs/both")
    if out.exists():
        raise UserError(f"{out} is in the way; choose another --out")
    configs = [read_config(path) for path in parts]
    whole = _whole(parts, configs)
    records = sorted((record for path in parts for record in _records(path)), key=_place)
    names = [{file.name for file in (path / "evaluation").glob("*.jsonl")} for path in parts]
    scores = {
        name: "".join((path / "evaluation" / name).read_text(encoding="utf-8") for path in parts)
        for name in sorted(set.intersection(*names))
    }
    sessions = [session for path in parts for session in read_sessions(path)]
    (out / "evaluation").mkdir(parents=True)
    for name, text in scores.items():
        checkpoint.replace(out / "evaluation" / name, text.encode())
    lines = "".join(json.dumps(record) + "\n" for record in records)
    checkpoint.replace(out / "records.jsonl", lines.encode())
    checkpoint.replace(out / "versions.json", (json.dumps({"sessions": sessions}, indent=1) + "\n").encode())
    checkpoint.replace(out / "config.toml", to_toml(whole).encode())
    return whole


def _whole(parts: Sequence[Path], configs: Sequence[RunConfig]) -> RunConfig:
    """The configuration of all seeds, or why there is none."""
    first, *others = [config.model_dump() for config in configs]
    for path, other in zip(parts[1:], others, strict=True):
        for name, value in other.items():
            if name not in OWN and first.get(name) != value:
                raise UserError(f"{parts[0]} and {path} are not one experiment: they differ in {name}")
    seeds = sorted(seed for config in configs for seed in range(config.seed, config.seed + config.seeds))
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        listed = ", ".join(map(str, seeds))
        raise UserError(f"Their seeds are {listed}; joined, each has to be there once and none in between be missing")
    return configs[0].model_copy(update={"seed": seeds[0], "seeds": len(seeds)})


def _records(path: Path) -> list[dict[str, Any]]:
    """Those of one run, as written or as published."""
    plain, packed = path / "records.jsonl", path / "records.jsonl.xz"
    try:
        text = plain.read_bytes() if plain.exists() else lzma.decompress(packed.read_bytes())
        return [json.loads(line) for line in text.splitlines()]
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise UserError(f"The records of {path} cannot be read: {error}") from error


def _place(record: dict[str, Any]) -> tuple[int, int, int]:
    """Tasks, iterations, seeds: the order in which one run would have written them."""
    return record["task"], record.get("iteration", -1), record["seed"]
