"""An OpenAI-compatible HTTP server over loopback that does what a test's handler says.

Written on asyncio streams, so that it can cut, stall and malform at will and sees a client go away at once.
It runs in its own thread and event loop; a test's loop can block without stopping it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.scripted_llm.actions import Action, Handler, Hang, Malformed, Reply, Reset, Status, as_json, handler_of
from tests.scripted_llm.sending import send, send_start, send_stream, send_whole


@dataclass
class Seen:
    """One request as the server saw it. `outcome` is open, done, cut (by the script) or cancelled (by the client)."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    started_s: float
    ended_s: float = 0.0
    outcome: Literal["open", "done", "cut", "cancelled"] = "open"


@dataclass
class ScriptedServer:
    """Start with `with`; `base_url` ends in /v1. `slots` bounds how many requests are worked on at once.

    `handler` and `models` may be changed at any time; times are on the monotonic clock. `port` 0 is any free one.
    """

    handler: Handler = field(default_factory=lambda: handler_of((Reply("ok"),)))
    slots: int | None = None
    latency_s: float = 0.0
    models: Action | list[dict[str, Any]] = field(
        default_factory=lambda: [{"id": "scripted", "object": "model", "max_model_len": 4096}]
    )
    seen: list[Seen] = field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0
    port: int = 0

    def __enter__(self) -> ScriptedServer:
        self._socket = socket.create_server(("127.0.0.1", self.port), backlog=512)
        self.port = self._socket.getsockname()[1]
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="scripted-llm", daemon=True)
        self._thread.start()
        if not self._started.wait(10):
            raise RuntimeError("the scripted server did not start within 10 s")
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def base_url(self) -> str:
        """Root of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def chats(self) -> list[Seen]:
        """The chat requests so far."""
        return [seen for seen in self.seen if seen.path.endswith("/chat/completions")]

    @property
    def cancelled(self) -> list[Seen]:
        """Requests whose client went away before their end."""
        return [seen for seen in self.seen if seen.outcome == "cancelled"]

    def script(self, *actions: Action | Handler) -> None:
        """One handler function, or actions to be taken in turn (the last one repeats)."""
        self.handler = handler_of(actions)

    async def until(self, condition: Callable[[], object], timeout_s: float = 5.0) -> None:
        """Waits, without blocking the test's loop, until the condition holds; AssertionError if it never does."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not so within {timeout_s} s; seen: {self.seen}"
            await asyncio.sleep(0.005)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._slots = asyncio.Semaphore(self.slots) if self.slots else None
        self._tasks: set[asyncio.Task[Any]] = set()
        server = await asyncio.start_server(self._connection, sock=self._socket)
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            early = b""
            while (seen := await self._read(reader, early)) and (early := await self._exchange(seen, reader, writer)):
                early = early[1:]
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, early: bytes) -> Seen | None:
        try:
            head = (early + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Seen(method, path, headers, json.loads(body) if body else {}, time.monotonic())

    async def _exchange(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Answers one request while watching for the client to leave.

        Empty when the connection is over; else one byte, then the first byte of the next request if it came already.
        """
        self.seen.append(seen)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        work = asyncio.ensure_future(self._answer(seen, writer))
        watch = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and watch.exception() is None and watch.result():
                await asyncio.wait({work})
            if not work.done() or isinstance(work.exception(), ConnectionError):
                seen.outcome = "cancelled"
                return b""
            seen.outcome = "done" if work.result() else "cut"
            if not work.result():
                return b""
        finally:
            self.in_flight -= 1
            seen.ended_s = time.monotonic()
            for task in (work, watch):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await task
        return b"+" + (watch.result() if not watch.cancelled() and watch.exception() is None else b"")

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        if seen.path.endswith("/models"):
            models = self.models
            action = models if not isinstance(models, list) else None
            if action is None:
                await send(writer, 200, as_json({"object": "list", "data": models}))
                return True
        elif seen.path.endswith("/chat/completions"):
            action = self.handler(seen.body)
        else:
            action = Status(404, body={"error": {"message": f"no such path: {seen.path}"}})
        if self._slots is None:
            return await self._act(action, seen.body, writer)
        async with self._slots:
            return await self._act(action, seen.body, writer)

    async def _act(self, action: Action, request: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(self.latency_s + getattr(action, "latency_s", 0.0))
        stream = bool(request.get("stream"))
        match action:
            case Reply():
                await (send_stream if stream else send_whole)(action, request, writer)
                return True
            case Status():
                error = {"message": f"scripted status {action.code}", "type": "scripted", "code": action.code}
                body = {"error": error} if action.body is None else action.body
                data = body if isinstance(body, bytes) else as_json(body)
                await send(writer, action.code, data, headers=dict(action.headers))
                return True
            case Malformed():
                await send(writer, 200, action.body, action.content_type)
                return True
            case Hang():
                if action.pieces:
                    await send_start(action.pieces, action.text, stream, writer)
                await asyncio.Event().wait()
            case Reset():
                if action.pieces:
                    await send_start(action.pieces, action.text, stream, writer)
                    # Bytes still in the socket would be thrown away by the reset.
                    await asyncio.sleep(0.05)
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
        return False
