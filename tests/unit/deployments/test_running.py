from __future__ import annotations

import asyncio

import pytest

from deployments.http.running import Running
from resin_core.errors import DeadlineError
from resin_core.llm.streams import closing
from resin_core.strategies.ports import Event
from tests.scripted_question import DONE, PLAN, Finished, Script, answered, token

SAID = answered("It is so.")


@pytest.fixture
def finished() -> Finished:
    return Finished()


@pytest.fixture
def running(finished: Finished) -> Running:
    return Running(finished)


async def test_the_whole_answer_does_not_wait_for_the_audit(running: Running, finished: Finished) -> None:
    gate = asyncio.Event()
    script = Script(PLAN, token("It"), SAID, gate, DONE)
    assert (await running.whole(script.asked, "default")).answer == "It is so."
    await script.waits.wait()
    assert not finished.calls
    gate.set()
    await finished.told.wait()
    assert finished.calls == [(script.asked.recorder.trace_id, "default", SAID.answer, "")]
    assert not script.cut


async def test_a_caller_that_leaves_stops_the_question(running: Running, finished: Finished) -> None:
    script = Script(PLAN, asyncio.Event(), SAID, DONE)
    task = asyncio.create_task(running.whole(script.asked, "default"))
    await script.waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert script.cut
    assert (finished.failures, finished.answers) == (["cancelled"], [None])


async def test_an_error_before_the_answer_is_raised_and_told(running: Running, finished: Finished) -> None:
    script = Script(PLAN, DeadlineError("too late"))
    with pytest.raises(DeadlineError, match="too late"):
        await running.whole(script.asked, "default")
    assert (finished.failures, finished.answers) == (["DeadlineError: too late"], [None])


async def test_an_error_after_the_answer_is_only_told(running: Running, finished: Finished) -> None:
    script = Script(SAID, DeadlineError("too late"))
    assert (await running.whole(script.asked, "default")).answer == "It is so."
    await finished.told.wait()
    assert (finished.failures, finished.answers) == (["DeadlineError: too late"], ["It is so."])


@pytest.mark.parametrize("method", ["whole", "events", "until_answer"])
async def test_an_end_without_an_answer_is_an_error(running: Running, finished: Finished, method: str) -> None:
    script = Script(PLAN, DONE)
    with pytest.raises(RuntimeError, match="without an answer"):
        if method == "whole":
            await running.whole(script.asked, "default")
        else:
            _ = [event async for event in getattr(running, method)(script.asked, "default")]
    assert len(finished.calls) == 1
    assert "without an answer" in finished.failures[0]


async def test_all_events_are_passed_on_and_the_end_comes_after_the_last(running: Running, finished: Finished) -> None:
    script = Script(PLAN, token("It"), SAID, DONE)
    seen: list[Event] = []
    async for event in running.events(script.asked, "further"):
        assert not finished.calls
        seen.append(event)
    assert seen == [PLAN, token("It"), SAID, DONE]
    assert finished.calls == [(script.asked.recorder.trace_id, "further", SAID.answer, "")]


@pytest.mark.parametrize(("taken", "found"), [(1, None), (2, None), (3, "It is so.")])
async def test_closed_events_are_a_cancelled_question(
    running: Running, finished: Finished, taken: int, found: str | None
) -> None:
    script = Script(PLAN, token("It"), SAID, DONE)
    async with closing(running.events(script.asked, "default")) as events:
        for _ in range(taken):
            await anext(events)
    assert script.cut
    assert (finished.failures, finished.answers) == (["cancelled"], [found])


async def test_an_error_among_events_is_raised_and_told(running: Running, finished: Finished) -> None:
    script = Script(token("It"), ValueError("broken"))
    events = running.events(script.asked, "default")
    await anext(events)
    with pytest.raises(ValueError, match="broken"):
        await anext(events)
    assert finished.failures == ["ValueError: broken"]


async def test_events_until_the_answer_leave_the_audit_to_go_on(running: Running, finished: Finished) -> None:
    gate = asyncio.Event()
    script = Script(PLAN, SAID, gate, DONE)
    assert [event async for event in running.until_answer(script.asked, "default")] == [PLAN, SAID]
    assert not finished.calls
    gate.set()
    await finished.told.wait()
    assert (finished.failures, script.cut) == ([""], False)


async def test_a_reader_that_leaves_with_the_answer_does_not_stop_the_audit(
    running: Running, finished: Finished
) -> None:
    gate = asyncio.Event()
    script = Script(SAID, gate, DONE)
    async with closing(running.until_answer(script.asked, "default")) as events:
        assert await anext(events) == SAID
    gate.set()
    await finished.told.wait()
    assert (finished.failures, script.cut) == ([""], False)


async def test_a_reader_that_leaves_before_the_answer_stops_the_question(running: Running, finished: Finished) -> None:
    script = Script(PLAN, token("It"), SAID, DONE)
    async with closing(running.until_answer(script.asked, "default")) as events:
        await anext(events)
    assert script.cut
    assert (finished.failures, finished.answers) == (["cancelled"], [None])


async def test_the_end_stops_audits_and_each_is_told(running: Running, finished: Finished) -> None:
    scripts = [Script(SAID, asyncio.Event(), DONE) for _ in range(3)]
    for script in scripts:
        await running.whole(script.asked, "default")
    # At once, before any of the audits has made its first step.
    await running.end()
    assert finished.failures == ["cancelled"] * 3
    assert {trace_id for trace_id, *_ in finished.calls} == {script.asked.recorder.trace_id for script in scripts}
    assert all(script.cut for script in scripts)
    await running.end()
    assert len(finished.calls) == 3


async def test_the_end_waits_for_audits_that_end_by_themselves(running: Running, finished: Finished) -> None:
    gate = asyncio.Event()
    script = Script(SAID, gate, DONE)
    await running.whole(script.asked, "default")
    await script.waits.wait()
    asyncio.get_running_loop().call_later(0.05, gate.set)
    await running.end(within_s=30)
    assert finished.failures == [""]
