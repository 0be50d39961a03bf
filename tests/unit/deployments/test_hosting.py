"""The client of a hosted model over a handle that is played; the engines themselves are tested where vllm is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import ray.exceptions
from ray.serve.exceptions import BackPressureError

from deployments import hosting
from deployments.hosting import EngineChatModel, engine
from resin_core.config import load_config
from resin_core.errors import (
    ConfigError,
    ContextLengthError,
    DeadlineError,
    LLMError,
    LLMRateLimitError,
    LLMReplyError,
    LLMRequestError,
    LLMServerError,
    LLMUnavailableError,
)
from resin_core.llm.protocol import Deadline, Message, Reply, Request
from resin_core.llm.streams import closing
from tests.unit.deployments.handles import HANGS, Handle, Method, wrapped

REQUEST = Request(
    messages=(Message(role="user", content="Which?"),), max_tokens=9, json_schema={"type": "object"}, stop=("#",)
)


def config_of(*settings: str) -> Any:
    return load_config(None, ["llm.model=own", *settings], env={})


def model_over(method: Method, *settings: str) -> tuple[EngineChatModel, Handle]:
    handle = Handle(method)
    return EngineChatModel(config_of(*settings).llm, handle), handle


def body(text: str | None) -> str:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"model": "own", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


def event(**value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"


def piece(text: str, finish: str | None = None) -> str:
    return event(model="own", choices=[{"delta": {"content": text}, "finish_reason": finish}])


def refused(code: Any, message: str = "no", **more: Any) -> str:
    return json.dumps({"object": "error", "error": {"message": message, "code": code, **more}})


async def test_a_reply_and_what_was_sent_for_it() -> None:
    method = Method((body("The mill."),))
    model, handle = model_over(method)
    reply = await model.complete(REQUEST)
    assert (reply.text, reply.finish_reason, reply.model) == ("The mill.", "stop", "own")
    assert (reply.usage.llm_calls, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (1, 7, 3)
    ((sent,),) = method.arguments
    assert handle.given == {"stream": True}
    assert sent["messages"] == [{"role": "user", "content": "Which?"}]
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (sent["model"], sent["max_tokens"], sent["stop"], "stream" in sent) == ("own", 9, ["#"], False)


async def test_a_stream_in_whatever_parcels_its_events_come() -> None:
    usage = event(model="own", choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2})
    method = Method((piece("The "), piece("mill") + piece(".", "stop"), usage, "data: [DONE]\n\n"))
    model, _ = model_over(method)
    async with closing(model.stream(REQUEST)) as stream:
        *pieces, reply = [item async for item in stream]
    assert pieces == ["The ", "mill", "."]
    assert isinstance(reply, Reply)
    assert (reply.text, reply.usage.prompt_tokens, reply.usage.completion_tokens) == ("The mill.", 7, 2)
    assert method.arguments[0][0]["stream"] is True
    assert method.cancelled == [False]


async def test_a_stream_that_is_closed_ends_the_generation() -> None:
    method = Method((piece("The "), HANGS))
    model, _ = model_over(method)
    async with closing(model.stream(REQUEST)) as stream:
        assert await anext(stream) == "The "
    assert method.cancelled == [True]


async def test_a_call_that_is_cancelled_ends_the_generation() -> None:
    method = Method((HANGS,))
    model, _ = model_over(method)
    asking = asyncio.create_task(model.complete(REQUEST))
    await method.begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert method.cancelled == [True]


async def test_a_deadline_ends_the_generation() -> None:
    method = Method((HANGS,))
    model, _ = model_over(method)
    with pytest.raises(DeadlineError, match="the hosted model own"):
        await model.complete(REQUEST, Deadline.after(0.02))
    assert method.cancelled == [True]


FAILURES: list[tuple[Any, type[LLMError], str]] = [
    (refused(400, "bad schema"), LLMRequestError, "HTTP 400.*bad schema"),
    (refused(400, "too long", param="input_tokens"), ContextLengthError, "do not fit the context"),
    (refused("engine_failed"), LLMServerError, "HTTP 500"),
    (event(error={"message": "engine is gone", "code": 503}), LLMServerError, "HTTP 503.*engine is gone"),
    (json.dumps({"error": "odd"}), LLMServerError, "odd"),
    (json.dumps({"choices": []}), LLMUnavailableError, "not of the OpenAI API"),
    ("no JSON", LLMUnavailableError, "not of the OpenAI API"),
    (body(None), LLMReplyError, "has no text"),
    (ray.exceptions.ActorDiedError(), LLMUnavailableError, "was lost"),
    (BackPressureError(num_queued_requests=1, max_queued_requests=1), LLMRateLimitError, "max_queued"),
    (wrapped(RuntimeError("out of blocks")), LLMServerError, "out of blocks"),
]


@pytest.mark.parametrize(("step", "kind", "words"), FAILURES)
async def test_what_goes_wrong_has_its_own_kind(step: Any, kind: type[LLMError], words: str) -> None:
    model, _ = model_over(Method((step,)))
    with pytest.raises(kind, match=words):
        await model.complete(REQUEST)


async def test_a_call_that_yields_nothing_is_a_failure() -> None:
    model, _ = model_over(Method(()))
    with pytest.raises(LLMUnavailableError, match="the hosted model own"):
        await model.complete(REQUEST)


async def test_an_error_and_a_loss_in_the_midst_of_a_stream() -> None:
    for step, kind in ((event(error={"message": "gone", "code": 500}), LLMServerError), FAILURES[8][:2]):
        model, _ = model_over(Method((piece("The "), step)))
        pieces = []
        with pytest.raises(kind):
            async with closing(model.stream(REQUEST)) as stream:
                async for item in stream:
                    pieces.append(item)
        assert pieces == ["The "]


async def test_a_stream_that_stops_before_its_end() -> None:
    model, _ = model_over(Method((piece("The "),)))
    with pytest.raises(LLMUnavailableError, match="ended before the reply did"):
        async with closing(model.stream(REQUEST)) as stream:
            assert [item async for item in stream]


async def test_what_is_hosted_is_known_from_the_settings() -> None:
    model, _ = model_over(Method(()), "llm.context_tokens=4096")
    (entry,) = await model.models()
    assert (entry.id, entry.max_model_len) == ("own", 4096)
    await model.aclose()


def test_an_engine_needs_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "find_spec", lambda name: None)
    config = config_of()
    with pytest.raises(ConfigError, match=r"vllm is not installed here; install resin\[gpu\]"):
        engine(config.llm, config.serving)


def test_gpus_of_an_engine_are_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "find_spec", lambda name: object())
    config = config_of("serving.llm.gpus=1")
    with pytest.raises(ConfigError, match=r"serving\.llm\.gpus"):
        engine(config.llm, config.serving)
