"""Server-sent events: how one is written, how a silent stream is kept open, and how a client's leaving ends it.

It knows nothing of what the events say.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from resin_core.llm.streams import closing

MEDIA_TYPE: Final = "text/event-stream"
# Caches and buffering proxies would hold events back.
HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
WAITING: Final = b": waiting\n\n"
# For the OpenAPI document of a route that may stream: what one event of the body is.
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            MEDIA_TYPE: {
                "itemSchema": {
                    "type": "object",
                    "properties": {
                        "event": {"type": "string", "description": "What happened; not in the OpenAI dialect."},
                        "data": {"type": "string", "description": "JSON, or the word that ends the stream."},
                    },
                    "required": ["data"],
                }
            }
        }
    }
}

_LINE_END = re.compile(r"\r\n|\r|\n")
# Clients that split lines by Unicode's rules would cut an event here. JSON has them in strings only.
_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}


def event(data: str, name: str = "") -> bytes:
    """One event. `data` is JSON, or a word; every line of it is a data line. Without `name` it is a plain message."""
    lines = "".join(f"data: {line}\n" for line in _LINE_END.split(data.translate(_ESCAPES)))
    return (f"event: {name}\n{lines}\n" if name else f"{lines}\n").encode()


async def kept_alive(source: AsyncIterator[bytes], every_s: float) -> AsyncIterator[bytes]:
    """The source's items, and a comment whenever it has been silent for `every_s` seconds.

    Waiting never disturbs the source; closing this stops it at once, in the midst of its work too.
    """
    async with closing(source):
        waiting: asyncio.Task[bytes | None] | None = None
        try:
            while True:
                waiting = asyncio.create_task(_next(source))
                while not (await asyncio.wait({waiting}, timeout=every_s))[0]:
                    yield WAITING
                item = waiting.result()
                if item is None:
                    return
                yield item
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)


class EventStream(StreamingResponse):
    """A response of server-sent events that closes what it streams, however it ends.

    Starlette leaves that to the garbage collector when the client goes while something is being sent, and when it goes
    before the body was begun.
    """

    def __init__(self, source: AsyncIterator[bytes], origin: AsyncIterator[Any], every_s: float) -> None:
        """`origin` is what `source` reads from: closed as well, since a source that never began does not do it."""
        self._body, self._origin = kept_alive(source, every_s), origin
        super().__init__(self._body, headers=HEADERS, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Sends until the stream or the client's interest ends. Raises what sending and the source raise."""
        tasks = {
            asyncio.create_task(self.stream_response(send)),
            asyncio.create_task(self.listen_for_disconnect(receive)),
        }
        async with closing(self._origin), closing(self._body):
            try:
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Not a task group of anyio's: its cancellation strikes again at every step of the cleaning up.
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()


async def _next(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)
