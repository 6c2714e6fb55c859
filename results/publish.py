"""Puts on record what runs were and did: configuration, versions, records and scores, without checkpoints.

    python results/publish.py runs/hopper-gravity-npg-001 results/baselines/hopper-gravity-npg

Returns are rounded to five digits, all else to three (seconds to whole ones), and records are compressed, since a few
megabytes are to hold all results. Folders in front of `runs/` are left out of the commands.
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
import sys
from pathlib import Path
from typing import Any


def rounded(name: str, value: Any) -> Any:
    """What a record holds under a name; a task's factors stay exact, since it takes them to build the task again."""
    if name == "wall":
        return round(value)
    return float(f"{value:.{5 if name == 'return' else 3}g}") if isinstance(value, float) else value


def lines(text: str) -> str:
    """JSON lines, rounded."""
    records = [json.loads(line) for line in text.splitlines()]
    return "".join(json.dumps({name: rounded(name, value) for name, value in r.items()}) + "\n" for r in records)


def publish(run: Path, dest: Path) -> None:
    """One run."""
    dest.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "config.toml", dest)
    versions = (run / "versions.json").read_text(encoding="utf-8")
    (dest / "versions.json").write_text(re.sub(r"[\w.~-]*(/[\w.~-]+)*/(?=runs/)", "", versions), encoding="utf-8")
    plain, packed = run / "records.jsonl", run / "records.jsonl.xz"
    text = plain.read_text(encoding="utf-8") if plain.exists() else lzma.decompress(packed.read_bytes()).decode()
    packed_small = lzma.compress(lines(text).encode(), preset=9 | lzma.PRESET_EXTREME)
    (dest / "records.jsonl.xz").write_bytes(packed_small)
    shutil.rmtree(dest / "evaluation", ignore_errors=True)
    for scores in sorted((run / "evaluation").glob("*.jsonl")):
        (dest / "evaluation").mkdir(exist_ok=True)
        (dest / "evaluation" / scores.name).write_text(lines(scores.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]))
