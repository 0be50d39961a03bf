from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from resin_core.errors import StoreError, UnknownIdError
from resin_core.records import Answer, Trace, TraceEvent, Usage
from resin_core.store.traces import KeptTrace, TraceStore, TraceWriter
from resin_core.strategies.recorder import Recorder

DAY_S = 86400.0
SECRET = "what nobody may read in a log"


def kept(trace_id: str | None = None, **fields: Any) -> KeptTrace:
    recorder = Recorder(SECRET, "resin", "g1")
    recorder.add("plan", 0.0, {"hops": [{"subquestion": SECRET}]})
    trace = recorder.trace()
    return KeptTrace.now(
        "default", trace if trace_id is None else trace.model_copy(update={"trace_id": trace_id}), **fields
    )


def id_at(seconds: float, digits: str = "0123456789abcdef") -> str:
    return f"t{datetime.fromtimestamp(seconds, UTC):%Y%m%d%H}-{digits}"


def answer_of(trace: Trace) -> Answer:
    return Answer(
        question=trace.question, answer="a", citations=(), evidence=(), pool=(), strategy="resin", generation="g1",
        trace_id=trace.trace_id, usage=Usage(llm_calls=1), timings_s={"total": 1.5},
    )  # fmt: skip


def path_of(root: Path, trace_id: str) -> Path:
    return root / trace_id[1:11] / f"{trace_id}.json"


def test_ids_carry_their_hour_and_differ() -> None:
    before = datetime.now(UTC)
    ids = {Recorder("q", "resin", "g").trace_id for _ in range(100)}
    hours = {f"t{at:%Y%m%d%H}" for at in (before, datetime.now(UTC))}
    assert len(ids) == 100
    assert all(re.fullmatch(r"t[0-9]{10}-[0-9a-f]{16}", one) and one[:11] in hours for one in ids)


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    store = TraceStore.at(str(tmp_path / "deep" / "traces"), 7)
    trace = kept().trace
    one = KeptTrace.now("other", trace, answer_of(trace), "why not")
    assert abs(datetime.fromisoformat(one.created_at).timestamp() - time.time()) < 60
    assert one.created_at.endswith("+00:00")
    store.put(one)
    assert store.get(trace.trace_id) == one
    # By its id alone, by anyone, and nothing else lies there.
    assert TraceStore.at(str(tmp_path / "deep" / "traces"), 7).get(trace.trace_id) == one
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [path_of(tmp_path / "deep" / "traces", trace.trace_id)]
    again = one.model_copy(update={"failure": ""})
    store.put(again)
    assert store.get(trace.trace_id) == again


def test_awkward_text_is_kept_and_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    text = "NUL \x00, \u2028, \U0001f600, {braces} and half \ud83d."
    event = TraceEvent(
        stage="plan", started_s=0.0, seconds=0.0, data={"reply": text, "more": [1, None, {"x": text, "y": 0.25}]}
    )
    one = kept()
    one = one.model_copy(update={"trace": one.trace.model_copy(update={"events": (event,)})})
    store = TraceStore.at(str(tmp_path), 7)
    store.put(one)
    (found,) = store.get(one.trace.trace_id).trace.events
    clean = text.replace("\ud83d", "\ufffd")
    assert found.data == {"reply": clean, "more": [1, None, {"x": clean, "y": 0.25}]}
    found.model_dump_json()


