"""Replies that are kept: a call that was paid for is not made again, whatever became of the process that made it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from resin_core.errors import DeadlineError, LLMReplyError
from resin_core.ids import digest
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing
from resin_core.records import Usage

_log = logging.getLogger(__name__)
_EMPTY = "empty"


class ReplyStore(Protocol):
    """Where replies lie, by `call_key`. Implementations bound their own waits."""

    async def get(self, key: str) -> Reply | None:
        """The reply, or None. An error counts as None: the call is made again."""
        ...

    async def put(self, key: str, reply: Reply) -> None:
        """Durable once it returns; putting a key again is harmless. Raises StoreError."""
        ...


def call_key(model: str, seed: int, request: Request) -> str:
    """32 hex digits of all that shapes the reply.

    A schema counts with the order of its keys: servers make a reply's fields in the order of the schema's properties.
    """
    schema = "" if request.json_schema is None else _json([request.schema_name, request.json_schema])
    parts = (
        model,
        str(int(seed)),
        request.prompt_id,
        _json([[message.role, message.content] for message in request.messages]),
        str(request.max_tokens),
        schema,
        repr(float(request.temperature)),
        repr(float(request.frequency_penalty)),
        _json(request.stop),
    )
    return digest(parts, 32)


class KeptModel:
    """Implements ChatModel: replies come from `store` where it has them; new ones are put there before they are given.

    A reply that this caller did not pay for has an empty usage and takes 0 s: a stored one (`hits`), and one of a call
    shared with an equal call that was under way (`shared`). The inner call ends when the last of its waiters is gone;
    once its reply has come, that waiter stays until the reply is put. A reply without text (LLMReplyError "empty") was
    paid for too, and is kept as a Reply whose text is "". `seed` is the one the inner model sends. Use it in one event
    loop; it belongs outside of limit, retry and ledger, which then see paid calls only.
    """

    def __init__(self, inner: ChatModel, store: ReplyStore, seed: int) -> None:
        self._inner, self._store, self._seed = inner, store, seed
        self._calls: dict[str, _Call] = {}
        self._warned = False
        self.hits = 0
        self.shared = 0

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """The kept reply, or the inner model's. Raises as the inner model, and StoreError when a reply cannot be kept.

        A read of the store that fails is a miss.
        """
        key = call_key(self.model_name, self._seed, request)
        while True:
            call = self._calls.get(key)
            if call is None or call.leaving or call.task.done():
                call = self._begin(key, request, deadline)
            try:
                outcome = await self._outcome(call, deadline)
            except DeadlineError:
                if call.deadline is None or not _sooner(call.deadline, deadline):
                    raise
                # The shared call was bound by another caller's deadline, and this one has time left.
                continue
            return self._given(call, outcome)

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model; nothing is kept."""
        async with closing(self._inner.stream(request, deadline)) as pieces:
            async for piece in pieces:
                yield piece

    def _begin(self, key: str, request: Request, deadline: Deadline | None) -> _Call:
        call = _Call(deadline)
        call.task = asyncio.create_task(self._fetch(call, key, request))
        self._calls[key] = call

        def over(_: asyncio.Task[_Outcome]) -> None:
            if self._calls.get(key) is call:
                del self._calls[key]

        call.task.add_done_callback(over)
        return call

    async def _outcome(self, call: _Call, deadline: Deadline | None) -> _Outcome:
        """Waits for the call, for no longer than the caller's own deadline."""
        bound_s = deadline.remaining_s() if deadline is not None and _sooner(deadline, call.deadline) else None
        call.waiters += 1
        try:
            await asyncio.wait({call.task}, timeout=bound_s)
        finally:
            call.waiters -= 1
            if not call.waiters and not call.task.done():
                await _leave(call)
        if not call.task.done() or (call.leaving and call.task.cancelled()):
            raise DeadlineError(
                "the deadline for this answer passed while waiting for an equal call to the model;"
                " raise strategies.deadline_s"
            )
        return call.task.result()

    async def _fetch(self, call: _Call, key: str, request: Request) -> _Outcome:
        stored = await self._stored(key)
        if stored is not None:
            return _Outcome(stored, True, None)
        started = time.monotonic()
        empty: LLMReplyError | None = None
        try:
            reply = await self._inner.complete(request, call.deadline)
        except LLMReplyError as error:
            if error.reason != _EMPTY:
                raise
            empty = error
            reply = Reply(
                text="",
                finish_reason=_EMPTY,
                model=self.model_name,
                usage=error.usage or Usage(llm_calls=1),
                seconds=time.monotonic() - started,
            )
        call.putting = True
        await self._store.put(key, reply)
        return _Outcome(reply, False, empty)

    async def _stored(self, key: str) -> Reply | None:
        try:
            return await self._store.get(key)
        except Exception as error:
            if not self._warned:
                self._warned = True
                _log.warning("kept replies cannot be read, so their calls are made again: %s", error)
            return None

    def _given(self, call: _Call, outcome: _Outcome) -> Reply:
        """The reply for one of the waiters: the first of a paid call carries its cost, the others none."""
        if not outcome.stored and not call.charged:
            call.charged = True
            if outcome.empty is not None:
                raise outcome.empty
            return outcome.reply
        if outcome.stored:
            self.hits += 1
        else:
            self.shared += 1
        if not outcome.reply.text:
            raise LLMReplyError(_EMPTY, f"the kept reply of {outcome.reply.model} has no text", "", Usage())
        return outcome.reply.model_copy(update={"usage": Usage(), "seconds": 0.0})


class _Outcome(NamedTuple):
    reply: Reply
    stored: bool
    empty: LLMReplyError | None


class _Call:
    """One fetch under way and who waits for it."""

    task: asyncio.Task[_Outcome]

    def __init__(self, deadline: Deadline | None) -> None:
        self.deadline = deadline
        self.waiters = 0
        self.putting = False
        self.leaving = False
        self.charged = False


async def _leave(call: _Call) -> None:
    """The last waiter goes: the call is cancelled, or its reply, which was paid for, is put first."""
    if not call.putting:
        call.leaving = True
        call.task.cancel()
    await asyncio.wait({call.task})
    # Asked for even when it is not told: asyncio complains of errors that nobody looked at.
    error = None if call.task.cancelled() else call.task.exception()
    if error is not None and call.putting and not call.waiters:
        _log.warning("a reply that was paid for could not be kept: %s", error)


def _sooner(one: Deadline, other: Deadline | None) -> bool:
    return other is None or one.at_s < other.at_s


def _json(value: object) -> str:
    """ASCII, so that lone surrogates have a form, and no separator of `digest` can stand in it."""
    return json.dumps(value, separators=(",", ":"))
