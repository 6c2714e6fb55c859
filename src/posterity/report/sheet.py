"""A table of text: what the terminal shows is what the Markdown file holds."""

from __future__ import annotations

from typing import NamedTuple

from rich.table import Table


class Sheet(NamedTuple):
    """One table. The first `words` columns are text, the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()  # below it
    words: int = 1

    def terminal(self) -> Table:
        """The table as rich shows it."""
        table = Table(title=self.title, caption=". ".join(self.notes) or None)
        for index, name in enumerate(self.head):
            table.add_column(name, justify="left" if index < self.words else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """The table as Markdown."""
        rules = ["---" if index < self.words else "---:" for index in range(len(self.head))]
        lines = [f"| {' | '.join(cells)} |" for cells in (self.head, rules, *self.rows)]
        notes = ["", f"{'. '.join(self.notes)}."] if self.notes else []
        return "\n".join([f"**{self.title}**", "", *lines, *notes]) + "\n"

    def cells(self, name: str) -> list[str]:
        """What stands in a column."""
        return [row[self.head.index(name)] for row in self.rows]
