"""Files that are replaced as a whole or not at all, and that are never written through a link.

A run folder may come from somebody else. A link in it would lead a writer to any file of the user's, so files are
opened without following one, and folders that are links are refused.

A file can have a seal: FILE.sha256 beside it, as `sha256sum` writes and checks it. It tells of damage, not of malice.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
from pathlib import Path
from typing import IO

from posterity.errors import UserError

MOST_BYTES = 4 << 30  # of what was compressed: a small file may unfold to any size
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # a system without it has no such links


def replace(path: Path, content: bytes) -> None:
    """Puts `content` in the place of `path` at once: a reader sees the old file or the new one."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.unlink(missing_ok=True)  # what a killed process left, or a link
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def seal_of(path: Path) -> Path:
    """Where the seal of a file lies."""
    return path.with_name(path.name + ".sha256")


def seal(path: Path, content: bytes) -> bytes:
    """The seal of a file with this content."""
    return f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode()


def replace_sealed(path: Path, content: bytes) -> None:
    """A file and its seal. Killed in between, it leaves a file without a seal, never one with another's."""
    seal_of(path).unlink(missing_ok=True)
    replace(path, content)
    replace(seal_of(path), seal(path, content))


def check_seal(path: Path, content: bytes) -> bytes:
    """The content as it is, refused if the file has a seal and it is another's."""
    if seal_of(path).exists() and read_plain(seal_of(path)) != seal(path, content):
        raise UserError(f"{path} was changed since it was written: {seal_of(path).name} does not fit. Put it back")
    return content


def append(path: Path) -> IO[bytes]:
    """Opened to be appended to, without a buffer; what is there stays."""
    refuse_link(plain(path))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)


def own_folder(path: Path) -> Path:
    """A folder to write into, made if it is not there. A link in its place is refused."""
    refuse_link(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def refuse_link(path: Path) -> None:
    """Refuses to write where a link leads."""
    if path.is_symlink():
        raise UserError(f"{path} is a link, and nothing is written through links in a run folder. Remove it first")


def plain(path: Path) -> Path:
    """A file that is one or is not there: a pipe or a device would never end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a plain file")
    return path


def read_plain(path: Path) -> bytes:
    """The content of a plain file."""
    return plain(path).read_bytes()


def packed(path: Path) -> Path:
    """Where a file lies compressed, as published runs have it."""
    return path.with_name(path.name + ".xz")


def read_packed(path: Path) -> bytes:
    """The content of a file as written, which may have gone on since it was packed, or else of FILE.xz."""
    if path.exists() or not packed(path).exists():
        return read_plain(path)
    with lzma.open(io.BytesIO(read_plain(packed(path)))) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"{packed(path)} holds more than {MOST_BYTES >> 30} GiB")
    return content
