"""Counting overload answers under the retry layer."""

from __future__ import annotations

import asyncio

import pytest

from resin_core.config.sections import LLMSection
from resin_core.errors import LLMError, LLMRateLimitError, LLMServerError, LLMTimeoutError
from resin_core.llm.build import open_chat_model
from resin_core.llm.overload import WatchedModel, is_overload
from resin_core.llm.protocol import Message, Request
from resin_core.llm.retry import RetryingModel
from tests.scripted_llm import FakeChatModel, Hang, Reply, Reset, ScriptedServer, Status

ASK = Request(messages=(Message(role="user", content="q"),), max_tokens=5)


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (LLMRateLimitError("x"), True),
        (LLMServerError("x", 503), True),
        (LLMServerError("x", 529), True),
        (LLMServerError("x", 500), False),
        (LLMServerError("x", 502), False),
        (LLMTimeoutError("x"), False),
    ],
)
def test_what_is_an_overload(error: LLMError, counts: bool):
    assert is_overload(error) is counts


async def test_every_try_counts_and_errors_stay_as_they_are():
    fake = FakeChatModel(Status(429), Status(529), Status(500), Reset(), Status(503))
    watched = WatchedModel(fake)
    settings = LLMSection(max_retries=4, backoff_base_s=0.001)
    with pytest.raises(LLMServerError, match="scripted status 503") as caught:
        await RetryingModel(watched, settings).complete(ASK)
    assert (watched.overloads, len(fake.requests), caught.value.status) == (3, 5, 503)
    assert watched.model_name == "scripted"


async def test_streams_count_and_close():
    watched = WatchedModel(FakeChatModel(Status(429), Status(500), Reply("ok"), Hang(pieces=1)))
    for kind in (LLMRateLimitError, LLMServerError):
        with pytest.raises(kind):
            await anext(watched.stream(ASK))
    pieces = [piece async for piece in watched.stream(ASK)]
    assert pieces[0] == "ok"
    stream = watched.stream(ASK)
    await anext(stream)
    await stream.aclose()
    assert watched.overloads == 1


async def test_the_whole_stack_counts_overloads_and_can_be_resized(scripted_llm: ScriptedServer):
    scripted_llm.script(Status(503), Status(500), Reply("ok"))
    settings = LLMSection(backoff_base_s=0.001, max_concurrency=2)
    async with open_chat_model(settings, scripted_llm.base_url) as model:
        assert (await model.complete(ASK)).text == "ok"
        assert (model.overloads, model.retries, model.in_use, model.waiting) == (1, 2, 0, 0)
        model.resize(0)
        task = asyncio.create_task(model.complete(ASK))
        await asyncio.sleep(0.01)
        assert (model.in_use, model.waiting) == (0, 1)
        model.resize(1)
        assert (await asyncio.wait_for(task, 5)).text == "ok"
