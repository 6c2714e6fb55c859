import io

import pytest
from rich.console import Console

from posterity.experiment import progress
from posterity.experiment.checkpoint import Position
from posterity.experiment.config import resolve

BEGINNING = Position()
CONFIG = resolve("item-search", "blrl", "quick", {"tasks": 2, "iterations": 3})


def told(console: Console, start: Position = BEGINNING) -> str:
    shown = progress.progress_for(console)
    shown.start(CONFIG, start)
    for number in range(start.task * 3 + start.iteration, 6):
        shown.advance(number // 3, number % 3, 0.5)
    shown.close()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_plain_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    lines = told(Console(file=io.StringIO(), width=40)).splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("item-search blrl: task 1/2, iteration 1/3, return 0.5, ")
    assert lines[-1].endswith("about 0 s left")


def test_plain_lines_are_few_but_the_last_is_told():
    assert len(told(Console(file=io.StringIO())).splitlines()) == 1


def test_a_terminal_sees_task_iteration_return_and_time_left():
    text = told(Console(file=io.StringIO(), force_terminal=True, width=140), Position(1, 1))
    assert "task 2/2 iteration 3/3" in text
    assert "6/6" in text
    assert "0.5" in text
    assert "left" in text
