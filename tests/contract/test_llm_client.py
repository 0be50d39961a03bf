"""One suite over the fake chat model and the real client, then what only HTTP can do to the real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from resin_core.config.sections import LLMSection
from resin_core.errors import (
    ConfigError,
    ContextLengthError,
    DeadlineError,
    LLMError,
    LLMRateLimitError,
    LLMReplyError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    LLMUnavailableError,
)
from resin_core.llm import protocol
from resin_core.llm.build import OpenChatModel, open_chat_model
from resin_core.llm.client import OpenAIChatModel
from resin_core.llm.protocol import ChatModel, Deadline, Message, Request
from tests.scripted_llm import FakeChatModel, Hang, Malformed, Reply, Reset, ScriptedServer, Status

ASK = Request(
    messages=(Message(role="system", content="Be short."), Message(role="user", content="Who owns Acme?")),
    max_tokens=50,
)
KEY = "sk-very-secret-0001"


def settings(**values: Any) -> LLMSection:
    return LLMSection.model_validate(
        {"model": "scripted", "request_timeout_s": 5, "backoff_base_s": 0.01, "max_retries": 3} | values
    )


async def drain(stream: AsyncIterator[Any]) -> list[Any]:
    return [piece async for piece in stream]


# ---- both


@pytest.fixture(params=["fake", "http"])
async def make(request: pytest.FixtureRequest, scripted_llm: ScriptedServer) -> AsyncIterator[Callable[..., ChatModel]]:
    opened: list[OpenAIChatModel] = []

    def make(*actions: Any) -> ChatModel:
        if request.param == "fake":
            return FakeChatModel(*actions)
        scripted_llm.script(*actions)
        opened.append(OpenAIChatModel(settings(), scripted_llm.base_url))
        return opened[-1]

    yield make
    for model in opened:
        await model.aclose()


async def test_a_reply_comes_whole_with_its_usage(make):
    model = make(Reply("Beta owns Acme.", usage=(11, 4)))
    reply = await model.complete(ASK)
    assert (reply.text, reply.finish_reason, reply.model) == ("Beta owns Acme.", "stop", "scripted")
    assert (reply.usage.llm_calls, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (1, 11, 4)
    assert reply.seconds >= 0 and model.model_name == "scripted"


async def test_a_stream_yields_pieces_then_the_same_whole_reply(make):
    text = "Beta owns Acme, since 2019. Größe: 12 €."
    *pieces, last = await drain(make(Reply(text, usage=(11, 4))).stream(ASK))
    assert len(pieces) > 1 and all(isinstance(piece, str) for piece in pieces)
    assert isinstance(last, protocol.Reply) and "".join(pieces) == last.text == text
    assert (last.finish_reason, last.usage.completion_tokens, last.usage.llm_calls) == ("stop", 4, 1)


async def test_missing_usage_counts_no_tokens(make):
    model = make(Reply("some words", usage=False))
    reply = await model.complete(ASK)
    *_, streamed = await drain(model.stream(ASK))
    for one in (reply, streamed):
        assert (one.usage.llm_calls, one.usage.prompt_tokens, one.usage.completion_tokens) == (1, 0, 0)


@pytest.mark.parametrize("mode", ["complete", "stream"])
@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (Status(429, {"retry-after": "2"}), LLMRateLimitError),
        (Status(500), LLMServerError),
        (Status(400), LLMRequestError),
        (Reset(), LLMUnavailableError),
        (Malformed(b"<html>login</html>", "text/html"), LLMUnavailableError),
        (Reply(None), LLMReplyError),
        (Reply(""), LLMReplyError),
    ],
)
async def test_errors_have_their_type(make, mode, action, kind):
    model = make(action)
    with pytest.raises(kind) as caught:
        await (model.complete(ASK) if mode == "complete" else drain(model.stream(ASK)))
    assert type(caught.value) is kind
    if kind is LLMRateLimitError:
        assert caught.value.retry_after_s == 2.0
    if kind is LLMReplyError:
        assert caught.value.reason == "empty" and caught.value.usage.llm_calls == 1


@pytest.mark.parametrize("mode", ["complete", "stream"])
async def test_the_deadline_ends_a_hang(make, mode):
    model = make(Hang())
    started = time.monotonic()
    with pytest.raises(DeadlineError, match="deadline"):
        deadline = Deadline.after(0.2)
        await (model.complete(ASK, deadline) if mode == "complete" else drain(model.stream(ASK, deadline)))
    assert time.monotonic() - started < 2


async def test_a_passed_deadline_makes_no_call(make):
    model = make(Reply("ok"))
    with pytest.raises(DeadlineError):
        await model.complete(ASK, Deadline(time.monotonic() - 1))


async def test_a_stream_that_hangs_ends_at_the_deadline_after_its_pieces(make):
    stream = make(Hang(pieces=2)).stream(ASK, Deadline.after(0.4))
    assert [await anext(stream), await anext(stream)] == ["some ", "words "]
    with pytest.raises(DeadlineError):
        await anext(stream)


async def test_a_stream_cut_in_the_middle_is_an_error_after_its_pieces(make):
    stream = make(Reset(pieces=2)).stream(ASK)
    assert [await anext(stream), await anext(stream)] == ["some ", "words "]
    with pytest.raises(LLMUnavailableError):
        await anext(stream)


async def test_a_stream_that_ends_without_a_finish_is_an_error(make):
    with pytest.raises(LLMUnavailableError, match="ended before the reply"):
        await drain(make(Reply("half of it", finish_reason=None)).stream(ASK))


# ---- only over HTTP


@pytest.fixture
async def client(scripted_llm: ScriptedServer) -> AsyncIterator[OpenAIChatModel]:
    model = OpenAIChatModel(settings(api_key=KEY, request_timeout_s=1), scripted_llm.base_url)
    yield model
    await model.aclose()


@pytest.fixture
async def stack(scripted_llm: ScriptedServer) -> AsyncIterator[OpenChatModel]:
    async with open_chat_model(settings(max_concurrency=2), scripted_llm.base_url) as model:
        yield model


async def test_what_is_sent(client, scripted_llm, monkeypatch):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    await client.complete(
        ASK.model_copy(
            update={
                "json_schema": schema,
                "schema_name": "thing",
                "frequency_penalty": 0.2,
                "stop": ("END",),
                "messages": (Message(role="user", content="lone \ud800 {braces} \x00"),),
            }
        )
    )
    body = scripted_llm.chats[0].body
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "thing", "schema": schema, "strict": True},
    }
    assert (body["seed"], body["temperature"], body["frequency_penalty"]) == (7, 0.0, 0.2)
    assert (body["stop"], body["max_tokens"], body["model"]) == (["END"], 50, "scripted")
    assert body["messages"] == [{"role": "user", "content": "lone \ufffd {braces} \x00"}]
    assert scripted_llm.chats[0].headers["authorization"] == f"Bearer {KEY}"
    await drain(client.stream(ASK))
    plain = scripted_llm.chats[1].body
    assert plain["stream_options"] == {"include_usage": True}
    assert not {"response_format", "frequency_penalty", "stop"} & set(plain)


@pytest.mark.parametrize("key", [None, "", "  "])
async def test_without_a_key_a_placeholder_is_sent_and_nothing_of_the_environment(scripted_llm, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-someone-else")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-someone-else")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-someone-else")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with open_chat_model(settings(api_key=key), scripted_llm.base_url) as model:
        await model.complete(ASK)
    assert "someone-else" not in str(scripted_llm.chats[0].headers)


@pytest.mark.parametrize("mode", ["complete", "stream"])
@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b"[]",
        b'"words"',
        b"null",
        b"",
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{"message": "words"}]}',
        b'{"choices": [{"message": {"content": ["a", "b"]}}]}',
        b"\xff\xfe\x00",
    ],
)
async def test_malformed_replies(client, scripted_llm, mode, body):
    streamed = b"data: " + body + b"\n\ndata: [DONE]\n\n"
    scripted_llm.script(
        Malformed(body) if mode == "complete" else Malformed(streamed, "text/event-stream"),
    )
    with pytest.raises(LLMUnavailableError):
        await (client.complete(ASK) if mode == "complete" else drain(client.stream(ASK)))


async def test_a_reply_cut_in_the_middle(client, scripted_llm):
    scripted_llm.script(Reset(pieces=1))
    with pytest.raises(LLMUnavailableError, match="dropped the connection"):
        await client.complete(ASK)


async def test_a_hang_ends_with_the_requests_time(client, scripted_llm):
    scripted_llm.script(Hang())
    started = time.monotonic()
    with pytest.raises(LLMTimeoutError, match="within 1 s"):
        await client.complete(ASK, Deadline.after(60))
    with pytest.raises(LLMTimeoutError):
        await drain(client.stream(ASK))
    assert 1.8 < time.monotonic() - started < 4
    await scripted_llm.until(lambda: len(scripted_llm.cancelled) == 2)


async def test_a_trickle_is_bounded_as_a_whole(client, scripted_llm):
    scripted_llm.script(Reply("x" * 400, piece_chars=1, piece_s=0.1))
    with pytest.raises(LLMTimeoutError):
        await drain(client.stream(ASK))
    await scripted_llm.until(lambda: scripted_llm.cancelled)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("3", 3, 3),
        ("0.5", 0.5, 0.5),
        ("-4", 0, 0),
        (format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True), 3200, 3601),
        (format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True), 0, 0),
    ],
)
async def test_retry_after_is_read(client, scripted_llm, asked, least, most):
    for status, kind in ((429, LLMRateLimitError), (503, LLMServerError)):
        scripted_llm.script(Status(status, {"Retry-After": asked}))
        with pytest.raises(kind) as caught:
            await client.complete(ASK)
        assert least <= caught.value.retry_after_s <= most


@pytest.mark.parametrize("asked", ["soon", "", "nan", "inf"])
async def test_unreadable_retry_after_is_none(client, scripted_llm, asked):
    scripted_llm.script(Status(429, {"Retry-After": asked} if asked else {}))
    with pytest.raises(LLMRateLimitError) as caught:
        await client.complete(ASK)
    assert caught.value.retry_after_s is None


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "type": "invalid_request_error", "message": "too long"},
        {"code": 400, "type": "exceed_context_size_error", "message": "too long"},
        {"code": 400, "type": "BadRequestError", "param": "input_tokens", "message": "too long"},
    ],
)
async def test_context_overflow(client, scripted_llm, error):
    scripted_llm.script(Status(400, body={"error": error}))
    with pytest.raises(ContextLengthError, match="too long"):
        await client.complete(ASK)
    event = b"data: " + str({"error": error}).replace("'", '"').encode() + b"\n\n"
    scripted_llm.script(Malformed(event, "text/event-stream"))
    with pytest.raises(ContextLengthError):
        await drain(client.stream(ASK))


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b'{"error": {"code": 500, "message": "slot lost"}}', LLMServerError),
        (b'{"error": {"code": 429, "message": "busy"}}', LLMRateLimitError),
        (b'{"error": {"code": 400, "message": "bad"}}', LLMRequestError),
        (b'{"error": {"message": "engine died"}}', LLMServerError),
        (b'{"error": "engine died"}', LLMServerError),
    ],
)
async def test_errors_inside_a_stream(client, scripted_llm, event, kind):
    scripted_llm.script(Malformed(b"data: " + event + b"\n\n", "text/event-stream"))
    with pytest.raises(kind):
        await drain(client.stream(ASK))


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, LLMRequestError, "llm.api_key"),
        (403, LLMRequestError, "llm.api_key"),
        (404, LLMRequestError, "/v1"),
        (408, LLMTimeoutError, "408"),
        (422, LLMRequestError, "422"),
        (599, LLMServerError, "599"),
    ],
)
async def test_statuses_say_what_to_do_and_never_the_key(client, scripted_llm, status, kind, words):
    scripted_llm.script(Status(status, body={"error": {"message": f"bad key {KEY}" + " and more" * 200}}))
    with pytest.raises(kind, match=words) as caught:
        await client.complete(ASK)
    assert KEY not in str(caught.value) and "***" in str(caught.value) and len(str(caught.value)) < 600
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


async def test_an_endpoint_that_is_down():
    model = OpenAIChatModel(settings(), "http://user:password@127.0.0.1:9/v1?token=abc")
    with pytest.raises(LLMUnavailableError, match=r"cannot reach .*http://127\.0\.0\.1:9/v1: ") as caught:
        await model.complete(ASK)
    assert "password" not in str(caught.value) and "abc" not in str(caught.value)
    await model.aclose()


async def test_a_connection_that_is_never_accepted_is_bounded_by_the_connect_timeout(monkeypatch):
    import socket

    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        model = OpenAIChatModel(settings(connect_timeout_s=0.3), url)
        with pytest.raises(LLMUnavailableError, match=r"connect_timeout_s = 0\.3 s"):
            await model.complete(ASK)
        await model.aclose()
        for one in waiting:
            one.close()


@pytest.mark.parametrize("url", ["127.0.0.1:8000/v1", "localhost/v1", "ftp://host/v1", "http://", "http://h:x/v1", ""])
def test_a_url_that_is_none_is_a_config_error(url):
    with pytest.raises(ConfigError, match=r"llm\.base_url"):
        OpenAIChatModel(settings(), url)


@pytest.mark.parametrize("key", ["sk-\nbroken", "clé-secrète", "two words"])
def test_a_key_that_cannot_be_sent_is_a_config_error_without_the_key(key):
    with pytest.raises(ConfigError, match=r"llm\.api_key") as caught:
        OpenAIChatModel(settings(api_key=key), "http://h/v1")
    assert key not in str(caught.value)


# ---- cancellation, seen at the server


async def test_cancelling_a_call_reaches_the_server_at_once(stack, scripted_llm):
    scripted_llm.script(Hang())
    task = asyncio.create_task(stack.complete(ASK))
    await scripted_llm.until(lambda: scripted_llm.in_flight == 1)
    task.cancel()
    at = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    await scripted_llm.until(lambda: scripted_llm.cancelled)
    assert scripted_llm.cancelled[0].ended_s - at < 1
    assert stack.total.errors == {"cancelled": 1}


async def test_closing_a_stream_reaches_the_server_at_once(stack, scripted_llm):
    scripted_llm.script(Reply("word " * 1000, piece_s=0.02))
    stream = stack.stream(ASK)
    assert await anext(stream) == "word wor"
    await stream.aclose()
    at = time.monotonic()
    await scripted_llm.until(lambda: scripted_llm.cancelled)
    assert scripted_llm.cancelled[0].ended_s - at < 1
    assert stack.total.errors == {"cancelled": 1}


async def test_cancelling_the_reader_of_a_stream_reaches_the_server_at_once(stack, scripted_llm):
    scripted_llm.script(Hang(pieces=1))
    task = asyncio.create_task(drain(stack.stream(ASK)))
    await scripted_llm.until(lambda: scripted_llm.in_flight == 1)
    await asyncio.sleep(0.1)
    task.cancel()
    at = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    await scripted_llm.until(lambda: scripted_llm.cancelled)
    assert scripted_llm.cancelled[0].ended_s - at < 1


# ---- the whole stack


async def test_never_more_in_flight_than_allowed_and_slots_come_back(stack, scripted_llm):
    scripted_llm.script(lambda request: Reply("ok", latency_s=0.02))
    await asyncio.gather(*(stack.complete(ASK) for _ in range(10)), *(drain(stack.stream(ASK)) for _ in range(4)))
    assert scripted_llm.max_in_flight == 2 and stack.usage.llm_calls == 14
    # Errors, cancellation and closed streams give their slots back too.
    scripted_llm.script(Status(400))
    await asyncio.gather(*(stack.complete(ASK) for _ in range(4)), return_exceptions=True)
    scripted_llm.script(Hang(pieces=1))
    tasks = [asyncio.create_task(stack.complete(ASK)) for _ in range(4)]
    await scripted_llm.until(lambda: scripted_llm.in_flight == 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    streams = [stack.stream(ASK) for _ in range(2)]
    for stream in streams:
        assert await anext(stream) == "some "
        await stream.aclose()
    scripted_llm.script(Reply("ok"))
    replies = await asyncio.wait_for(asyncio.gather(*(stack.complete(ASK) for _ in range(3))), 5)
    assert [reply.text for reply in replies] == ["ok"] * 3
    assert stack.total.errors == {"LLMRequestError": 4, "cancelled": 6}


async def test_errors_that_pass_are_tried_again(stack, scripted_llm):
    scripted_llm.script(Status(500), Reset(), Status(429, {"retry-after": "0.05"}), Reply("ok"))
    assert (await stack.complete(ASK)).text == "ok"
    assert len(scripted_llm.chats) == 4 and stack.retries == 3 and stack.usage.llm_calls == 1
    scripted_llm.script(Status(503), Reply("streamed"))
    assert (await drain(stack.stream(ASK)))[-1].text == "streamed"
    scripted_llm.script(Status(400), Reply("never"))
    with pytest.raises(LLMRequestError):
        await stack.complete(ASK)
    assert len(scripted_llm.chats) == 7


async def test_a_pause_between_tries_holds_no_slot(scripted_llm):
    first = Request(messages=(Message(role="user", content="first"),), max_tokens=5)
    busy = {"first": Status(429, {"retry-after": "0.5"})}

    def handler(body: dict[str, Any]) -> Any:
        return busy.pop(body["messages"][0]["content"], Reply("ok"))

    scripted_llm.script(handler)
    async with open_chat_model(settings(max_concurrency=1), scripted_llm.base_url) as model:
        task = asyncio.create_task(model.complete(first))
        await scripted_llm.until(lambda: scripted_llm.seen and scripted_llm.seen[0].outcome == "done")
        started = time.monotonic()
        await model.complete(ASK)
        assert time.monotonic() - started < 0.4
        await task


async def test_every_llm_error_of_the_wire_is_typed(stack, scripted_llm):
    """No exception of the SDK or of the HTTP library comes through, whatever the server does."""
    for action in (Reset(), Reset(pieces=2), Malformed(b"{"), Status(418), Status(500, body=b"\xff")):
        scripted_llm.script(action)
        for call in (stack.complete(ASK), drain(stack.stream(ASK))):
            with pytest.raises(LLMError):
                await call
