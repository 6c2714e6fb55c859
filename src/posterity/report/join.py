"""Runs that differ in nothing but their seeds, as one: what several machines or processes did side by side.

    a: seeds 0, 1      b: seeds 2, 3      ->      seeds 0, 1, 2, 3

Lanes know nothing of each other, so a run of four seeds and two runs of two are the same experiment. What is joined can
be reported and published; it has no checkpoints, so it is the parts that are resumed and evaluated, before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from posterity.errors import UserError
from posterity.report.metrics import Run, read_records, read_run

OWN = ("seed", "seeds", "save_every")  # what may differ


def join(parts: Sequence[Path], out: Path) -> Mapping[str, Any]:
    """Writes the runs in `parts` as one into the new folder `out`; returns its configuration."""
    if len(parts) < 2:
        raise UserError("Join which runs? For example: posterity join runs/a runs/b --out runs/both")
    if out.exists():
        raise UserError(f"{out} is in the way; choose another --out")
    runs = [read_run(path) for path in parts]
    whole = _whole(runs)
    records = sorted((record for path in parts for record in read_records(path)), key=_place)
    files = {f"evaluation/{name}": text for name, text in _scores(parts).items()}
    files["records.jsonl"] = "".join(json.dumps(record) + "\n" for record in records)
    sessions = [session for run in runs for session in run.sessions]
    files["versions.json"] = json.dumps({"sessions": sessions}, indent=1) + "\n"
    files["config.toml"] = tomli_w.dumps(whole)
    unfinished = out.with_name(out.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    for name, text in files.items():
        (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        (unfinished / name).write_text(text, encoding="utf-8")
    unfinished.rename(out)  # all of it or nothing
    return whole


def _whole(runs: Sequence[Run]) -> Mapping[str, Any]:
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


def _scores(parts: Sequence[Path]) -> dict[str, str]:
    """The evaluations by file name. All parts have to have the same, of as many episodes."""
    found: dict[str, list[str]] = {}
    for path in parts:
        for file in sorted((path / "evaluation").glob("*.jsonl")):
            found.setdefault(file.name, []).append(file.read_text(encoding="utf-8"))
    for name, texts in found.items():
        if len(texts) < len(parts):
            lacking = next(path for path in parts if not (path / "evaluation" / name).exists())
            raise UserError(f"{lacking} lacks the scores {name.removesuffix('.jsonl')}; evaluate it too, then join")
        if len({max(json.loads(line)["episode"] for line in text.splitlines()) for text in texts}) > 1:
            raise UserError(f"The scores {name.removesuffix('.jsonl')} are of different numbers of episodes")
    return {name: "".join(texts) for name, texts in found.items()}


def _place(record: dict[str, Any]) -> tuple[int, int, int]:
    """Tasks, iterations, seeds: the order in which one run would have written them."""
    return record["task"], record.get("iteration", -1), record["seed"]
