"""Learning beside acting: an update in a thread of its own, on a copy, put in place when it is done.

Steps that come in are kept in order. As soon as there are as many as an iteration has, the learner takes them and the
state of the moment, and updates a copy. Meanwhile acting and observing go on with the old state. When the update is
done, the steps that came in between are observed by the new state too, and it takes the old one's place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from posterity.types import Transition

BACKLOG = 4  # iterations of steps that may wait; then new ones are not learned from until the learner caught up


class Learner:
    """Calls `update(state, rows)` in a thread. `latest` and `swap` read and replace the acting state."""

    def __init__(
        self,
        every: int,
        update: Callable[[object, Transition], object],
        observe: Callable[[object, Transition], object],
        latest: Callable[[], object],
        swap: Callable[[object], None],
        lock: threading.RLock,
    ) -> None:
        self.every, self.lock = every, lock
        self._update, self._observe, self._latest, self._swap = update, observe, latest, swap
        self._waiting: list[Transition] = []  # steps [1, ...] not learned from yet
        self._epoch = 0  # counts the states that were set from outside
        self._closed = False
        self._busy = False
        self.updates, self.dropped = 0, 0
        self.error: Exception | None = None  # what ended the learning; acting goes on with the last good state
        self._changed = threading.Condition(lock)
        self._thread = threading.Thread(target=self._work, name="posterity-learner", daemon=True)
        self._thread.start()

    def add(self, step: Transition) -> None:
        """One step [1, ...] happened."""
        with self._changed:
            if len(self._waiting) < BACKLOG * self.every:
                self._waiting.append(step)
            else:
                self.dropped += 1
            if len(self._waiting) >= self.every:
                self._changed.notify_all()

    def restart(self) -> None:
        """The state was replaced from outside: what is under way is thrown away."""
        with self._changed:
            self._waiting.clear()
            self._epoch += 1
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing is left to learn from; whether that came to be."""

        def idle() -> bool:
            return self.error is not None or (not self._busy and len(self._waiting) < self.every)

        with self._changed:
            return self._changed.wait_for(idle, timeout)

    def close(self) -> None:
        """Ends the thread after the update that is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._waiting) >= self.every)
                if self._closed:
                    return
                state, rows, epoch, self._busy = self._latest(), self._waiting[: self.every], self._epoch, True
            try:
                self._learn(state, rows, epoch)
            except Exception as error:
                self.error = error
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if self.error is not None:
                    return

    def _learn(self, state: object, rows: list[Transition], epoch: int) -> None:
        columns = zip(*rows, strict=True)
        learned = self._update(state, Transition(*(np.stack([np.asarray(p) for p in c], axis=1) for c in columns)))
        seen = self.every
        while True:
            with self._changed:
                if epoch != self._epoch:
                    return
                since = self._waiting[seen:]
                if not since:
                    del self._waiting[: self.every]
                    self.updates += 1
                    self._swap(learned)
                    return
            for step in since:  # outside the lock: acting and observing go on
                learned = self._observe(learned, step)
            seen += len(since)
