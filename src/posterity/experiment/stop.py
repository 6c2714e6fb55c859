"""Why to stop: the clock, or a signal.

    Ctrl-C or SIGTERM    ends a run before its next step, with everything saved
    a second one         ends the program at once; what was saved before is whole

Python hears a signal only between two of its own instructions, and compiling a program is one instruction that may take
half a minute. So signals are counted by a thread, which the system wakes through a pipe.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Asked for a reason to stop. As a context it listens to signals, if it is entered in the main thread."""

    def __init__(self, limit: float | None = None) -> None:
        self.until = None if limit is None else time.monotonic() + limit
        self.signalled = False
        self._ears: _Ears | None = None

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._ears = _Ears(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ears is not None:
            self._ears.close()

    def reason(self) -> str:
        """Empty while there is no reason to stop."""
        if self.signalled:
            return "interrupted"
        return "time limit" if self.until is not None and time.monotonic() >= self.until else ""


class _Ears:
    """Listens until it is closed, and then leaves signals to whoever had them before."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.near, self.far = socket.socketpair()
        self.far.setblocking(False)
        self.old_fd = signal.set_wakeup_fd(self.far.fileno(), warn_on_full_buffer=False)
        self.old = {number: signal.signal(number, _wake) for number in SIGNALS}
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def close(self) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.old_fd)
        self.far.close()
        self.thread.join()
        self.near.close()

    def _listen(self) -> None:
        while heard := self.near.recv(1):
            if heard[0] not in SIGNALS:
                continue
            if self.stop.signalled:
                os._exit(128 + heard[0])  # as a shell reports a program that a signal ended
            self.stop.signalled = True


def _wake(number: int, frame: FrameType | None) -> None:
    """Keeps the signal from ending the program; the thread counts it."""
