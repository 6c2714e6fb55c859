"""`posterity join`: runs that differ only in their seeds, as one; or a copy to publish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posterity.commands.arguments import parse, terminal
from posterity.errors import UserError
from posterity.settings import Settings, argument, setting


class JoinArgs(Settings):
    """Makes one run of several that differ only in their seeds, or a copy of one, without checkpoints."""

    folders: tuple[Path, ...] = argument((), "The folders of the runs.")
    out: Path | None = setting(None, "The folder to make.")
    compact: bool = setting(False, "Round numbers and compress records, for publishing.")


def join(args: Sequence[str]) -> int:
    """Joins and says what came of it."""
    asked = parse(JoinArgs, args, "join")
    if asked.out is None:
        raise UserError("Where to? For example: posterity join runs/a runs/b --out runs/both")
    from posterity.report.join import join as joined

    config = joined(asked.folders, asked.out, asked.compact)
    first, last = config["seed"], config["seed"] + config["seeds"] - 1
    terminal().print(f"{asked.out}: {config['family']} {config['method']}, seeds {first} to {last}")
    return 0
