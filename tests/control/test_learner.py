"""Learning beside acting: in order, on a copy, and put in place at once."""

import threading
import time

import numpy as np

from posterity.control.learner import BACKLOG, Learner
from posterity.errors import UserError
from posterity.types import Transition

Story = tuple[str, ...]  # what happened to a state


class Place:
    """A learner whose states are the stories of what happened to them."""

    def __init__(self, every: int) -> None:
        self.state: Story = ()
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.learner = Learner(every, self.update, self.observe, lambda: self.state, self.swap, threading.RLock())

    def update(self, state: object, rows: Transition) -> object:
        assert self.gate.wait(10.0)
        if self.error is not None:
            raise self.error
        return ("learned", *np.asarray(rows.reward)[0].astype(int).astype(str).tolist())

    def observe(self, state: object, step: Transition) -> object:
        return (*state, f"saw {int(np.asarray(step.reward)[0])}")  # pyright: ignore[reportGeneralTypeIssues]

    def swap(self, state: object) -> None:
        self.state = state  # pyright: ignore[reportAttributeAccessIssue]

    def add(self, *numbers: int) -> None:
        for number in numbers:
            part = np.array([float(number)])
            self.learner.add(Transition(*[part] * 6))


def test_an_update_begins_with_enough_steps_and_takes_them_in_order():
    place = Place(every=3)
    place.add(1, 2)
    time.sleep(0.05)
    assert place.state == ()
    place.add(3)
    assert place.learner.wait(10.0)
    assert place.state == ("learned", "1", "2", "3")
    assert place.learner.updates == 1
    place.learner.close()


def test_steps_that_come_while_it_learns_are_observed_by_the_new_state_and_learned_from_next():
    place = Place(every=2)
    place.gate.clear()
    place.add(1, 2, 3)
    time.sleep(0.05)
    assert place.state == (), "the old state acts until the new one is ready"
    place.gate.set()
    assert place.learner.wait(10.0)
    assert place.state == ("learned", "1", "2", "saw 3")
    place.add(4)
    assert place.learner.wait(10.0)
    assert place.state == ("learned", "3", "4")
    place.learner.close()


def test_a_new_task_throws_away_what_was_learned_of_the_last_meanwhile():
    place = Place(every=2)
    place.gate.clear()
    place.add(1, 2)
    time.sleep(0.05)
    place.learner.restart()
    place.gate.set()
    assert place.learner.wait(10.0)
    assert place.state == ()
    assert place.learner.updates == 0
    place.learner.close()


def test_a_learner_that_cannot_keep_up_lets_steps_go_and_counts_them():
    place = Place(every=2)
    place.gate.clear()
    place.add(*range(2 * BACKLOG + 3))
    assert place.learner.dropped == 3
    place.gate.set()
    place.learner.close()


def test_an_error_ends_the_learning_and_leaves_the_state():
    place = Place(every=1)
    place.error = UserError("the model diverged")
    place.add(1)
    assert place.learner.wait(10.0)
    assert str(place.learner.error) == "the model diverged"
    assert place.state == ()
    place.add(2)
    place.learner.close()
