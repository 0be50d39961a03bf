"""Progress on standard error: bars on a terminal, else a plain line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from resin_core.indexing.report import IndexProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_EVERY_S = 5.0
_BYTES = "bytes"


class Shown(Protocol):
    """Where progress goes; may be called from any thread."""

    def index(self, step: IndexProgress) -> None:
        """A step of the indexing job."""
        ...

    def model(self, done: int, total: int, label: str) -> None:
        """Bytes of a model's weights."""
        ...

    def stage(self, name: str) -> None:
        """Something that takes a while and cannot be counted, in place of all else; an empty name clears the screen.

        Standard output may be written to from then until the next step.
        """
        ...


@contextmanager
def shown() -> Iterator[Shown]:
    """Progress for as long as the block lasts; bars are gone afterwards."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
    )
    # Results must not go through the console of the bars, which is standard error.
    progress = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    )
    bars = Bars(progress)
    try:
        yield bars
    finally:
        bars.stage("")


class Lines:
    """A line when a stage begins, and then at most one every few seconds."""

    def __init__(
        self,
        every_s: float = _EVERY_S,
        write: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s, self._write, self._clock = every_s, write or _to_stderr, clock
        self._lock = threading.Lock()
        self._stage = ""
        self._last_s = 0.0

    def index(self, step: IndexProgress) -> None:
        """See Shown."""
        self._show(step.stage, _amount(step))

    def model(self, done: int, total: int, label: str) -> None:
        """See Shown."""
        self.index(IndexProgress(stage=label, done=done, total=total, detail=_BYTES))

    def stage(self, name: str) -> None:
        """See Shown: where nobody watches, only what can be counted is worth a line."""

    def _show(self, stage: str, amount: str) -> None:
        with self._lock:
            now = self._clock()
            if stage == self._stage and now - self._last_s < self._every_s:
                return
            self._stage, self._last_s = stage, now
        self._write(f"resin: {stage}: {amount}" if amount else f"resin: {stage}")


class Bars:
    """One bar a stage; the one that is worked on is the last. Nothing is drawn while there is none."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}

    def index(self, step: IndexProgress) -> None:
        """See Shown."""
        self._update(step.stage, step.done, step.total, _amount(step))

    def model(self, done: int, total: int, label: str) -> None:
        """See Shown."""
        self.index(IndexProgress(stage=label, done=done, total=total, detail=_BYTES))

    def stage(self, name: str) -> None:
        """See Shown."""
        with self._lock:
            for task in self._tasks.values():
                self._progress.remove_task(task)
            self._tasks.clear()
            self._progress.stop()
        if name:
            self._update(name, 0, 0, "")

    def _update(self, stage: str, done: int, total: int, amount: str) -> None:
        with self._lock:
            if stage not in self._tasks:
                self._tasks[stage] = self._progress.add_task(stage, total=total or None, amount=amount)
                self._progress.start()
            self._progress.update(self._tasks[stage], completed=done, total=total or None, amount=amount)


def _amount(step: IndexProgress) -> str:
    if step.detail == _BYTES:
        of = f" of {step.total / 1e6:,.0f}" if step.total else ""
        return f"{step.done / 1e6:,.0f}{of} MB"
    if step.stage == "publishing":
        return step.detail
    if step.total:
        return f"{step.done:,} of {step.total:,} documents" + ("" if step.detail == "documents" else f", {step.detail}")
    return f"{step.done:,} {step.detail.removesuffix('s') if step.done == 1 else step.detail}".rstrip()


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
