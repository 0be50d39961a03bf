"""A chat model that never calls: it answers from replies already paid for, and notes what is still to be asked.

With it the code that asks one call after the other can be run against an engine that takes thousands of calls at once:
run it, collect `open`, have those answered, run it again with their replies, until nothing is open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from resin_core.errors import ContextLengthError, LLMError, LLMReplyError
from resin_core.llm.kept import call_key
from resin_core.llm.patient import GAVE_UP
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.records import Usage

TOO_LONG = "context_length"
FAILED = "error"
"""Finish reasons of stored refusals; no server uses them. Their text says what went wrong."""


class NotYetError(LLMError):
    """The reply to a request is not there yet; the request is noted in `PendingModel.open`.

    Not in the tree of resin_core.errors: it tells the caller of PendingModel to go on with the next document, and no
    user ever sees it. An LLMError because that is what a ChatModel may raise: code between passes it on unread.
    """


class PendingModel:
    """Implements ChatModel over `replies`, which are keyed by `call_key(model_name, seed, request)`.

    `complete` never suspends. So of calls that a task group starts together every one is noted before the first
    failure cancels the others: one pass over a document finds all its requests that do not wait for each other.
    """

    def __init__(self, model_name: str, seed: int, replies: Mapping[str, Reply]) -> None:
        self.model_name = model_name
        self._seed, self._replies = seed, replies
        self.open: dict[str, Request] = {}

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """The stored reply. Raises NotYetError when there is none, and as `answered` for what is stored."""
        if deadline is not None:
            deadline.remaining_s()
        key = call_key(self.model_name, self._seed, request)
        reply = self._replies.get(key)
        if reply is None:
            self.open[key] = request
            raise NotYetError(f"no reply to prompt {request.prompt_id!r} is stored yet")
        return answered(reply)

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """The stored reply as one piece. Raises as `complete`."""
        reply = await self.complete(request, deadline)
        yield reply.text
        yield reply


class AnsweredModel:
    """Implements ChatModel over another that reads stored replies as they are (KeptModel): its refusals are raised."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner

    @property
    def model_name(self) -> str:
        """Name of the inner model."""
        return self._inner.model_name

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """As the inner model, and raises as `answered`."""
        return answered(await self._inner.complete(request, deadline))

    def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model."""
        return self._inner.stream(request, deadline)


def refusal(finish_reason: str, message: str, model: str) -> Reply:
    """What is stored for a call that the engine refused: `finish_reason` is TOO_LONG or FAILED. It cost no tokens."""
    return Reply(text=message, finish_reason=finish_reason, model=model, usage=Usage(), seconds=0.0)


def answered(reply: Reply) -> Reply:
    """A stored reply as the call itself would have ended.

    Raises ContextLengthError for a prompt that was too long, LLMReplyError("llm-engine") for a call that the engine
    could not answer, and LLMReplyError("empty") for a reply without text.
    """
    if reply.finish_reason == TOO_LONG:
        raise ContextLengthError(reply.text)
    if reply.finish_reason == FAILED:
        raise LLMReplyError(f"{GAVE_UP}engine", reply.text, "", reply.usage)
    if not reply.text:
        raise LLMReplyError("empty", f"the reply has no text (finish_reason {reply.finish_reason})", "", reply.usage)
    return reply
