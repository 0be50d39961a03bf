from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deployments.http.sse import WAITING, EventStream, event, kept_alive
from resin_core.llm.streams import closing

LONG_S = 60.0


class Source:
    """Yields the items among its steps, waits for gates, raises errors; notes that it was closed."""

    def __init__(self, *steps: bytes | asyncio.Event | Exception) -> None:
        self._steps = steps
        self.closed, self.waits = asyncio.Event(), asyncio.Event()
        self.begun = False

    async def items(self) -> AsyncIterator[bytes]:
        self.begun = True
        try:
            for step in self._steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, bytes):
                    yield step
                else:
                    self.waits.set()
                    await step.wait()
        finally:
            # Cleaning up takes a few steps, as closing a connection does.
            for _ in range(3):
                await asyncio.sleep(0)
            self.closed.set()


def test_an_event_has_its_name_and_its_data() -> None:
    assert event('{"a": 1}', "plan") == b'event: plan\ndata: {"a": 1}\n\n'
    assert event("[DONE]") == b"data: [DONE]\n\n"


def test_line_ends_in_the_data_do_not_end_the_event() -> None:
    assert event("a\nb\r\nc\rd", "x") == b"event: x\ndata: a\ndata: b\ndata: c\ndata: d\n\n"


@pytest.mark.parametrize("mark", ["\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_json_arrives_whole_with_clients_that_split_lines_by_unicode(mark: str) -> None:
    said = {"text": f"one{mark}two \U0001f600 é"}
    lines = event(json.dumps(said, ensure_ascii=False)).decode().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0].removeprefix("data: ")) == said


async def test_silence_is_filled_and_the_source_is_not_disturbed() -> None:
    gate = asyncio.Event()
    source = Source(b"one", gate, b"two", b"three")
    items = kept_alive(source.items(), 0.01)
    assert await anext(items) == b"one"
    assert [await anext(items) for _ in range(3)] == [WAITING] * 3
    gate.set()
    rest = [item async for item in items]
    assert [item for item in rest if item != WAITING] == [b"two", b"three"]
    assert source.closed.is_set()


async def test_a_source_that_is_not_silent_is_passed_on_alone() -> None:
    source = Source(*(b"%d" % number for number in range(50)))
    assert [item async for item in kept_alive(source.items(), LONG_S)] == [b"%d" % number for number in range(50)]


async def test_the_sources_error_is_raised_after_its_items() -> None:
    items = kept_alive(Source(b"one", ValueError("broken")).items(), LONG_S)
    assert await anext(items) == b"one"
    with pytest.raises(ValueError, match="broken"):
        await anext(items)


async def test_closing_between_items_closes_the_source() -> None:
    source = Source(b"one", b"two")
    async with closing(kept_alive(source.items(), LONG_S)) as items:
        await anext(items)
    assert source.closed.is_set()


async def test_closing_in_silence_closes_the_source() -> None:
    source = Source(asyncio.Event())
    async with closing(kept_alive(source.items(), 0.01)) as items:
        assert await anext(items) == WAITING
    assert source.closed.is_set()


async def test_cancelling_a_wait_closes_the_source() -> None:
    source = Source(asyncio.Event())
    waiting = asyncio.create_task(anext(kept_alive(source.items(), LONG_S), None))
    await source.waits.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert source.closed.is_set()


class Client:
    """The other end of a response; `stuck_after` messages it takes no more, and `leave` is its going away."""

    def __init__(self, stuck_after: int = 1000) -> None:
        self.messages: list[dict[str, Any]] = []
        self.leave, self.stuck = asyncio.Event(), asyncio.Event()
        self._stuck_after = stuck_after

    async def receive(self) -> dict[str, Any]:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.messages) >= self._stuck_after:
            self.stuck.set()
            await asyncio.Event().wait()
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


SCOPE: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.3"}}


def respond(source: Source, client: Client, **scope: Any) -> tuple[asyncio.Task[None], Source]:
    origin = Source(b"first", asyncio.Event())

    async def run() -> None:
        read = origin.items()
        await anext(read)
        await EventStream(source.items(), read, LONG_S)({**SCOPE, **scope}, client.receive, client.send)

    return asyncio.create_task(run()), origin


async def test_a_response_streams_and_then_closes() -> None:
    client = Client()
    source = Source(event("one"), event("two"))
    task, origin = respond(source, client)
    await task
    start, *_, last = client.messages
    headers = dict(start["headers"])
    assert start["status"] == 200
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert (headers[b"cache-control"], headers[b"x-accel-buffering"]) == (b"no-cache", b"no")
    assert client.body == b"data: one\n\ndata: two\n\n"
    assert last["more_body"] is False
    assert source.closed.is_set()
    assert origin.closed.is_set()


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
async def test_a_client_that_leaves_while_the_source_works_closes_it(spec_version: str) -> None:
    client = Client()
    source = Source(event("one"), asyncio.Event(), event("two"))
    task, origin = respond(source, client, asgi={"spec_version": spec_version})
    await source.waits.wait()
    client.leave.set()
    await task
    assert client.body == b"data: one\n\n"
    assert source.closed.is_set()
    assert origin.closed.is_set()


async def test_a_client_that_leaves_while_it_is_sent_to_closes_the_source() -> None:
    client = Client(stuck_after=2)
    source = Source(event("one"), event("two"), event("three"))
    task, origin = respond(source, client)
    await client.stuck.wait()
    client.leave.set()
    await task
    assert source.closed.is_set()
    assert origin.closed.is_set()


async def test_a_client_that_leaves_before_the_body_closes_what_it_would_be_read_from() -> None:
    client = Client(stuck_after=0)
    source = Source(event("one"))
    task, origin = respond(source, client)
    await client.stuck.wait()
    client.leave.set()
    await task
    assert not source.begun
    assert origin.closed.is_set()


@pytest.mark.parametrize("stuck_after", [2, 1000])
async def test_a_cancelled_response_closes_the_source(stuck_after: int) -> None:
    client = Client(stuck_after)
    source = Source(event("one"), event("two"), asyncio.Event())
    task, origin = respond(source, client)
    await (client.stuck if stuck_after == 2 else source.waits).wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.closed.is_set()
    assert origin.closed.is_set()


async def test_an_error_while_streaming_is_raised_after_closing() -> None:
    client = Client()
    source = Source(event("one"), ValueError("broken"))
    task, origin = respond(source, client)
    with pytest.raises(ValueError, match="broken"):
        await task
    assert client.body == b"data: one\n\n"
    assert origin.closed.is_set()
