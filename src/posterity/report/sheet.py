"""A table of text: what the terminal shows is what Markdown, LaTeX and the page hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from posterity.errors import printable

LEAST = 16  # characters that a name always has


class Sheet(NamedTuple):
    """One table. The first `words` columns are text, the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()  # below it
    words: int = 1
    keys: Sequence[Mapping[str, str]] = ()  # of each row its family, method or seed, for a page that filters by them

    def terminal(self, width: int) -> Table:
        """The table as rich shows it. Names that would not fit into `width` are shortened where they are alike."""
        notes = Text(printable(". ".join(self.notes))) if self.notes else None
        table = Table(title=Text(printable(self.title)), caption=notes)
        for index, name in enumerate(self.head):
            table.add_column(Text(name), justify="left" if index < self.words else "right", overflow="fold")
        columns = list(zip(self.head, *self.rows, strict=True))[1:]
        others = sum(max(map(len, column)) + 3 for column in columns)
        names = shortened([row[0] for row in self.rows], max(LEAST, width - others - 4))
        for name, row in zip(names, self.rows, strict=True):
            table.add_row(*(Text(printable(cell)) for cell in (name, *row[1:])))
        return table

    def markdown(self) -> str:
        """The table as Markdown."""
        rules = ["---" if index < self.words else "---:" for index in range(len(self.head))]
        lines = [f"| {' | '.join(cells)} |" for cells in (self.head, rules, *self.rows)]
        notes = ["", f"{'. '.join(self.notes)}."] if self.notes else []
        return "\n".join([f"**{self.title}**", "", *lines, *notes]) + "\n"

    def latex(self) -> str:
        """The table as LaTeX, which needs no package."""
        kinds = "".join("l" if index < self.words else "r" for index in range(len(self.head)))
        head, *lines = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (self.head, *self.rows)]
        notes = [r"\\[2pt] \footnotesize " + _escaped(". ".join(self.notes)) + "."] if self.notes else []
        body = [r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}"]
        opening = [r"\begin{table}", r"\centering", rf"\caption{{{_escaped(self.title)}}}"]
        return "\n".join([*opening, rf"\begin{{tabular}}{{{kinds}}}", *body, *notes, r"\end{table}"]) + "\n"

    def cells(self, name: str) -> list[str]:
        """What stands in a column."""
        return [row[self.head.index(name)] for row in self.rows]


LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "[": "{[}",  # after a line's end it would be a length
    "]": "{]}",
    "…": r"\ldots{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def _escaped(text: str) -> str:
    """Text as LaTeX sets it; a minus in front of a number is one."""
    plain = "".join(LATEX.get(sign, sign) for sign in text)
    return re.sub(r"(?<![\w.$-])-(?=\d)", "$-$", plain)


def shortened(names: Sequence[str], room: int) -> list[str]:
    """Names of at most `room` characters that are as different as they were; as they are, where that cannot be.

    What all long names begin or end with goes first: the part in which they differ stays.
    """
    long = sorted({name for name in names if len(name) > room})
    if not long:
        return list(names)
    before = _alike(long)
    after = _alike([name[before:][::-1] for name in long])
    short = [name if len(name) <= room else _short(name, before, after, room) for name in names]
    return short if len({*short}) == len({*names}) else list(names)


def _alike(names: Sequence[str]) -> int:
    """How many characters names begin with that are the same in all; none for a single name."""
    first, *others = names
    same = (all(other[: end + 1] == first[: end + 1] for other in others) for end in range(len(first)))
    return sum(takewhile(bool, same)) if others else 0


def _short(name: str, before: int, after: int, room: int) -> str:
    """One name, without the middle of its first `before` and its last `after` characters; or without its own middle."""
    end = len(name) - after
    head, core, tail = name[:before], name[before:end], name[end:]
    spare = room - len(core) - 2
    if spare < 0 or not (head or tail):
        left = (room - 1) // 2
        return f"{name[:left]}…{name[-(room - 1 - left) :]}"
    keep = min(len(tail), spare // 2)
    tail = tail if keep == len(tail) else f"…{tail[len(tail) - keep :]}"
    keep = min(len(head), room - len(core) - len(tail) - 1)
    head = head if keep == len(head) else f"{head[:keep]}…"
    return head + core + tail
