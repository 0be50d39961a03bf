"""A budget that is never exceeded, whatever replies cost and whenever the allowance changes."""

from __future__ import annotations

import asyncio
import random

import pytest

from resin_core.errors import LLMServerError, StoppedError
from resin_core.llm.budget import BudgetModel, worst_case
from resin_core.llm.protocol import Message, Reply, Request
from resin_core.records import Usage
from tests import scripted_llm
from tests.scripted_llm import FakeChatModel, Hang, Status


def request(max_tokens: int = 100) -> Request:
    return Request(messages=(Message(role="user", content="a few words to read"),), max_tokens=max_tokens)


def tokens(usage: Usage) -> float:
    return float(usage.prompt_tokens + usage.completion_tokens)


ONE = tokens(worst_case(request()))


async def test_calls_wait_until_their_worst_case_fits() -> None:
    inner = FakeChatModel(scripted_llm.Reply("ok", usage=(10, 20), latency_s=0.05))
    model = BudgetModel(inner, tokens)
    model.allow(2 * ONE)
    calls = [asyncio.create_task(model.complete(request())) for _ in range(4)]
    await asyncio.sleep(0.02)
    assert (len(inner.requests), model.reserved, model.starved) == (2, 2 * ONE, False)
    await asyncio.gather(*calls)
    assert (len(inner.requests), model.spent, model.reserved) == (4, 120.0, 0.0)


async def test_a_call_that_cannot_fit_starves_until_it_is_allowed_or_stopped() -> None:
    inner = FakeChatModel(scripted_llm.Reply("ok", usage=(10, 20)))
    model = BudgetModel(inner, tokens)
    model.allow(ONE - 1)
    waiting = asyncio.create_task(model.complete(request()))
    await asyncio.sleep(0.01)
    assert (model.starved, inner.requests) == (True, [])
    model.allow(ONE)
    await waiting
    late = asyncio.create_task(model.complete(request()))
    await asyncio.sleep(0.01)
    assert model.starved
    model.stop()
    with pytest.raises(StoppedError):
        await late
    with pytest.raises(StoppedError):
        await model.complete(request())
    assert len(inner.requests) == 1


async def test_a_stop_lets_calls_under_way_end_before_others_hear_of_it() -> None:
    inner = FakeChatModel(scripted_llm.Reply("ok", latency_s=0.1))
    model = BudgetModel(inner, tokens)
    model.allow(ONE)
    order: list[str] = []

    async def call(name: str) -> None:
        try:
            await model.complete(request())
            order.append(f"{name} done")
        except StoppedError:
            order.append(f"{name} stopped")

    calls = [asyncio.create_task(call(name)) for name in "ab"]
    await asyncio.sleep(0.02)
    model.stop()
    await asyncio.gather(*calls)
    assert order == ["a done", "b stopped"]


@pytest.mark.parametrize("action", [Status(500), Hang()])
async def test_what_a_failed_or_cancelled_call_had_reserved_is_free_again(action: scripted_llm.Action) -> None:
    model = BudgetModel(FakeChatModel(action), tokens)
    model.allow(ONE)
    running = asyncio.create_task(model.complete(request()))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises((LLMServerError, asyncio.CancelledError)):
        await running
    assert (model.spent, model.reserved) == (0.0, 0.0)


async def test_spending_stays_within_every_allowance() -> None:
    draw = random.Random(7)

    def handler(asked: dict[str, object]) -> scripted_llm.Reply:
        return scripted_llm.Reply("ok", usage=(5, draw.randint(0, 90)), latency_s=draw.random() / 100)

    model = BudgetModel(FakeChatModel(handler), tokens)
    model.allow(0.0)
    calls = [asyncio.create_task(model.complete(request(draw.randint(50, 90)))) for _ in range(60)]
    for step in range(30):
        allowance = 100.0 * step
        model.allow(allowance)
        await asyncio.sleep(0.01)
        assert model.spent + model.reserved <= allowance
    model.allow(float("inf"))
    replies: list[Reply] = await asyncio.gather(*calls)
    assert model.spent == sum(tokens(reply.usage) for reply in replies)
