"""The same script without HTTP: a chat model in process, for tests whose subject is not the wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from resin_core.errors import (
    DeadlineError,
    LLMError,
    LLMRateLimitError,
    LLMReplyError,
    LLMRequestError,
    LLMServerError,
    LLMUnavailableError,
)
from resin_core.llm import protocol
from resin_core.records import Usage
from tests.scripted_llm.actions import Action, Handler, Hang, Malformed, Reply, Reset, Status, handler_of


class FakeChatModel:
    """Implements ChatModel from actions, as the scripted server does; handlers see the same request dictionary.

    `requests` are those it was asked, in order.
    """

    def __init__(self, *actions: Action | Handler, model_name: str = "scripted") -> None:
        self._handler = handler_of(actions or (Reply("ok"),))
        self.model_name = model_name
        self.requests: list[protocol.Request] = []

    async def complete(self, request: protocol.Request, deadline: protocol.Deadline | None = None) -> protocol.Reply:
        """The next action, as a reply or an error."""
        started = time.monotonic()
        action = await self._begin(request, deadline)
        if not isinstance(action, Reply):
            raise _error(action)
        return self._whole(action, request, started)

    async def stream(
        self, request: protocol.Request, deadline: protocol.Deadline | None = None
    ) -> AsyncIterator[str | protocol.Reply]:
        """The next action, in pieces."""
        started = time.monotonic()
        action = await self._begin(request, deadline)
        if isinstance(action, Hang | Reset):
            for at in range(action.pieces):
                words = action.text.split()
                yield words[at % len(words)] + " "
        if isinstance(action, Hang):
            await self._silence(deadline)
        if not isinstance(action, Reply):
            raise _error(action)
        for piece in action.pieces():
            yield piece
            await asyncio.sleep(action.piece_s)
        if action.finish_reason is None:
            raise LLMUnavailableError("the scripted stream ended before the reply did")
        yield self._whole(action, request, started)

    async def _begin(self, request: protocol.Request, deadline: protocol.Deadline | None) -> Action:
        left = None if deadline is None else deadline.remaining_s()
        self.requests.append(request)
        action = self._handler(request.model_dump(mode="json"))
        latency_s = getattr(action, "latency_s", 0.0)
        if (left is not None and latency_s > left) or (isinstance(action, Hang) and not action.pieces):
            await self._silence(deadline)
        await asyncio.sleep(latency_s)
        return action

    async def _silence(self, deadline: protocol.Deadline | None) -> None:
        await asyncio.sleep(3600.0 if deadline is None else deadline.remaining_s())
        raise DeadlineError("the deadline for this answer passed at the scripted model")

    def _whole(self, action: Reply, request: protocol.Request, started: float) -> protocol.Reply:
        counts = action.counts(request.model_dump(mode="json")) or (0, 0)
        usage = Usage(llm_calls=1, prompt_tokens=counts[0], completion_tokens=counts[1])
        if not action.text:
            raise LLMReplyError("empty", "the scripted reply has no text", "", usage)
        return protocol.Reply(
            text=action.text,
            finish_reason=action.finish_reason or "stop",
            model=self.model_name,
            usage=usage,
            seconds=time.monotonic() - started,
        )


def _error(action: Status | Hang | Reset | Malformed) -> LLMError:
    if not isinstance(action, Status):
        return LLMUnavailableError(f"scripted {type(action).__name__.lower()}")
    message = f"scripted status {action.code}"
    asked = action.headers.get("retry-after")
    if action.code == 429:
        return LLMRateLimitError(message, float(asked) if asked else None)
    if action.code >= 500:
        return LLMServerError(message, action.code, float(asked) if asked else None)
    return LLMRequestError(message, action.code)
