"""The commands that pages print, in the order of the page."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

SHELL = ("", "sh", "bash", "shell", "console")  # what a fenced block of commands is called
BEGINS = ("posterity", "make", "python", "cd")
INLINE = re.compile(r"`((?:posterity|make|python) [^`\n]+)`")


class Printed(NamedTuple):
    """A command as a page has it."""

    line: int  # of the page, counted from 1
    block: int  # lines of code that stand together have one number; 0: it stands in a sentence
    words: tuple[str, ...]


def commands(text: str) -> list[Printed]:
    """All commands of a page: those in shell blocks, and those in a line of text."""
    found: list[Printed] = []
    for number, block, line in _lines(text):
        for command in re.split(r"\s(?:&&|;|\|)\s", line):
            with contextlib.suppress(ValueError):  # a picture in characters, and no command
                words = shlex.split(re.sub(r"\[(--[^\]]+)\]", r"\1", command), comments=True)
                if words and words[0] in BEGINS:
                    found.append(Printed(number, block, tuple(words)))
    return found


def fenced(text: str, kind: str) -> list[str]:
    """The blocks of code of one kind, such as `toml`."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Each line that may be a command, with its number and its block. Long ones may be continued."""
    fence: str | None = None
    block, pending, began, last = 0, "", 0, -9
    for number, line in enumerate(text.splitlines(), 1):
        if met := re.match(r"```(\w*)", line):
            fence, last = (met[1] if fence is None else None), -9
            continue
        if not (fence in SHELL if fence is not None else line.startswith("    ")):
            pending = ""
            if fence is None:
                yield from ((number, 0, code) for code in INLINE.findall(line))
            continue
        block += number > last + 1
        last, began = number, began if pending else number
        pending += " " + line.strip().removeprefix("$ ")
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        yield began, block, re.split(r" {3,}(?!#)", pending.strip())[0]  # what it prints may stand beside it
        pending = ""


def expanded(word: str) -> list[str]:
    """A word with {a,b} in it as the words that a shell makes of it."""
    if not (met := re.search(r"\{([^{}]*,[^{}]*)\}", word)):
        return [word]
    return [each for part in met[1].split(",") for each in expanded(word[: met.start()] + part + word[met.end() :])]
