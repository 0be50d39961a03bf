"""The generations of one index that a process holds open: the newest, and earlier ones for questions under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import read_current

Opened = TypeVar("Opened")


class OpenGenerations(Generic[Opened]):
    """Opens each generation once, keeps the `keep` used last. Safe for many threads.

    What falls out is closed when the last one who uses it lets go of it.
    """

    def __init__(self, location: str, opened: Callable[[str, str], Opened], keep: int = 2) -> None:
        """`opened(location, generation)` opens one. Raises StoreError when the location cannot be used."""
        self._location, self._opened, self._keep = location, opened, keep
        self._folder = IndexFolder.at(location)
        self._lock = threading.Lock()
        # Gone with the last thread that opens or waits, also when nothing could be opened.
        self._opening: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._open: OrderedDict[str, Opened] = OrderedDict()

    def current(self) -> str:
        """The generation that the pointer names just now. Raises StoreError kinds."""
        return read_current(self._folder)

    def ready(self, generation: str) -> Opened | None:
        """The generation if it is open, at once."""
        with self._lock:
            found = self._open.get(generation)
            if found is not None:
                self._open.move_to_end(generation)
            return found

    def get(self, generation: str) -> Opened:
        """The generation, opened if it is not. Raises what `opened` raises; the next call tries again."""
        found = self.ready(generation)
        if found is not None:
            return found
        with self._lock:
            opening = self._opening.setdefault(generation, threading.Lock())
        # Only those who want the same generation wait for it.
        with opening:
            found = self.ready(generation)
            if found is None:
                found = self._opened(self._location, generation)
                with self._lock:
                    self._open[generation] = found
                    while len(self._open) > self._keep:
                        self._open.popitem(last=False)
        return found