@pytest.mark.parametrize(
    "name",
    [
        "", "t", "0123456789abcdef", "t0123456789abcdef", "../secret", "t2026120103-0123456789ABCDEF",
        "t2026120103-0123456789abcdef\n", "t2026120103-0123456789abcde", "t2026120103-0123456789abcdef0",
        "t2026120103-../../../../secret", "t../../../x-0123456789abcdef", "t2026130103-0123456789abcdef",
        "t2026023003-0123456789abcdef", "t2026120124-0123456789abcdef", "t0000010100-0123456789abcdef",
        "t٢٠٢٦١٢٠١٠٣-0123456789abcdef", "t2026120103-0123456789abcdef.json", " t2026120103-0123456789abcdef",
        "t2026120103-0123456789abcdef\x00", "x" * 10_000, "\ud800",
    ],
)  # fmt: skip
def test_what_is_no_id_is_refused_and_never_becomes_a_path(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TraceStore.at(str(tmp_path), 7)
    monkeypatch.setattr("resin_core.store.filesystem.IndexFolder.read", lambda self, path: pytest.fail(path))
    with pytest.raises(UnknownIdError, match="is no id of a trace") as caught:
        store.get(name)
    assert len(str(caught.value)) < 500
    monkeypatch.setattr("resin_core.store.filesystem.IndexFolder.put", lambda *args: pytest.fail(name))
    with pytest.raises(StoreError, match="names no hour"):
        store.put(kept(name))


def test_an_unknown_or_expired_trace_is_said_to_be_unknown(tmp_path: Path) -> None:
    store = TraceStore.at(str(tmp_path), 2)
    with pytest.raises(UnknownIdError, match="deleted after 2 days"):
        store.get(id_at(time.time()))
    young, old = kept(id_at(time.time() - 1.9 * DAY_S)), kept(id_at(time.time() - 2.1 * DAY_S))
    for one in (young, old):
        store.put(one)
    assert store.get(young.trace.trace_id) == young
    # Still there, as nobody has swept; but its time is over.
    assert path_of(tmp_path, old.trace.trace_id).exists()
    with pytest.raises(UnknownIdError, match="deleted after 2 days"):
        store.get(old.trace.trace_id)
    assert TraceStore.at(str(tmp_path), 3).get(old.trace.trace_id) == old
    assert TraceStore.at(str(tmp_path), 0.5).keeps


def test_with_no_days_nothing_is_kept(tmp_path: Path) -> None:
    one = kept()
    TraceStore.at(str(tmp_path), 7).put(one)
    none = TraceStore.at(str(tmp_path / "other"), 0)
    none.put(one)
    assert not none.keeps
    assert not (tmp_path / "other").exists()
    for store in (none, TraceStore.at(str(tmp_path), 0)):
        with pytest.raises(UnknownIdError, match="traces are not kept"):
            store.get(one.trace.trace_id)


def test_no_days_also_frees_what_was_kept_before(tmp_path: Path) -> None:
    now = time.time()
    for age_s in (0, 2 * 3600, DAY_S):
        TraceStore.at(str(tmp_path), 7).put(kept(id_at(now - age_s)))
    assert TraceStore.at(str(tmp_path), 0).sweep(now) == 2
    assert TraceStore.at(str(tmp_path), 0).sweep(now + 3600) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"{", b'{"index": "a"}', b"\xff\xfe", b"null"])
def test_a_damaged_trace_is_named_and_not_shown(tmp_path: Path, damage: bytes) -> None:
    store, one = TraceStore.at(str(tmp_path), 7), kept()
    store.put(one)
    file = path_of(tmp_path, one.trace.trace_id)
    file.write_bytes(damage)
    with pytest.raises(StoreError, match=re.escape(str(file))) as caught:
        store.get(one.trace.trace_id)
    assert not isinstance(caught.value, UnknownIdError)


def test_a_trace_under_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    store, one = TraceStore.at(str(tmp_path), 7), kept()
    other = one.trace.trace_id[:12] + "f" * 16
    store.put(one)
    path_of(tmp_path, one.trace.trace_id).rename(path_of(tmp_path, other))
    with pytest.raises(StoreError, match="damaged") as caught:
        store.get(other)
    assert SECRET not in str(caught.value)


def test_what_cannot_be_opened_is_an_error_of_the_store(tmp_path: Path) -> None:
    store, name = TraceStore.at(str(tmp_path), 7), id_at(time.time())
    path_of(tmp_path, name).mkdir(parents=True)
    with pytest.raises(StoreError) as caught:
        store.get(name)
    assert not isinstance(caught.value, UnknownIdError)


