"""The wrappers, over the fake model."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from resin_core.config.sections import LLMSection
from resin_core.errors import (
    DeadlineError,
    LLMRateLimitError,
    LLMReplyError,
    LLMRequestError,
    LLMServerError,
    LLMUnavailableError,
)
from resin_core.llm import retry as retry_module
from resin_core.llm.ledger import LedgerModel
from resin_core.llm.limit import LimitedModel
from resin_core.llm.protocol import Deadline, Message, Request
from resin_core.llm.retry import RetryingModel
from tests.scripted_llm import FakeChatModel, Hang, Reply, Reset, Status

ASK = Request(messages=(Message(role="user", content="q"),), max_tokens=5, prompt_id="plan@1")


def settings(**values: Any) -> LLMSection:
    return LLMSection.model_validate({"backoff_base_s": 0.001, "backoff_max_s": 0.2, "max_retries": 2} | values)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; none is waited."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(retry_module, "asyncio", SimpleNamespace(sleep=sleep))
    return asked


# ---- retry


async def test_gives_up_after_max_retries_and_says_how_many_tries():
    fake = FakeChatModel(Status(503))
    with pytest.raises(LLMServerError, match="gave up after 3 tries") as caught:
        await RetryingModel(fake, settings()).complete(ASK)
    assert len(fake.requests) == 3 and caught.value.status == 503


async def test_no_retries_when_none_are_allowed():
    fake = FakeChatModel(Status(503))
    with pytest.raises(LLMServerError, match="gave up after 1 try"):
        await RetryingModel(fake, settings(max_retries=0)).complete(ASK)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(("action", "kind"), [(Status(400), LLMRequestError), (Reply(""), LLMReplyError)])
async def test_errors_that_do_not_pass_are_not_tried_again(action, kind):
    fake = FakeChatModel(action, Reply("never"))
    with pytest.raises(kind) as caught:
        await RetryingModel(fake, settings()).complete(ASK)
    assert len(fake.requests) == 1 and "tries" not in str(caught.value)


async def test_pauses_double_with_full_jitter_up_to_the_longest(monkeypatch, pauses):
    monkeypatch.setattr(retry_module.random, "uniform", lambda low, high: high)
    model = RetryingModel(FakeChatModel(Status(500)), settings(max_retries=6, backoff_base_s=0.5, backoff_max_s=5))
    with pytest.raises(LLMServerError):
        await model.complete(ASK)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0] and model.retries == 6


async def test_jitter_is_full(pauses):
    with pytest.raises(LLMServerError):
        await RetryingModel(FakeChatModel(Status(500)), settings(max_retries=20, backoff_base_s=3)).complete(ASK)
    assert all(0 <= pause <= 0.2 for pause in pauses) and len(set(pauses)) > 15 and min(pauses) < 0.1


async def test_retry_after_is_waited_for(pauses):
    fake = FakeChatModel(Status(429, {"retry-after": "0.15"}), Status(503, {"retry-after": "0.2"}), Reply("ok"))
    assert (await RetryingModel(fake, settings()).complete(ASK)).text == "ok"
    assert pauses == [0.15, 0.2]


async def test_retry_after_beyond_the_longest_pause_fails_at_once(pauses):
    fake = FakeChatModel(Status(429, {"retry-after": "120"}), Reply("never"))
    with pytest.raises(LLMRateLimitError, match=r"wait 120 s, longer than llm\.backoff_max_s = 0\.2 s") as caught:
        await RetryingModel(fake, settings()).complete(ASK)
    assert caught.value.retry_after_s == 120 and pauses == [] and len(fake.requests) == 1


async def test_never_sleeps_past_the_deadline():
    fake = FakeChatModel(Status(429, {"retry-after": "5"}), Reply("never"))
    started = time.monotonic()
    with pytest.raises(DeadlineError, match=r"made: 1\).*scripted status 429"):
        await RetryingModel(fake, settings(backoff_max_s=30)).complete(ASK, Deadline.after(1))
    assert time.monotonic() - started < 0.5


async def test_a_stream_is_tried_again_only_before_its_first_piece():
    fake = FakeChatModel(Status(500), Reset(), Reply("ok"))
    pieces = [piece async for piece in RetryingModel(fake, settings()).stream(ASK)]
    assert pieces[0] == "ok" and len(fake.requests) == 3
    fake = FakeChatModel(Reset(pieces=1), Reply("never"))
    got = []
    with pytest.raises(LLMUnavailableError):
        async for piece in RetryingModel(fake, settings()).stream(ASK):
            got.append(piece)
    assert got == ["some "] and len(fake.requests) == 1


async def test_cancelling_a_pause_ends_it():
    model = RetryingModel(FakeChatModel(Status(500)), settings(backoff_base_s=60, backoff_max_s=60))
    task = asyncio.create_task(model.complete(ASK))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---- limit


async def test_waiting_for_a_slot_is_bounded_by_the_deadline():
    model = LimitedModel(FakeChatModel(Hang()), 1)
    holder = asyncio.create_task(model.complete(ASK))
    await asyncio.sleep(0.01)
    for call in (model.complete, lambda *a: anext(model.stream(*a))):
        with pytest.raises(DeadlineError, match=r"all 1 calls of llm\.max_concurrency"):
            await call(ASK, Deadline.after(0.05))
    holder.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holder


async def test_cancelled_waiters_leave_no_hole():
    gate = FakeChatModel(Reply("ok", latency_s=0.02))
    model = LimitedModel(gate, 1)
    tasks = [asyncio.create_task(model.complete(ASK)) for _ in range(6)]
    await asyncio.sleep(0.005)
    for task in tasks[1:4]:
        task.cancel()
    done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 2)
    assert [getattr(one, "text", None) for one in done] == ["ok", None, None, None, "ok", "ok"]
    assert (await asyncio.wait_for(model.complete(ASK), 1)).text == "ok"


def test_a_model_serves_one_loop_after_another():
    model = LimitedModel(FakeChatModel(Reply("ok", latency_s=0.005)), 1)

    async def crowd() -> int:
        return len(await asyncio.gather(*(model.complete(ASK) for _ in range(3))))

    assert [asyncio.run(crowd()), asyncio.run(crowd())] == [3, 3]
    assert (model.in_use, model.waiting) == (0, 0)


# ---- ledger


async def test_the_ledger_sums_by_prompt_and_counts_errors_by_type():
    replies = (Reply("a", usage=(10, 1)), Reply("b", usage=(20, 2)), Status(400), Reply(""))
    ledger = LedgerModel(FakeChatModel(*replies))
    other = ASK.model_copy(update={"prompt_id": "compose@1"})
    await ledger.complete(ASK)
    async for piece in ledger.stream(other):
        assert piece == "b" or piece.text == "b"
    for request, kind in ((other, LLMRequestError), (ASK, LLMReplyError)):
        with pytest.raises(kind):
            await ledger.complete(request)
    assert (ledger.usage.llm_calls, ledger.usage.completion_tokens) == (4, 3)
    assert ledger.usage.prompt_tokens == 31, "the empty reply's prompt counts too"
    assert ledger.total.errors == {"LLMRequestError": 1, "LLMReplyError": 1} and ledger.total.seconds > 0
    assert {name: tally.calls for name, tally in ledger.by_prompt.items()} == {"plan@1": 2, "compose@1": 2}
    assert ledger.by_prompt["compose@1"].prompt_tokens == 20


async def test_a_reader_that_stops_early_counts_as_cancelled_and_after_the_reply_as_done():
    ledger = LedgerModel(FakeChatModel(Reply("many words here")))
    stream = ledger.stream(ASK)
    await anext(stream)
    await stream.aclose()
    assert ledger.total.errors == {"cancelled": 1} and ledger.total.completion_tokens == 0
    stream = ledger.stream(ASK)
    while isinstance(await anext(stream), str):
        pass
    await stream.aclose()
    assert ledger.total.errors == {"cancelled": 1} and ledger.total.completion_tokens == 3
