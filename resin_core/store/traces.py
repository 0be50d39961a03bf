"""Traces kept for some days on any filesystem, and the thread that writes them while answers go out.

One file a trace in a folder of its hour (UTC), which the trace's id names: a trace is found by its id alone, and old
ones go by the folder. Knows nothing of what a trace says.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import OrderedDict
from datetime import UTC, datetime

from pydantic import ValidationError

from resin_core.errors import StoreError, UnknownIdError
from resin_core.records import Answer, Record, Trace
from resin_core.store.filesystem import IndexFolder, Location
from resin_core.store.location import flat
from resin_core.text.decode import scrub

_log = logging.getLogger(__name__)
_ID = re.compile(r"t([0-9]{10})-[0-9a-f]{16}")
_HOUR = re.compile(r"[0-9]{10}")
_HOUR_S = 3600.0
_DAY_S = 86400.0
_SHOWN_CHARS = 64  # of an id that a client made up


class KeptTrace(Record):
    """A question's trace with what came of it. `failure` says why it was not answered, and is empty when it was.

    `created_at` is ISO 8601, UTC.
    """

    index: str
    trace: Trace
    answer: Answer | None = None
    failure: str = ""
    created_at: str

    @classmethod
    def now(cls, index: str, trace: Trace, answer: Answer | None = None, failure: str = "") -> KeptTrace:
        """A trace of this moment."""
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(index=index, trace=trace, answer=answer, failure=failure, created_at=created_at)


class TraceStore:
    """Traces below one folder. Safe for many threads and for many processes on the same folder."""

    def __init__(self, folder: IndexFolder, keep_days: float) -> None:
        self._folder, self._keep_days = folder, keep_days

    @classmethod
    def at(cls, location: Location | IndexFolder, keep_days: float) -> TraceStore:
        """The store at a path or a URI; `keep_days` 0: none is kept. Raises StoreError for an unusable location."""
        return cls(IndexFolder.at(location), keep_days)

    @property
    def keeps(self) -> bool:
        """Whether any trace is kept at all."""
        return self._keep_days > 0

    def put(self, kept: KeptTrace) -> None:
        """Keeps a trace, in place of one of the same id. Raises StoreError, also for an id that names no hour."""
        if not self.keeps:
            return
        found = _hour_of(kept.trace.trace_id)
        if found is None:
            raise StoreError(f"trace id {kept.trace.trace_id[:_SHOWN_CHARS]!r} names no hour; it is not kept")
        # A model's reply may hold lone surrogates, which neither this file nor a response can carry.
        content = scrub(json.dumps(kept.model_dump(mode="json"), ensure_ascii=False)).encode()
        self._folder.put(_path(found, kept.trace.trace_id), lambda stream: stream.write(content))

    def get(self, trace_id: str) -> KeptTrace:
        """The trace of that id. Raises UnknownIdError when none is kept under it (any more), StoreError for one that
        cannot be read.
        """
        if not self.keeps:
            raise UnknownIdError("traces are not kept here (serving.traces.keep_days is 0)")
        hour = _hour_of(trace_id)
        if hour is None:
            # Nothing but a checked id becomes part of a path.
            raise UnknownIdError(f"{trace_id[:_SHOWN_CHARS]!r} is no id of a trace")
        unknown = UnknownIdError(f"no trace {trace_id} is kept; traces are deleted after {self._keep_days:g} days")
        if self._is_old(hour, time.time()):
            raise unknown
        path = _path(hour, trace_id)
        try:
            content = self._folder.read(path)
        except FileNotFoundError:
            raise unknown from None
        except OSError as error:
            raise StoreError(f"trace {self._folder.full(path)} cannot be read: {flat(error)}") from None
        try:
            kept = KeptTrace.model_validate_json(content)
        except ValidationError:
            kept = None
        # What is wrong with it is not said: that would repeat what it holds.
        if kept is None or kept.trace.trace_id != trace_id:
            raise StoreError(f"trace {self._folder.full(path)} is damaged; delete the file")
        return kept

    def sweep(self, now: float | None = None) -> int:
        """Deletes the hours in which every trace is older than keep_days, and returns how many hours went.

        `now` is in seconds since the epoch. Touches nothing but folders named by an hour. Raises StoreError, after it
        has tried all of them.
        """
        at = time.time() if now is None else now
        old = [name for name in self._folder.folders("") if self._is_old(name, at)]
        failures: dict[str, StoreError] = {}
        for hour in old:
            try:
                self._folder.remove_folder(hour)
            except StoreError as error:
                failures[hour] = error
        # Another process may sweep at the same time; what it deleted first is no failure.
        left = failures.keys() & set(self._folder.folders("")) if failures else set()
        if left:
            raise failures[min(left)]
        return len(old)

    def _is_old(self, hour: str, now: float) -> bool:
        """Never of a name that is no hour."""
        start = _start_s(hour)
        return start is not None and start + _HOUR_S <= now - self._keep_days * _DAY_S


class TraceWriter:
    """Writes traces in a thread of its own, so that no answer waits for storage, and deletes old ones every hour.

    `dropped` counts traces that found no place, `failed` those that storage refused. Both are lost.
    """

    def __init__(self, store: TraceStore, max_queued: int, sweep_every_s: float = _HOUR_S) -> None:
        """Starts at once, with a sweep; call `close` at the end. At most `max_queued` traces wait."""
        self.dropped = 0
        self.failed = 0
        self._store, self._max_queued, self._sweep_every_s = store, max_queued, sweep_every_s
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, KeptTrace] = OrderedDict()
        self._writing: KeptTrace | None = None
        self._closed = threading.Event()
        self._told: set[tuple[str, str]] = set()
        self._writer = threading.Thread(target=self._write_all, name="traces", daemon=True)
        self._writer.start()
        # Apart from the writer, for which a long deletion would be a full queue.
        threading.Thread(target=self._sweep_all, name="traces-sweep", daemon=True).start()

    def write(self, kept: KeptTrace) -> None:
        """Hands a trace over; never waits for storage. When the queue is full the oldest in it is dropped."""
        if not self._store.keeps:
            return
        with self._changed:
            if self._closed.is_set():
                self.dropped += 1
                return
            self._waiting.pop(kept.trace.trace_id, None)
            self._waiting[kept.trace.trace_id] = kept
            full = len(self._waiting) > self._max_queued
            if full:
                self._waiting.popitem(last=False)
                self.dropped += 1
            self._changed.notify_all()
        if full:
            self._tell("traces are dropped", "", "storage is slower than answers (serving.traces.max_queued)")

    def get(self, trace_id: str) -> KeptTrace:
        """The trace of that id, also while it waits to be written. Raises as the store's `get`; may take long."""
        with self._changed:
            waiting = self._waiting.get(trace_id)
            if waiting is None and self._writing is not None and self._writing.trace.trace_id == trace_id:
                waiting = self._writing
        return self._store.get(trace_id) if waiting is None else waiting

    def close(self, timeout_s: float) -> None:
        """Writes what waits, for `timeout_s` at most; what is left then is dropped. Later traces are dropped."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        self._writer.join(timeout_s)
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._writing = None
                self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
                if not self._waiting:
                    return
                _, self._writing = self._waiting.popitem(last=False)
            try:
                self._store.put(self._writing)
            except Exception as error:
                # Whatever it is, the next trace may be kept.
                self.failed += 1
                self._tell_of("a trace could not be kept", error)

    def _sweep_all(self) -> None:
        while True:
            try:
                self._store.sweep()
            except Exception as error:
                self._tell_of("old traces could not be deleted", error)
            if self._closed.wait(self._sweep_every_s):
                return

    def _tell_of(self, what: str, error: Exception) -> None:
        # Messages of the store name places; those of others may repeat what a trace holds.
        self._tell(what, type(error).__name__, str(error) if isinstance(error, StoreError) else type(error).__name__)

    def _tell(self, what: str, kind: str, why: str) -> None:
        with self._changed:
            known = (what, kind) in self._told
            self._told.add((what, kind))
        if not known:
            _log.warning("%s: %s; further ones are only counted", what, why)


def _hour_of(trace_id: str) -> str | None:
    """The hour in an id as the recorder makes them, or None for anything else."""
    match = _ID.fullmatch(trace_id)
    return match[1] if match and _start_s(match[1]) is not None else None


def _start_s(hour: str) -> float | None:
    """When an hour such as 2026120103 (UTC) began, in seconds since the epoch; None for what is no hour."""
    if not _HOUR.fullmatch(hour):
        return None
    try:
        return datetime.strptime(hour, "%Y%m%d%H").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _path(hour: str, trace_id: str) -> str:
    return f"{hour}/{trace_id}.json"