def test_a_sweep_takes_whole_old_hours_and_nothing_else(tmp_path: Path) -> None:
    store = TraceStore.at(str(tmp_path), 2)
    start = datetime(2026, 12, 3, 4, tzinfo=UTC).timestamp()
    names = ["2026120103", "2026120104", "2026120105", "2026120304", "2020010100"]
    others = ["2026130103", "202012", "20200101000", "x2020010100", "2020010100.old", "index", "２０２００１０１００"]
    for name in [*names, *others]:
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "a.json").write_text("x")
    (tmp_path / "2020010101").write_text("a file")
    # At four on the third, hour 3 of the first ended just two days ago, and hour 4 began then.
    assert store.sweep(start) == 2
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names, *others, "2020010101"} - {"2026120103", "2020010100"}
    assert store.sweep(start + 3599) == 0
    assert store.sweep(start + 3600) == 1
    assert not (tmp_path / "2026120104").exists()
    assert TraceStore.at(str(tmp_path / "nowhere"), 2).sweep(start) == 0


def test_an_hour_that_cannot_be_deleted_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resin_core.store.filesystem import IndexFolder

    store, plain = TraceStore.at(str(tmp_path), 1), IndexFolder.remove_folder
    for name in ("2020010100", "2020010101", "2020010102"):
        (tmp_path / name).mkdir()

    def refuse(self: IndexFolder, path: str) -> None:
        if path == "2020010100":
            plain(self, path)  # by another process, a moment before
            raise StoreError(f"{path}: it was gone")
        if path == "2020010101":
            raise StoreError(f"{path}: no right")
        plain(self, path)

    monkeypatch.setattr(IndexFolder, "remove_folder", refuse)
    with pytest.raises(StoreError, match="2020010101: no right"):
        store.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["2020010101"]


class Slow(TraceStore):
    """A store whose storage waits for the test, and fails where it is told to."""

    def __init__(self, root: Path, keep_days: float = 7, fails: dict[str, Exception] | None = None) -> None:
        plain = TraceStore.at(str(root), keep_days)
        super().__init__(plain._folder, keep_days)
        self.gate, self.entered, self.fails, self.swept = threading.Event(), threading.Event(), fails or {}, 0

    def put(self, kept: KeptTrace) -> None:
        self.entered.set()
        assert self.gate.wait(30)
        if kept.trace.trace_id in self.fails:
            raise self.fails[kept.trace.trace_id]
        super().put(kept)

    def sweep(self, now: float | None = None) -> int:
        self.swept += 1
        return super().sweep(now)


Made = Callable[..., TraceWriter]


@pytest.fixture
def writer() -> Iterator[Made]:
    made: list[TraceWriter] = []

    def make(store: TraceStore, max_queued: int = 100, **more: Any) -> TraceWriter:
        made.append(TraceWriter(store, max_queued, **more))
        return made[-1]

    yield make
    for one in made:
        if isinstance(one._store, Slow):
            one._store.gate.set()
        one.close(10)


def test_what_was_written_is_there_after_closing(tmp_path: Path, writer: Made) -> None:
    store = TraceStore.at(str(tmp_path), 7)
    writing, traces = writer(store), [kept() for _ in range(50)]
    for one in traces:
        writing.write(one)
        assert writing.get(one.trace.trace_id) == one
    writing.close(30)
    assert [store.get(one.trace.trace_id) for one in traces] == traces
    assert [writing.get(one.trace.trace_id) for one in traces] == traces
    assert (writing.dropped, writing.failed) == (0, 0)
    writing.close(1)
    writing.write(kept())
    assert writing.dropped == 1


def test_a_trace_is_found_while_it_waits_and_while_it_is_written(tmp_path: Path, writer: Made) -> None:
    store = Slow(tmp_path)
    writing, first, second = writer(store), kept(), kept()
    writing.write(first)
    assert store.entered.wait(30)
    writing.write(second)
    assert list(tmp_path.iterdir()) == []
    assert writing.get(first.trace.trace_id) == first
    assert writing.get(second.trace.trace_id) == second
    with pytest.raises(UnknownIdError):
        writing.get(kept().trace.trace_id)
    with pytest.raises(UnknownIdError):
        writing.get("../secret")
    newer = first.model_copy(update={"failure": "later"})
    writing.write(newer)
    assert writing.get(first.trace.trace_id) == newer
    store.gate.set()
    writing.close(30)
    assert store.get(first.trace.trace_id) == newer


