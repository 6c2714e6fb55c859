"""What goes wrong because of what was asked for, said in one line.

A `UserError` is a mistake in the input or the surroundings (a name, a value, a full disk), never a defect here. The
command prints it as one line and exits with 2; a defect keeps its traceback.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}  # Unicode categories of characters that are not seen


class UserError(Exception):
    """Something only the user can mend. Its text is one line that says what is wrong and what is allowed."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not among `known`, with the nearest one that is."""
    choices = sorted(known)
    return UserError(f"Unknown {kind} '{name}'.{did_you_mean(name, choices)} Known: {', '.join(choices)}")


def printable(text: str) -> str:
    """A text of unknown origin without what could steer a terminal: escapes, other control and format characters."""
    shown = (each == "\n" or unicodedata.category(each) not in HIDDEN for each in text)
    return "".join(each if seen else "\N{REPLACEMENT CHARACTER}" for each, seen in zip(text, shown, strict=True))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question after the nearest name, with a space before it; empty if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""
