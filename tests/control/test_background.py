"""Work beside a control loop: one at a time, its result taken once, its failure told to whoever takes it."""

import threading
from collections.abc import Iterator

import pytest

from posterity.control.background import Background


@pytest.fixture
def beside() -> Iterator[Background[int]]:
    made: Background[int] = Background("test")
    yield made
    made.close()


def test_a_result_is_taken_once(beside: Background[int]):
    assert beside.take() is None
    assert beside.post(lambda: 7)
    assert beside.wait(timeout=60.0)
    assert beside.take() == 7
    assert beside.take() is None


def test_while_something_is_under_way_nothing_else_is_begun(beside: Background[int]):
    go = threading.Event()
    assert beside.post(lambda: int(go.wait(timeout=60.0)))
    assert not beside.post(lambda: 2)
    assert not beside.wait(timeout=0.0)
    go.set()
    assert beside.wait(timeout=60.0)
    assert beside.take() == 1
    assert beside.post(lambda: 2)


def test_what_failed_is_told_to_whoever_takes_the_result_and_work_goes_on(beside: Background[int]):
    def fails() -> int:
        raise ValueError("not today")

    beside.post(fails)
    assert beside.wait(timeout=60.0)
    with pytest.raises(ValueError, match="not today"):
        beside.take()
    assert beside.take() is None
    assert beside.post(lambda: 3)
    assert beside.wait(timeout=60.0)
    assert beside.take() == 3


def test_what_is_not_wanted_any_more_is_thrown_away(beside: Background[int]):
    go = threading.Event()
    beside.post(lambda: int(go.wait(timeout=60.0)))
    beside.forget()
    go.set()
    assert beside.wait(timeout=60.0)
    assert beside.take() is None
    beside.post(lambda: 4)
    assert beside.wait(timeout=60.0)
    beside.forget()
    assert beside.take() is None


def test_after_the_end_nothing_is_begun():
    ended: Background[int] = Background("ended")
    assert ended.post(lambda: 1)
    assert ended.wait(timeout=60.0)
    ended.close()
    assert not ended.post(lambda: 2)