def test_a_full_queue_drops_the_oldest_and_never_waits(
    tmp_path: Path, writer: Made, caplog: pytest.LogCaptureFixture
) -> None:
    store = Slow(tmp_path)
    writing, traces = writer(store, 3), [kept() for _ in range(8)]
    writing.write(traces[0])
    assert store.entered.wait(30)
    started = time.monotonic()
    for one in traces[1:]:
        writing.write(one)
    assert time.monotonic() - started < 5
    assert writing.dropped == 4
    store.gate.set()
    writing.close(30)
    found = [one for one in traces if path_of(tmp_path, one.trace.trace_id).exists()]
    assert found == [traces[0], *traces[5:]]
    with pytest.raises(UnknownIdError):
        writing.get(traces[1].trace.trace_id)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "dropped" in record.message


def test_failures_are_counted_told_once_a_kind_without_content_and_stop_nothing(
    tmp_path: Path, writer: Made, caplog: pytest.LogCaptureFixture
) -> None:
    traces = [kept() for _ in range(6)]
    errors = [StoreError("cannot write there"), StoreError("cannot write here"), ValueError(SECRET), ValueError(SECRET)]
    store = Slow(tmp_path, fails={one.trace.trace_id: error for one, error in zip(traces, errors, strict=False)})
    writing = writer(store)
    for one in traces:
        writing.write(one)
    store.gate.set()
    writing.close(30)
    assert (writing.failed, writing.dropped) == (4, 0)
    assert [writing.get(one.trace.trace_id) for one in traces[4:]] == traces[4:]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "cannot write there" in caplog.messages[0]
    assert "ValueError" in caplog.messages[1]
    assert SECRET not in caplog.text


def test_closing_waits_no_longer_than_it_may_and_counts_what_is_left(tmp_path: Path, writer: Made) -> None:
    store = Slow(tmp_path)
    writing = writer(store)
    writing.write(kept())
    assert store.entered.wait(30)
    for _ in range(3):
        writing.write(kept())
    started = time.monotonic()
    writing.close(0.05)
    assert time.monotonic() - started < 5
    assert writing.dropped == 3


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_old_traces_go_at_the_start_and_again_while_storage_is_slow(tmp_path: Path, writer: Made) -> None:
    old = tmp_path / "2020010100"
    old.mkdir()
    store = Slow(tmp_path)
    writing = writer(store, sweep_every_s=0.01)
    writing.write(kept())
    until(lambda: not old.exists())
    old.mkdir()
    until(lambda: not old.exists())
    store.gate.set()
    writing.close(30)
    assert store.swept >= 2


def test_a_sweep_that_fails_is_told_once_and_tried_again(
    tmp_path: Path, writer: Made, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fail(self: TraceStore, now: float | None = None) -> int:
        tried.append(now)
        raise StoreError("no right to delete")

    monkeypatch.setattr(TraceStore, "sweep", fail)
    writing, one = writer(TraceStore.at(str(tmp_path), 7), sweep_every_s=0.001), kept()
    until(lambda: len(tried) > 3)
    writing.write(one)
    writing.close(30)
    assert writing.get(one.trace.trace_id) == one
    assert [message for message in caplog.messages if "no right to delete" in message] == caplog.messages[:1]
    assert len(caplog.messages) == 1
    assert writing.failed == 0


def test_a_writer_over_a_store_that_keeps_nothing_keeps_nothing(tmp_path: Path, writer: Made) -> None:
    writing, one = writer(TraceStore.at(str(tmp_path / "none"), 0)), kept()
    writing.write(one)
    with pytest.raises(UnknownIdError, match="traces are not kept"):
        writing.get(one.trace.trace_id)
    writing.close(30)
    assert not (tmp_path / "none").exists()
    assert (writing.dropped, writing.failed) == (0, 0)
