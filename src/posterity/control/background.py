"""One piece of work at a time beside a control loop, whose result is taken when it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Works in a thread of its own, which begins with the first work. Every method may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._work: Callable[[], Result] | None = None
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._wanted = True  # what is under way
        self._thread: threading.Thread | None = None
        self._closed = False

    def post(self, work: Callable[[], Result]) -> bool:
        """Begins with it; not while something else is under way. Says whether it was begun."""
        with self._changed:
            if self._work is not None or self._closed:
                return False
            self._work, self._wanted = work, True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def take(self) -> Result | None:
        """The latest result that nobody took yet; None: there is none. What failed is raised here."""
        with self._changed:
            result, error, self._result, self._error = self._result, self._error, None, None
        if error is not None:
            raise error
        return result

    def wait(self, timeout: float | None = None) -> bool:
        """Until nothing is under way; whether that came to be in `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._work is None, timeout)

    def forget(self) -> None:
        """What is under way, or done and not taken, is not wanted any more."""
        with self._changed:
            self._wanted = False
            self._result = self._error = None

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=10.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._work is not None)
                if self._closed or self._work is None:
                    return
                work = self._work
            result, error = None, None
            try:
                result = work()
            except BaseException as failed:  # told to whoever takes the result, in its own thread
                error = failed
            with self._changed:
                self._work = None
                if self._wanted:
                    self._result, self._error = result, error
                self._changed.notify_all()
