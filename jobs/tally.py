"""Progress of the extraction while it runs: Ray Data tells of a block only when all of it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_EVERY_S = 1.0


class Tally:
    """Counts finished documents and their units; runs as a Ray actor of its own."""

    def __init__(self) -> None:
        self._documents = self._units = 0

    def add(self, units: int) -> None:
        """One more document."""
        self._documents += 1
        self._units += units

    def read(self) -> tuple[int, int]:
        """Documents and units so far."""
        return self._documents, self._units


@contextmanager
def followed(tally: Any, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Tells of the actor's counts each second, when they change, until the block is left."""
    import ray

    over = threading.Event()

    def follow() -> None:
        last = (0, 0)
        while not over.wait(_EVERY_S):
            now = ray.get(tally.read.remote())
            if now != last:
                last = now
                tell(*now)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)
