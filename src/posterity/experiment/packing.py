"""A run in pieces of a limited size, to be carried between machines that share no disk.

    posterity pack runs/mine --out there         there/contents.json, there/piece-0001, there/piece-0002, ...
    posterity unpack there --out runs/mine       on the other machine; `resume` goes on as if it had never moved

The run's files, each compressed, are one stream that is cut into pieces. Files of arrays are turned so that equal bytes
of neighbouring numbers lie side by side, and what follows a state is told by how it differs from the next state of the
same episode. Both are undone to the bit, and a checksum of every file is checked.

What finished tasks were is written once, so most of a run does not change. With `since`, the contents of an earlier
pack, files that were in that are left out. Unpacking over the run that they came from gives the whole run.

Reading executes no code and writes nowhere but to the files that a run has. It puts nothing older in the place of a
run that has gone on, and nothing of another run in its place.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
from pydantic import Field, ValidationError

from posterity import files
from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.folder import in_hand
from posterity.settings import Settings
from posterity.types import HostArray, Record

FORMAT = 1
CONTENTS = "contents.json"
STATE = "checkpoints/state.safetensors"
ARRAYS = ".safetensors"
LEVEL = 1  # of zlib: higher ones take several times as long for 2 % less
# What belongs to a run, and nothing else is written: the run itself, its checkpoints, what was evaluated.
NAMES = re.compile(
    r"config\.toml|versions\.json|records\.jsonl(\.sha256)?|"
    r"checkpoints/[A-Za-z0-9_-]{1,80}\.safetensors|evaluation/[A-Za-z0-9_.-]{1,80}\.jsonl(\.sha256)?"
)
SNAPSHOT = re.compile(r"checkpoints/task-\d+-(begin|start|end)\.safetensors")
SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2}  # bytes of a number


class Entry(Settings):
    """A file of the run."""

    name: str
    size: int = Field(ge=0, le=files.MOST_BYTES)
    sha256: str
    packed: int | None = Field(ge=0)  # bytes in the stream; None: it was in an earlier pack


class Piece(Settings):
    """A part of the stream."""

    size: int = Field(ge=0)
    sha256: str


class Contents(Settings):
    """What a pack holds."""

    format: Literal[1] = FORMAT
    files: tuple[Entry, ...]
    pieces: tuple[Piece, ...]


class Packed(NamedTuple):
    """What packing came to, in bytes."""

    run: int
    written: int
    pieces: int
    left_out: int  # files that an earlier pack has


def pack(run: Path, out: Path, most: int, snapshots: bool = True, since: Sequence[Path] = ()) -> Packed:
    """Writes the run into pieces of at most `most` bytes. A run that is going on is refused."""
    if not (run / "config.toml").exists():
        raise UserError(f"{run} holds no run (no config.toml)")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another --out")
    known = {(entry.name, entry.sha256) for path in since for entry in contents_of(path).files}
    with in_hand(run):
        entries: list[Entry] = []
        cut = _Cut(files.own_folder(out), most)
        for name in _names(run, snapshots):
            content = files.read_plain(run / name)
            digest, size = hashlib.sha256(content).hexdigest(), None
            if (name, digest) not in known:
                size = cut.add(zlib.compress(_turned(run / name, content), LEVEL))
            entries.append(Entry(name=name, size=len(content), sha256=digest, packed=size))
        contents = Contents(files=tuple(entries), pieces=tuple(cut.close()))
    files.replace(out / CONTENTS, contents.model_dump_json(indent=1).encode())
    left_out = sum(entry.packed is None for entry in entries)
    return Packed(sum(entry.size for entry in entries), cut.total, len(contents.pieces), left_out)


def unpack(packs: Sequence[Path], run: Path) -> None:
    """Puts the files of the last pack in their places. The earlier ones have what it leaves out, or `run` has."""
    sources = [_Source(path) for path in packs]
    last = sources[-1].contents
    found = {(entry.name, entry.sha256): source for source in sources for entry in source.held}
    lacking = [entry for entry in last.files if (entry.name, entry.sha256) not in found and not _there(run, entry)]
    if lacking:
        raise UserError(
            f"{packs[-1]} leaves out {len(lacking)} files that were packed before, such as {lacking[0].name}. "
            f"Name the earlier packs too, oldest first, or unpack into the run that they came from"
        )
    for source in sources:
        source.check()
    run.mkdir(parents=True, exist_ok=True)
    with in_hand(run):
        _refuse_another_run(run, sources, found, last)
        for entry in sorted(last.files, key=lambda each: each.name == STATE):  # last: the run goes on from it
            if (entry.name, entry.sha256) in found and not _there(run, entry):
                files.own_folder((run / entry.name).parent)
                files.replace(run / entry.name, found[entry.name, entry.sha256].content(entry))


def contents_of(path: Path) -> Contents:
    """What a pack, or its contents.json alone, says that it holds."""
    place = path / CONTENTS if path.is_dir() else path
    try:
        contents = Contents.model_validate_json(files.read_plain(place))
    except (OSError, ValidationError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise UserError(f"{path} is no packed run: {place.name}, {said}") from error
    for entry in contents.files:
        if not NAMES.fullmatch(entry.name):
            raise UserError(f"{path} names a file that no run has: {entry.name[:100]!r}")
    return contents


# Packing --------------------------------------------------------------------------------------------------------------


def _names(run: Path, snapshots: bool) -> list[str]:
    """The files of a run, in an order that does not change."""
    names = sorted(str(path.relative_to(run).as_posix()) for path in run.rglob("*") if path.is_file())
    return [name for name in names if NAMES.fullmatch(name) and (snapshots or not SNAPSHOT.fullmatch(name))]


class _Cut:
    """A stream that is cut into pieces as it is written."""

    def __init__(self, out: Path, most: int) -> None:
        self.out, self.most, self.total = out, most, 0
        self.waiting = bytearray()
        self.pieces: list[Piece] = []

    def add(self, content: bytes) -> int:
        """Returns how many bytes were added."""
        self.waiting += content
        self.total += len(content)
        while len(self.waiting) >= self.most:
            self._write(self.most)
        return len(content)

    def close(self) -> list[Piece]:
        """The last piece is what is left."""
        if self.waiting:
            self._write(len(self.waiting))
        return self.pieces

    def _write(self, size: int) -> None:
        content = bytes(self.waiting[:size])
        del self.waiting[:size]
        self.pieces.append(Piece(size=size, sha256=hashlib.sha256(content).hexdigest()))
        files.replace(_piece(self.out, len(self.pieces)), content)


def _piece(path: Path, number: int) -> Path:
    return path / f"piece-{number:04d}"


# Unpacking ------------------------------------------------------------------------------------------------------------


class _Source:
    """A pack that is read."""

    def __init__(self, path: Path) -> None:
        self.path, self.contents = path, contents_of(path)
        self.held = [entry for entry in self.contents.files if entry.packed is not None]
        ends = accumulate(entry.packed or 0 for entry in self.held)
        self.places = {entry.name: (end - (entry.packed or 0), end) for entry, end in zip(self.held, ends, strict=True)}

    def check(self) -> None:
        """Refuses pieces that are not there, or not as they were written."""
        for number, piece in enumerate(self.contents.pieces, start=1):
            place = _piece(self.path, number)
            if not place.exists():
                raise UserError(f"{place} is missing, of {len(self.contents.pieces)} pieces")
            content = files.read_plain(place)
            if len(content) != piece.size or hashlib.sha256(content).hexdigest() != piece.sha256:
                raise UserError(f"{place} is damaged: it does not fit its checksum. Copy it again")
        if sum(entry.packed or 0 for entry in self.held) != sum(piece.size for piece in self.contents.pieces):
            raise UserError(f"{self.path} is damaged: its files do not fit its pieces")

    def content(self, entry: Entry) -> bytes:
        """A file as it was."""
        unfolding = zlib.decompressobj()
        try:
            turned = unfolding.decompress(self._read(*self.places[entry.name]), entry.size + 1)
            content = _turned_back(entry.name, turned)
        except (zlib.error, ValueError) as error:
            raise UserError(f"{self.path} is damaged: {entry.name} cannot be unfolded") from error
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise UserError(f"{self.path} is damaged: {entry.name} does not fit its checksum")
        return content

    def _read(self, begin: int, end: int) -> bytes:
        """A part of the stream."""
        parts: list[bytes] = []
        at = 0
        for number, piece in enumerate(self.contents.pieces, start=1):
            low, high = max(begin, at), min(end, at + piece.size)
            if low < high:
                with _piece(self.path, number).open("rb") as file:
                    file.seek(low - at)
                    parts.append(file.read(high - low))
            at += piece.size
        return b"".join(parts)


Found = dict[tuple[str, str], _Source]


def _there(run: Path, entry: Entry) -> bool:
    """Whether the run has this very file already."""
    place = run / entry.name
    if not place.is_file() or place.is_symlink() or place.stat().st_size != entry.size:
        return False
    return hashlib.sha256(files.read_plain(place)).hexdigest() == entry.sha256


def _refuse_another_run(run: Path, sources: Sequence[_Source], found: Found, last: Contents) -> None:
    """Refuses what is of another run than the one that lies in `run`, or older."""
    if not (run / "config.toml").exists():
        others = [path for path in run.iterdir() if path.name != "run.lock"]
        if others:
            raise UserError(f"{run} is not empty and holds no run: {others[0].name}; choose another --out")
        return
    [records] = [entry for entry in last.files if entry.name == "records.jsonl"] or [None]
    if records is None or (records.name, records.sha256) not in found:
        return  # it has the same records, or lacking() would have said so
    new, old = found[records.name, records.sha256].content(records), files.read_plain(run / records.name)
    done = checkpoint.read_position(run / STATE).records if (run / STATE).exists() else 0
    if done > len(new) and old.startswith(new):
        raise UserError(f"{run} has gone on since this was packed; unpack it elsewhere, with another --out")
    if new[:done] != old[:done]:
        raise UserError(f"{run} is another run than the packed one; choose another --out")


# Arrays ---------------------------------------------------------------------------------------------------------------


class _Region(NamedTuple):
    """Where an array lies in a file."""

    begin: int
    end: int
    number: int  # bytes of a number
    row: int  # bytes of the last axis


def _turned(path: Path, content: bytes) -> bytes:
    """A file of arrays so that it compresses well. Its header stays, and so does a file of another kind."""
    if path.suffix != ARRAYS:
        return content
    try:
        regions = _regions(content)
    except ValueError as error:
        raise UserError(f"{path} is damaged, so the run cannot be packed: {error}") from error
    turned = np.frombuffer(content, np.uint8).copy()
    for following, region in _pairs(regions):
        turned[following.begin : following.end] ^= _shifted(turned, region)
    for region in regions.values():
        part = turned[region.begin : region.end]
        part[:] = part.reshape(-1, region.number).T.reshape(-1)
    return turned.tobytes()


def _turned_back(name: str, content: bytes) -> bytes:
    """The file as it was. Damage raises a ValueError."""
    if Path(name).suffix != ARRAYS:
        return content
    regions = _regions(content)
    turned = np.frombuffer(content, np.uint8).copy()
    for region in regions.values():
        part = turned[region.begin : region.end]
        part[:] = part.reshape(region.number, -1).T.reshape(-1)
    for following, region in _pairs(regions):
        turned[following.begin : following.end] ^= _shifted(turned, region)
    return turned.tobytes()


def _pairs(regions: dict[str, _Region]) -> Iterator[tuple[_Region, _Region]]:
    """What follows states, and the states. In a memory the state after is mostly the next row's state."""
    for name, following in regions.items():
        region = regions.get(name.removesuffix("next_obs") + "obs") if name.endswith("next_obs") else None
        if region and region.end - region.begin == following.end - following.begin and region.row == following.row:
            yield following, region


def _shifted(content: HostArray, region: _Region) -> HostArray:
    """Of every row of an array the next one."""
    return np.roll(content[region.begin : region.end].reshape(-1, region.row), -1, axis=0).reshape(-1)


def _regions(content: bytes) -> dict[str, _Region]:
    """Where the arrays of a safetensors file lie that hold anything. Damage raises a ValueError."""
    length = int.from_bytes(content[:8], "little")
    begin = 8 + length
    if begin > len(content):
        raise ValueError("its header is longer than the file")
    found: dict[str, _Region] = {}
    try:
        for name, facts in cast(Record, json.loads(content[8:begin])).items():
            if name != "__metadata__":
                (low, high), number = facts["data_offsets"], SIZES.get(facts["dtype"], 1)
                row = number * (facts["shape"] or [1])[-1]
                if not 0 <= low <= high <= len(content) - begin or (high > low and (row < 1 or (high - low) % row)):
                    raise ValueError("an array does not fit the file")
                if high > low:
                    found[name] = _Region(begin + low, begin + high, number, row)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("its header is none of arrays") from error
    return found
