"""Whether the code that a run folder names may be executed.

The configuration of a run names its family and its method. Where these are not posterity's own (`FILE.py:NAME` or
`module:NAME`), going on with the run executes that code. A folder that somebody sent could name any code. So it is
executed only

    with --trust (`trust=True`), or
    in a run that this user began on this computer, in the folder where it lies now.

The latter is told by a signature in the folder: an HMAC (RFC 2104) of the folder's place and of the names, by a key
that this user's home holds and nobody else can read. Reports and joins execute nothing and ask for nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from posterity import files
from posterity.agents import METHODS
from posterity.errors import UserError
from posterity.families import FAMILIES

NAME = "signature"  # of the file in a run folder


def check(path: Path, family: str, method: str, family_file: str, trust: bool, handed_over: bool = False) -> None:
    """Refuses a run whose code is not known to be the user's. `handed_over`: the family is given as an object."""
    code = [f"family '{family}'"] if family not in FAMILIES and not handed_over else []
    code += [f"method '{method}'"] if method not in METHODS else []
    if not code or trust or _signed(path, family, method, family_file):
        return
    raise UserError(
        f"{path} names code that is not posterity's own, {' and '.join(code)}, and was not begun here by you. "
        "If you trust that code, let it run: --trust (in Python trust=True)"
    )


def sign(path: Path, family: str, method: str, family_file: str) -> None:
    """Marks a run as begun here by this user, where it has code of the user's own."""
    if family in FAMILIES and method in METHODS:
        return
    key = _key(make=True)
    if key:
        files.replace(path / NAME, _signature(key, path, family, method, family_file).encode())


def _signed(path: Path, family: str, method: str, family_file: str) -> bool:
    key = _key(make=False)
    try:
        found = files.read_plain(path / NAME)[:200]
    except (OSError, UserError):
        return False
    return bool(key) and hmac.compare_digest(found, _signature(key, path, family, method, family_file).encode())


def _signature(key: bytes, *facts: object) -> str:
    place, *names = facts
    content = json.dumps([str(Path(str(place)).resolve()), *names]).encode()
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes:
    """This user's key; empty if there is none, or its file can be written by others."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(home) / "posterity" / "key"
    try:
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | files.NOFOLLOW, 0o600), "wb") as new:
                new.write(secrets.token_bytes(32))
        status = file.lstat()
        own = os.name != "posix" or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
        key = file.read_bytes() if own else b""
    except OSError:  # a home that cannot be written: then --trust has to be given
        return b""
    return key if len(key) == 32 else b""
