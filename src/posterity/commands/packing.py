"""`posterity pack` and `posterity unpack`: a run in pieces, to be carried to another machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posterity.commands.arguments import parse, terminal
from posterity.errors import UserError
from posterity.settings import Settings, argument, setting

MB = 1_000_000


class PackArgs(Settings):
    """Puts a run into compressed pieces of a limited size, to be carried to a machine that shares no disk."""

    run: Path | None = argument(None, "The folder of the run.")
    out: Path | None = setting(None, "The folder to make.")
    piece_mb: float = setting(15.0, "Largest piece, in millions of bytes.", gt=0, le=4000)
    snapshots: bool = setting(True, "Take along what `posterity evaluate` needs of finished tasks.")
    since: tuple[Path, ...] = setting((), "Earlier packs, or their contents.json: leave out what they hold.")


class UnpackArgs(Settings):
    """Puts a packed run back together, to be resumed or evaluated."""

    packs: tuple[Path, ...] = argument((), "The folders of the packs, oldest first.")
    out: Path | None = setting(None, "The folder of the run. An older state of the same run is brought forward.")


def pack(args: Sequence[str]) -> int:
    """Packs, and says what there is to carry."""
    asked = parse(PackArgs, args, "pack")
    if asked.run is None or asked.out is None:
        raise UserError("Pack which run, and where to? For example: posterity pack runs/mine --out there")
    from posterity.experiment import packing

    done = packing.pack(asked.run, asked.out, max(1, int(asked.piece_mb * MB)), asked.snapshots, asked.since)
    rest = f"; {done.left_out} files are left out, for earlier packs hold them" if done.left_out else ""
    said = f"{asked.out}: {done.run / MB:.1f} MB of the run in {done.pieces} pieces of {done.written / MB:.1f} MB{rest}"
    terminal().print(said)
    return 0


def unpack(args: Sequence[str]) -> int:
    """Unpacks, and says how to go on."""
    asked = parse(UnpackArgs, args, "unpack")
    if not asked.packs or asked.out is None:
        raise UserError("Unpack what, and where to? For example: posterity unpack there --out runs/mine")
    from posterity.experiment import packing

    packing.unpack(asked.packs, asked.out)
    terminal().print(f"{asked.out}: every file is as it was packed. Go on with it: posterity resume {asked.out}")
    return 0
