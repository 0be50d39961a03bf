"""SIGTERM as a wish to end well: calls in flight are waited for, nothing new begins, and the run says how it ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from resin_core.errors import StoppedError

_MESSAGE = "stopped by SIGTERM; nothing was published, what was done is kept, and the same command goes on from there"


class Stopping:
    """`reason` is set when the run is to stop. Outside of `draining`, and after the grace, StoppedError is raised."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._draining = False
        self.reason = ""
        self._timer: threading.Timer | None = None

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Around work that asks for `reason` and ends by itself soon after it is set."""
        self._draining = True
        try:
            yield
        finally:
            self._draining = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The signal's handler; the second signal does not wait."""
        again, self.reason = bool(self.reason), _MESSAGE
        if again or not self._draining:
            raise StoppedError(_MESSAGE)
        self._timer = threading.Timer(self._grace_s, os.kill, (os.getpid(), number))
        self._timer.daemon = True
        self._timer.start()

    def over(self) -> None:
        """The run has ended: no signal of its own is to come."""
        if self._timer is not None:
            self._timer.cancel()


@contextmanager
def on_sigterm(grace_s: float) -> Iterator[Stopping]:
    """Handles SIGTERM until the block is left; only in the main thread, since no other can set a handler."""
    stopping = Stopping(grace_s)
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    former = signal.signal(signal.SIGTERM, stopping.handle)
    try:
        yield stopping
    finally:
        stopping.over()
        signal.signal(signal.SIGTERM, former)
