"""A limit that changes while calls run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from resin_core.errors import DeadlineError
from resin_core.llm.limit import LimitedModel
from resin_core.llm.protocol import Deadline, Message, Request
from tests.scripted_llm import FakeChatModel, Hang, Reply

ASK = Request(messages=(Message(role="user", content="q"),), max_tokens=5)


async def begun(model: LimitedModel, count: int) -> list[asyncio.Task[Any]]:
    """Calls that have come as far as they can."""
    tasks = [asyncio.create_task(model.complete(ASK)) for _ in range(count)]
    await settle()
    return tasks


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_a_limit_set_between_two_loops_holds_in_the_second():
    model = LimitedModel(FakeChatModel(Hang(), Reply("ok", latency_s=0.01)), 1)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    # A loop that was stopped, not run to its end: a call runs and another waits, for ever.
    left = [loop.create_task(model.complete(ASK)) for _ in range(2)]
    loop.run_until_complete(asyncio.sleep(0.01))
    assert (model.in_use, model.waiting) == (1, 1)
    loop.close()
    model.resize(2)
    assert (model.in_use, model.waiting, len(left)) == (0, 0, 2)

    async def crowd() -> tuple[int, int]:
        tasks = [asyncio.create_task(model.complete(ASK)) for _ in range(3)]
        await settle()
        counts = (model.in_use, model.waiting)
        await asyncio.wait_for(asyncio.gather(*tasks), 2)
        return counts

    assert asyncio.run(crowd()) == (2, 1)


async def test_growing_wakes_waiters_and_shrinking_lets_running_calls_finish():
    fake = FakeChatModel(Hang())
    model = LimitedModel(fake, 1)
    tasks = await begun(model, 6)
    assert (model.limit, model.in_use, model.waiting, len(fake.requests)) == (1, 1, 5, 1)
    model.resize(4)
    assert (model.limit, model.in_use, model.waiting) == (4, 4, 2)
    await settle()
    assert len(fake.requests) == 4
    model.resize(2)
    await settle()
    assert (model.in_use, model.waiting) == (4, 2) and not any(task.done() for task in tasks)
    await ended(tasks[:2])
    assert (model.in_use, model.waiting, len(fake.requests)) == (2, 2, 4), "above the limit: nobody came in"
    await ended(tasks[2:3])
    await settle()
    assert (model.in_use, model.waiting, len(fake.requests)) == (2, 1, 5)
    await ended(tasks[3:])
    assert (model.in_use, model.waiting) == (0, 0)


async def test_a_limit_of_0_pauses_until_it_grows():
    model = LimitedModel(FakeChatModel(Reply("ok")), 2)
    model.resize(0)
    tasks = await begun(model, 3)
    assert (model.in_use, model.waiting) == (0, 3)
    with pytest.raises(DeadlineError, match=r"calls were paused.* share .* is 0"):
        await model.complete(ASK, Deadline.after(0.02))
    model.resize(1)
    assert [reply.text for reply in await asyncio.wait_for(asyncio.gather(*tasks), 2)] == ["ok"] * 3
    assert (model.in_use, model.waiting) == (0, 0)


async def test_calls_keep_their_order_over_changes_of_the_limit():
    order: list[str] = []

    def note(request: dict[str, Any]) -> Reply:
        order.append(request["messages"][0]["content"])
        return Reply("ok", latency_s=0.002)

    model = LimitedModel(FakeChatModel(note), 0)
    asks = [ASK.model_copy(update={"messages": (Message(role="user", content=str(at)),)}) for at in range(8)]
    tasks = [asyncio.create_task(model.complete(ask)) for ask in asks]
    await settle()
    for limit in (1, 3, 0, 2):
        model.resize(limit)
        await asyncio.sleep(0.003)
    await asyncio.wait_for(asyncio.gather(*tasks), 2)
    assert order == [str(at) for at in range(8)]


async def test_a_waiter_cancelled_as_it_gets_its_slot_hands_it_on():
    fake = FakeChatModel(Hang(), Hang(), Reply("ok"))
    model = LimitedModel(fake, 1)
    holder, unlucky, lucky = await begun(model, 3)
    model.resize(2)
    unlucky.cancel()
    await settle()
    assert unlucky.cancelled() and (model.in_use, model.waiting, len(fake.requests)) == (2, 0, 2)
    await ended([holder, lucky])
    assert model.in_use == 0


async def test_an_open_stream_counts_as_in_use():
    model = LimitedModel(FakeChatModel(Reply("ok")), 1)
    stream = model.stream(ASK)
    await anext(stream)
    assert model.in_use == 1
    await stream.aclose()
    assert model.in_use == 0


def test_a_limit_below_0_is_refused():
    with pytest.raises(ValueError, match="limit of -1 calls"):
        LimitedModel(FakeChatModel(), -1)
    model = LimitedModel(FakeChatModel(), 3)
    with pytest.raises(ValueError, match="give 0"):
        model.resize(-2)
    assert model.limit == 3
