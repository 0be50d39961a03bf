"""Which generations a process holds open, told by what is opened and when it is let go."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from resin_core.errors import IndexCorruptError, IndexMissingError, StoreError
from resin_core.store.filesystem import IndexFolder
from resin_core.store.generations import OpenGenerations
from resin_core.store.manifest import Stamp, write_current
from resin_core.store.reader import IndexReader
from resin_core.store.writer import IndexWriter

WAIT_S = 10.0
THREADS = 16


class Opened:
    def __init__(self, generation: str) -> None:
        self.generation = generation


class Opener:
    """Opens by name, counts it, and waits where it is told to."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str]] = []
        self.errors: list[Exception] = []
        self.wait: Callable[[str], Any] = lambda _: None

    def __call__(self, location: str, generation: str) -> Opened:
        self.opened.append((location, generation))
        self.wait(generation)
        if self.errors:
            raise self.errors.pop()
        return Opened(generation)

    @property
    def names(self) -> list[str]:
        return [generation for _, generation in self.opened]


@pytest.fixture
def opener() -> Opener:
    return Opener()


def held(opener: Opener, keep: int = 2, location: str = "somewhere") -> OpenGenerations[Opened]:
    return OpenGenerations(location, opener, keep)


def test_a_generation_is_opened_at_its_first_use_and_then_at_hand(opener: Opener) -> None:
    generations = held(opener)
    assert generations.ready("g1") is None
    first = generations.get("g1")
    assert generations.get("g1") is first and generations.ready("g1") is first
    assert opener.opened == [("somewhere", "g1")]


def test_many_threads_open_it_once(opener: Opener) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    opener.wait = wait
    generations = held(opener)
    with ThreadPoolExecutor(THREADS) as pool:
        asked = [pool.submit(generations.get, "g1") for _ in range(THREADS)]
        assert begun.wait(WAIT_S)
        assert generations.ready("g1") is None, "what is still being opened is not at hand, and asking does not wait"
        go_on.set()
        assert len({id(future.result(WAIT_S)) for future in asked}) == 1
    assert opener.names == ["g1"]


def test_two_generations_are_opened_side_by_side(opener: Opener) -> None:
    both = threading.Barrier(2)
    opener.wait = lambda _: both.wait(WAIT_S)
    generations = held(opener)
    with ThreadPoolExecutor(2) as pool:
        found = [future.result(WAIT_S) for future in [pool.submit(generations.get, name) for name in ("g1", "g2")]]
    assert [one.generation for one in found] == ["g1", "g2"]


def test_a_generation_at_hand_does_not_wait_for_one_that_is_opened(opener: Opener) -> None:
    generations = held(opener)
    first = generations.get("g1")
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    opener.wait = wait
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(generations.get, "g2")
        assert begun.wait(WAIT_S)
        assert generations.get("g1") is first
        go_on.set()
        assert second.result(WAIT_S).generation == "g2"


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_so_many_stay_open(opener: Opener, keep: int) -> None:
    generations = held(opener, keep)
    names = [f"g{number}" for number in range(5)]
    for name in names:
        generations.get(name)
    assert [name for name in names if generations.ready(name)] == names[-keep:]


@pytest.mark.parametrize("use", ["get", "ready"])
def test_the_one_that_was_used_longest_ago_goes(opener: Opener, use: str) -> None:
    generations = held(opener)
    generations.get("g1")
    generations.get("g2")
    getattr(generations, use)("g1")
    generations.get("g3")
    assert [bool(generations.ready(name)) for name in ("g1", "g2", "g3")] == [True, False, True]
    generations.get("g2")
    assert opener.names == ["g1", "g2", "g3", "g2"]


def test_what_fell_out_lives_as_long_as_somebody_holds_it(opener: Opener) -> None:
    generations = held(opener, keep=1)
    mine = generations.get("g1")
    watched = weakref.ref(mine)
    generations.get("g2")
    assert generations.ready("g1") is None
    assert watched() is mine
    del mine
    gc.collect()
    assert watched() is None


def test_an_opening_that_failed_is_tried_again(opener: Opener) -> None:
    generations = held(opener)
    opener.errors = [IndexCorruptError("files/x", "half written")]
    with pytest.raises(IndexCorruptError, match="half written"):
        generations.get("g1")
    assert generations.ready("g1") is None
    assert generations.get("g1").generation == "g1"
    assert opener.names == ["g1", "g1"]


def test_those_who_waited_for_a_failed_opening_try_themselves_one_after_the_other(opener: Opener) -> None:
    at_work = threading.Semaphore(1)

    def wait(_: str) -> None:
        assert at_work.acquire(blocking=False), "opened twice at a time"
        time.sleep(0.002)
        at_work.release()

    opener.wait = wait
    opener.errors = [StoreError("away") for _ in range(3)]
    generations = held(opener)
    with ThreadPoolExecutor(THREADS) as pool:
        asked: list[Future[Opened]] = [pool.submit(generations.get, "g1") for _ in range(THREADS)]
        failed = [future for future in asked if future.exception(WAIT_S) is not None]
    assert len(failed) == 3
    assert opener.names == ["g1"] * 4


def test_nothing_is_remembered_of_what_could_not_be_opened(opener: Opener) -> None:
    generations = held(opener)
    for number in range(50):
        opener.errors = [StoreError("away")]
        with pytest.raises(StoreError):
            generations.get(f"g{number}")
    assert len(generations._opening) == 0


def test_the_current_one_is_what_the_pointer_names_now(tmp_path: Path, opener: Opener) -> None:
    generations = held(opener, location=str(tmp_path))
    with pytest.raises(IndexMissingError):
        generations.current()
    for name in ("g1-0123456789ab", "g2-0123456789ab", "g1-0123456789ab"):
        write_current(IndexFolder.at(tmp_path), name)
        assert generations.current() == name
    assert opener.opened == []


def test_an_unusable_location_is_said_at_once(opener: Opener) -> None:
    with pytest.raises(StoreError):
        held(opener, location="nowhere://x")


def test_the_pointer_may_go_back_to_an_earlier_generation(built: Any, stamp: Stamp) -> None:
    earlier = built.manifest.generation
    later = IndexWriter(built.uri).publish(built.entries, stamp).generation
    generations = OpenGenerations(str(built.uri), IndexReader.open)
    assert generations.current() == later
    first, second = generations.get(earlier), generations.get(later)
    assert (first.generation, second.generation) == (earlier, later)
    write_current(IndexFolder.at(built.uri), earlier)
    assert generations.get(generations.current()) is first
