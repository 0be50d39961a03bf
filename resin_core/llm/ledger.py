"""What the calls cost: counts, tokens, seconds and errors, in all and by prompt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from pydantic import Field

from resin_core.errors import LLMReplyError
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing
from resin_core.records import Record, Usage


class Tally(Record):
    """Sums over finished calls. `seconds` are of waiting, over all calls; `errors` counts by the error's type name.

    Calls that were cancelled or closed early count under "cancelled"; the tokens they cost are not known.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    errors: dict[str, int] = Field(default_factory=dict)

    def plus(self, usage: Usage, seconds: float, error: str) -> Tally:
        """With one more call; `error` is empty when it went well."""
        errors = dict(self.errors)
        if error:
            errors[error] = errors.get(error, 0) + 1
        return Tally(
            calls=self.calls + 1,
            prompt_tokens=self.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.completion_tokens + usage.completion_tokens,
            seconds=self.seconds + seconds,
            errors=errors,
        )


class LedgerModel:
    """Implements ChatModel: counts what passes. A call that a wrapper inside tried again counts once."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner
        self._total = Tally()
        self._by_prompt: dict[str, Tally] = {}

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    @property
    def usage(self) -> Usage:
        """Calls and tokens so far."""
        return Usage(
            llm_calls=self._total.calls,
            prompt_tokens=self._total.prompt_tokens,
            completion_tokens=self._total.completion_tokens,
        )

    @property
    def total(self) -> Tally:
        """All calls so far."""
        return self._total

    @property
    def by_prompt(self) -> dict[str, Tally]:
        """Calls so far by `prompt_id`."""
        return dict(self._by_prompt)

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """As the inner model."""
        with self._entry(request) as costs:
            reply = await self._inner.complete(request, deadline)
            costs.append(reply.usage)
        return reply

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model; `seconds` include the time the reader of the stream takes."""
        with self._entry(request) as costs:
            async with closing(self._inner.stream(request, deadline)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        costs.append(piece.usage)
                    yield piece

    @contextmanager
    def _entry(self, request: Request) -> Iterator[list[Usage]]:
        started = time.monotonic()
        costs: list[Usage] = []
        error = ""
        try:
            yield costs
        except (asyncio.CancelledError, GeneratorExit):
            # A reader that stops after the last piece has had a whole call.
            error = "" if costs else "cancelled"
            raise
        except Exception as failure:
            error = type(failure).__name__
            if isinstance(failure, LLMReplyError) and failure.usage is not None:
                costs.append(failure.usage)
            raise
        finally:
            seconds = time.monotonic() - started
            usage = sum(costs, Usage())
            self._total = self._total.plus(usage, seconds, error)
            before = self._by_prompt.get(request.prompt_id, Tally())
            self._by_prompt[request.prompt_id] = before.plus(usage, seconds, error)
