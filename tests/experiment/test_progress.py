import io
import re

import jax
import numpy as np
import pytest
from rich.console import Console

from posterity.agents import lanes
from posterity.experiment import progress
from posterity.experiment.checkpoint import Position
from posterity.experiment.clock import SPARKS, sparkline
from posterity.experiment.config import resolve

BEGINNING = Position()
CONFIG = resolve("item-search", "blrl", "quick", {"tasks": 2, "iterations": 3})


def told(console: Console, start: Position = BEGINNING) -> str:
    shown = progress.progress_for(console)
    shown.start(CONFIG, start)
    for number in range(start.task * 3 + start.iteration, 6):
        shown.begin(number // 3, number % 3)
        shown.step(0)
        shown.advance(0.5)
    shown.close()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_plain_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    lines = told(Console(file=io.StringIO(), width=40)).splitlines()
    assert len(lines) == 12, "a line when a step begins, and one when an iteration is done"
    assert lines[0].startswith("item-search blrl: task 1/2, iteration 1/3, step 0/21, ")
    assert lines[1].startswith("item-search blrl: task 1/2, iteration 1/3, return 0.5, ")
    assert lines[-1].endswith("about 0 s left")


def test_plain_lines_are_few_but_the_last_is_told():
    assert len(told(Console(file=io.StringIO())).splitlines()) == 1


def test_a_terminal_sees_task_iteration_returns_speed_time_left_and_the_last_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
):
    """Iterations of 21 steps take 3 s each; the checkpoint was written 3 s before the end."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    shown = progress.Live(console)
    shown.start(CONFIG, Position(1, 0))
    for iteration, value in enumerate([0.0, 1.0, 0.5]):
        shown.begin(1, iteration)
        clock[0] += 3.0
        shown.advance(value)
        if iteration == 1:
            shown.saved()
    shown.close()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "task 2/2, iteration 3/3" in text
    assert "100%" in text
    assert f"return 0.5 ▁█▅, {CONFIG.seeds * 7} steps/s, about 0 s left, saved 3 s ago" in text


def test_a_line_of_facts_fits_a_narrow_terminal():
    shown = told(Console(file=io.StringIO(), force_terminal=True, width=40), Position(1, 1))
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in shown.splitlines()]
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= 40


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([3.0], "▁"), ([2.0, 2.0], "▁▁"), ([0.0, 7.0, float("nan"), 3.0], "▁█▄"), (range(99), None)],
)
def test_a_sparkline_goes_from_the_least_to_the_greatest(values: list[float], drawn: str | None):
    found = sparkline(values)
    assert found == drawn if drawn is not None else (len(found), found[0], found[-1]) == (SPARKS, "▁", "█")


def test_nothing_is_foretold_from_iterations_that_are_played_at_random(monkeypatch: pytest.MonkeyPatch):
    """A method without transfer may play several iterations before it can fit anything."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    pace = progress.Pace(CONFIG, BEGINNING, at_random=2)
    for iteration in range(2):
        pace.begin(0, iteration)
        clock[0] += 1
        pace.step(10)
        assert pace.left() is None
        assert pace.speed() is None
        pace.advance()
    pace.begin(0, 2)
    clock[0] += 10
    pace.advance()
    assert pace.left() == pytest.approx(30)


def test_the_time_left_is_that_of_planned_iterations_without_compiling(monkeypatch: pytest.MonkeyPatch):
    """The first iteration is random play and takes a second, the others ten; compiling takes thirty, once."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    pace = progress.Pace(CONFIG, BEGINNING)
    pace.begin(0, 0)
    pace.step(10)
    assert pace.left() is None, "of random play nothing is foretold"
    clock[0] += 1
    pace.advance()
    pace.begin(0, 1)
    clock[0] += 30
    pace.compiled(30)
    clock[0] += 5
    pace.step(pace.steps // 2)
    left = pace.left()
    assert left is not None
    assert 44 < left < 50, "half of this iteration and four more"
    clock[0] += 5
    pace.advance()
    assert pace.left() == pytest.approx(40)


def test_a_run_says_that_it_compiles():
    console = Console(file=io.StringIO(), width=100)
    shown = progress.progress_for(console)
    shown.start(CONFIG, BEGINNING)
    with lanes.compilation_told(shown):
        lanes.compiled(plan)(np.ones((2, 3), np.float32))
        lanes.compiled(plan)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "item-search blrl: compiling the planner, about half a minute\n"


def plan(row: jax.Array) -> jax.Array:
    """A program by the planner's name."""
    return row + 1
