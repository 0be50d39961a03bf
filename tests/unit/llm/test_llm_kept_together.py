"""Kept replies when equal calls come at the same time, are cancelled, or run out of time."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from resin_core.errors import DeadlineError, LLMReplyError, LLMRequestError, StoreError
from resin_core.llm import protocol
from resin_core.llm.kept import KeptModel
from resin_core.llm.ledger import LedgerModel
from resin_core.llm.protocol import Deadline, Message, Request
from resin_core.records import Usage
from tests.scripted_llm import FakeChatModel, Hang, Reply, Status
from tests.scripted_llm.reply_store import DictStore

ASK = Request(messages=(Message(role="user", content="q"),), max_tokens=5, prompt_id="plan@1")
SEED = 7


@pytest.fixture
def store() -> DictStore:
    return DictStore()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# ---- equal calls at the same time


async def test_equal_calls_share_one_and_its_cost_counts_once(store):
    ledger = LedgerModel(FakeChatModel(Reply("ok", latency_s=0.01, usage=(10, 2)), Reply("never")))
    model = KeptModel(ledger, store, SEED)
    replies = await asyncio.gather(*(model.complete(ASK) for _ in range(4)))
    assert [reply.text for reply in replies] == ["ok"] * 4
    assert sum((reply.usage for reply in replies), Usage()) == ledger.usage
    assert (ledger.total.calls, store.puts, model.hits, model.shared) == (1, 1, 0, 3)
    assert [reply.seconds > 0 for reply in replies] == [True, False, False, False]


async def test_equal_calls_of_a_kept_reply_are_all_hits(store):
    await KeptModel(FakeChatModel(Reply("ok")), store, SEED).complete(ASK)
    model = KeptModel(FakeChatModel(Status(400)), store, SEED)
    replies = await asyncio.gather(*(model.complete(ASK) for _ in range(3)))
    assert (model.hits, model.shared) == (3, 0) and all(reply.usage == Usage() for reply in replies)


async def test_an_empty_shared_reply_costs_once(store):
    model = KeptModel(FakeChatModel(Reply("", latency_s=0.01)), store, SEED)
    failures = await asyncio.gather(*(model.complete(ASK) for _ in range(3)), return_exceptions=True)
    assert [type(failure) for failure in failures] == [LLMReplyError] * 3
    assert [failure.usage.llm_calls for failure in failures] == [1, 0, 0]


async def test_a_shared_failure_fails_all_and_is_not_remembered(store):
    model = KeptModel(FakeChatModel(Status(400, latency_s=0.01), Reply("ok")), store, SEED)
    failures = await asyncio.gather(*(model.complete(ASK) for _ in range(2)), return_exceptions=True)
    assert [type(failure) for failure in failures] == [LLMRequestError] * 2
    assert (await model.complete(ASK)).text == "ok"


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_waiter_that_is_cancelled_leaves_the_call_to_the_other(store, gone):
    fake = FakeChatModel(Reply("ok", latency_s=0.02, usage=(10, 2)))
    model = KeptModel(fake, store, SEED)
    tasks = [asyncio.create_task(model.complete(ASK)) for _ in range(2)]
    await asyncio.sleep(0.005)
    tasks[gone].cancel()
    reply = await asyncio.wait_for(tasks[1 - gone], 2)
    assert tasks[gone].cancelled() and len(fake.requests) == 1
    assert reply.usage.prompt_tokens == 10, "whoever is left carries the cost"


async def test_when_all_waiters_are_gone_the_call_is_cancelled_and_the_next_begins_anew(store):
    ledger = LedgerModel(FakeChatModel(Hang(), Reply("ok")))
    model = KeptModel(ledger, store, SEED)
    tasks = [asyncio.create_task(model.complete(ASK)) for _ in range(3)]
    await settle()
    for task in tasks:
        task.cancel()
    done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 2)
    assert all(isinstance(one, asyncio.CancelledError) for one in done)
    assert ledger.total.errors == {"cancelled": 1} and len(asyncio.all_tasks()) == 1
    assert (await asyncio.wait_for(model.complete(ASK), 2)).text == "ok"


async def test_a_call_that_is_being_cancelled_is_not_joined(store):
    class Slow(FakeChatModel):
        async def complete(self, request: Request, deadline: Deadline | None = None) -> protocol.Reply:
            try:
                return await super().complete(request, deadline)
            except asyncio.CancelledError:
                await asyncio.sleep(0.02)
                raise

    model = KeptModel(Slow(Hang(), Reply("ok")), store, SEED)
    first = asyncio.create_task(model.complete(ASK))
    await settle()
    first.cancel()
    await asyncio.sleep(0.005)
    assert not first.done(), "it waits until the call has ended"
    assert (await asyncio.wait_for(model.complete(ASK), 2)).text == "ok"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_reply_that_has_come_is_put_even_when_nobody_waits(store):
    store.gate.clear()
    model = KeptModel(FakeChatModel(Reply("ok"), Reply("never")), store, SEED)
    task = asyncio.create_task(model.complete(ASK))
    await settle()
    task.cancel()
    await settle()
    assert store.puts == 1 and not task.done()
    late = asyncio.create_task(model.complete(ASK))
    await settle()
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await late).usage.llm_calls == 1 and len(store.kept) == 1


async def test_a_paid_reply_lost_while_nobody_waits_is_told_of(store, caplog):
    store.gate.clear()
    store.put_error = StoreError("the disk is full")
    task = asyncio.create_task(KeptModel(FakeChatModel(Reply("ok")), store, SEED).complete(ASK))
    await settle()
    task.cancel()
    await settle()
    store.gate.set()
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await task
    assert "a reply that was paid for could not be kept: the disk is full" in caplog.text


# ---- deadlines


async def test_a_lone_call_hands_its_deadline_down(store):
    model = KeptModel(FakeChatModel(Hang()), store, SEED)
    with pytest.raises(DeadlineError, match="at the scripted model"):
        await asyncio.wait_for(model.complete(ASK, Deadline.after(0.03)), 2)


async def test_a_waiter_with_less_time_goes_and_the_call_stays(store):
    fake = FakeChatModel(Reply("ok", latency_s=0.1))
    model = KeptModel(fake, store, SEED)
    patient = asyncio.create_task(model.complete(ASK))
    await settle()
    started = time.monotonic()
    with pytest.raises(DeadlineError, match="waiting for an equal call"):
        await model.complete(ASK, Deadline.after(0.02))
    assert time.monotonic() - started < 0.09 and not patient.done()
    assert (await patient).text == "ok" and len(fake.requests) == 1


async def test_a_waiter_with_more_time_than_the_call_it_shared_makes_its_own(store):
    fake = FakeChatModel(Hang(), Reply("ok"))
    model = KeptModel(fake, store, SEED)
    hasty = asyncio.create_task(model.complete(ASK, Deadline.after(0.03)))
    await settle()
    others = [asyncio.create_task(model.complete(ASK, deadline)) for deadline in (None, Deadline.after(5))]
    with pytest.raises(DeadlineError):
        await hasty
    assert [reply.text for reply in await asyncio.wait_for(asyncio.gather(*others), 2)] == ["ok", "ok"]
    assert len(fake.requests) == 2


async def test_the_last_waiter_that_runs_out_of_time_ends_the_call(store):
    ledger = LedgerModel(FakeChatModel(Hang()))
    model = KeptModel(ledger, store, SEED)
    first = asyncio.create_task(model.complete(ASK))
    await settle()
    second = asyncio.create_task(model.complete(ASK, Deadline.after(0.03)))
    await settle()
    first.cancel()
    with pytest.raises(DeadlineError):
        await asyncio.wait_for(second, 2)
    assert ledger.total.errors == {"cancelled": 1} and first.cancelled()


def test_a_model_serves_one_loop_after_another():
    store = DictStore()
    model = KeptModel(FakeChatModel(Hang(), Reply("ok")), store, SEED)

    async def left() -> None:
        waiting = asyncio.create_task(model.complete(ASK))
        await settle()
        assert not waiting.done()

    asyncio.run(left())
    assert asyncio.run(model.complete(ASK)).text == "ok"
