"""Tables in a terminal: names that are too long stay apart."""

import io

import pytest
from rich.console import Console

from posterity.report.sheet import Sheet, shortened

LONG = [f"pendulum-gravity vblrl (pendulum-gravity-vblrl-horizon-{number}-of-march)" for number in (20, 30)]


@pytest.mark.parametrize("room", range(8, 80))
def test_shortened_names_fit_and_are_as_different_as_before(room: int):
    names = [*LONG, LONG[0], "pooled"]
    short = shortened(names, room)
    assert short[0] == short[2]
    assert len({*short}) == 3
    assert max(map(len, short)) <= room
    assert short[3] == "pooled"


def test_what_differs_is_what_stays():
    first, second = shortened(LONG, 30)
    assert "20" in first or "2" in first
    assert first != second
    assert first.startswith("pend")


def test_names_that_fit_and_names_that_cannot_be_shortened_stay_as_they_are():
    assert shortened(["one", "another"], 7) == ["one", "another"]
    hard = ["a" * 20 + "b" * 20 + "c" * 20, "a" * 20 + "x" * 20 + "c" * 20, "a" * 20 + "y" * 20 + "c" * 20]
    assert len({*shortened(hard, 8)}) == 3


def test_a_table_of_long_names_has_a_line_for_each_run_at_80_columns():
    sheet = Sheet(
        "Title", ("run", "first", "last"), [(name, "-1234 ± 56", "-1234 ± 56") for name in LONG], ("a [note]",)
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(sheet.terminal(80))
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if "1234" in line]
    assert len(lines) == 2
    assert lines[0] != lines[1]
    assert "[note]" in console.file.getvalue(), "square brackets are not markup"
    assert LONG[0] in sheet.markdown(), "a file has the whole name"
