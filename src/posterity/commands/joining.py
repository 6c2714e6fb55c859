"""`posterity join`: runs that differ only in their seeds, as one; or a copy to publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from posterity.commands.arguments import parse, terminal
from posterity.errors import UserError


@dataclass(frozen=True)
class JoinArgs:
    """Makes one run of several that differ only in their seeds, or a copy of one, without checkpoints."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """The folders of the runs."""
    out: Path | None = None
    """The folder to make."""
    compact: bool = False
    """Round numbers and compress records, for publishing."""


def join(args: Sequence[str]) -> int:
    """Joins and says what came of it."""
    asked: JoinArgs = parse(JoinArgs, args, "join")
    if asked.out is None:
        raise UserError("Where to? For example: posterity join runs/a runs/b --out runs/both")
    from posterity.report.join import join as joined

    config = joined(asked.folders, asked.out, asked.compact)
    first, last = config["seed"], config["seed"] + config["seeds"] - 1
    terminal().print(f"{asked.out}: {config['family']} {config['method']}, seeds {first} to {last}")
    return 0
