"""Token buckets, and what becomes of a count that is shared and gets lost."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.rates import RateLimits, SharedRates


class Clock:
    """Seconds that pass only when told."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_minute_s_worth_at_once_then_at_that_pace(clock: Clock) -> None:
    limits = RateLimits(clock)
    assert [limits.allow("a", 6) for _ in range(6)] == [0.0] * 6
    assert limits.allow("a", 6) == pytest.approx(10.0)
    clock.now += 4
    assert limits.allow("a", 6) == pytest.approx(6.0)
    clock.now += 6
    assert limits.allow("a", 6) == 0.0
    assert limits.allow("a", 6) == pytest.approx(10.0)


def test_a_refusal_counts_nothing(clock: Clock) -> None:
    limits = RateLimits(clock)
    assert limits.allow("a", 1) == 0.0
    waits = [limits.allow("a", 1) for _ in range(50)]
    assert waits == [pytest.approx(60.0)] * 50


def test_names_are_counted_apart(clock: Clock) -> None:
    limits = RateLimits(clock)
    assert limits.allow("a", 1) == 0.0
    assert limits.allow("a", 1) > 0
    assert limits.allow("b", 1) == 0.0


def test_a_bucket_never_holds_more_than_a_minute_s_worth(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.allow("a", 3)
    clock.now += 100_000
    assert [limits.allow("a", 3) > 0 for _ in range(5)] == [False, False, False, True, True]


def test_another_limit_takes_effect_at_once(clock: Clock) -> None:
    limits = RateLimits(clock)
    assert [limits.allow("a", 2) for _ in range(2)] == [0.0, 0.0]
    assert limits.allow("a", 120) == pytest.approx(0.5)
    clock.now += 60
    assert limits.allow("a", 1) == 0.0
    assert limits.allow("a", 1) == pytest.approx(60.0)


@pytest.mark.parametrize("per_minute", [0, -1])
def test_a_limit_that_lets_nothing_through_is_refused(clock: Clock, per_minute: int) -> None:
    with pytest.raises(ValueError, match="per_minute"):
        RateLimits(clock).allow("a", per_minute)


def test_memory_holds_the_names_of_the_last_two_minutes_only(clock: Clock) -> None:
    limits = RateLimits(clock)
    most = 0
    for number in range(20_000):
        clock.now += 0.12  # 500 names a minute, each of them new
        limits.allow(f"name {number}", 60)
        most = max(most, limits.kept)
    assert most <= 1_001
    clock.now += 60
    limits.allow("last", 60)
    assert limits.kept == 1


def test_dropping_full_buckets_lets_nobody_in_earlier(clock: Clock) -> None:
    limits = RateLimits(clock)
    clock.now += 59
    assert limits.allow("a", 60) == 0.0
    assert limits.allow("b", 60) == limits.allow("b", 60) == 0.0
    clock.now += 1
    assert limits.allow("c", 60) == 0.0  # a is full again and goes, b is not
    assert limits.kept == 2
    assert [limits.allow("b", 60) for _ in range(59)] == [0.0] * 59
    assert limits.allow("b", 60) == pytest.approx(1.0)


@given(
    per_minute=st.integers(1, 200),
    pauses=st.lists(st.floats(0, 20), min_size=1, max_size=300),
    start=st.floats(0, 1e7),
)
def test_no_minute_sees_more_than_twice_the_limit(per_minute: int, pauses: list[float], start: float) -> None:
    clock = Clock(start)
    limits = RateLimits(clock)
    allowed: list[float] = []
    for pause in pauses:
        clock.now += pause / per_minute
        if limits.allow("a", per_minute) == 0.0:
            allowed.append(clock.now)
    for first in allowed:
        assert sum(first <= at < first + 60 for at in allowed) <= 2 * per_minute


@given(per_minute=st.integers(1, 10_000), burst=st.integers(0, 50), start=st.floats(0, 1e7))
def test_who_waits_as_long_as_told_is_let_in(per_minute: int, burst: int, start: float) -> None:
    clock = Clock(start)
    limits = RateLimits(clock)
    for _ in range(burst):
        clock.now += limits.allow("a", per_minute)
    wait_s = limits.allow("a", per_minute)
    if wait_s:
        clock.now += wait_s
        assert limits.allow("a", per_minute) == 0.0


class Counter:
    """A shared count that can be made to fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.says: float | Exception = 0.0

    async def __call__(self, name: str, per_minute: int) -> float:
        self.asked.append((name, per_minute))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("resin"), "propagate", True)
    caplog.set_level(logging.DEBUG, "resin")
    return caplog


async def test_the_shared_count_alone_is_asked_while_it_answers(clock: Clock) -> None:
    counter = Counter()
    rates = SharedRates(counter, clock)
    assert [await rates.allow("a", 1) for _ in range(3)] == [0.0] * 3
    counter.says = 7.5
    assert await rates.allow("a", 1) == 7.5
    assert counter.asked == [("a", 1)] * 4


@pytest.mark.parametrize("says", [RuntimeError("gone"), TimeoutError(), float("inf"), float("nan")])
async def test_a_lost_count_is_replaced_by_this_process_s_own(
    clock: Clock, logged: pytest.LogCaptureFixture, says: float | Exception
) -> None:
    counter = Counter()
    counter.says = says
    rates = SharedRates(counter, clock)
    assert [await rates.allow("a", 2) for _ in range(2)] == [0.0, 0.0]
    assert await rates.allow("a", 2) == pytest.approx(30.0)
    assert len(counter.asked) == 1  # then it is left alone for a while
    clock.now += 6
    await rates.allow("a", 2)
    assert len(counter.asked) == 2
    assert [record.levelname for record in logged.records] == ["WARNING"]
    assert "gone" not in logged.text

    counter.says = 0.0
    clock.now += 6
    assert [await rates.allow("a", 2) for _ in range(5)] == [0.0] * 5
    assert len(counter.asked) == 7
    assert [record.levelname for record in logged.records] == ["WARNING", "INFO"]


async def test_a_count_that_does_not_come_holds_nothing_up(clock: Clock) -> None:
    async def never(name: str, per_minute: int) -> float:
        await asyncio.Event().wait()
        return 0.0

    rates = SharedRates(never, clock, ask_s=0.01)
    async with asyncio.timeout(5):
        assert await rates.allow("a", 1) == 0.0
        assert await rates.allow("a", 1) == pytest.approx(60.0)


async def test_cancelling_is_no_lost_count(clock: Clock, logged: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def never(name: str, per_minute: int) -> float:
        asked.set()
        await asyncio.Event().wait()
        return 0.0

    rates = SharedRates(never, clock, ask_s=60)
    task = asyncio.create_task(rates.allow("a", 1))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert logged.records == []


async def test_without_a_shared_count_the_own_one_holds(clock: Clock, logged: pytest.LogCaptureFixture) -> None:
    rates = SharedRates(clock=clock)
    assert await rates.allow("a", 1) == 0.0
    assert await rates.allow("a", 1) == pytest.approx(60.0)
    assert logged.records == []
