"""How many calls are in flight at once: more than the server's slots only wait there, and time out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from resin_core.errors import DeadlineError
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing


class LimitedModel:
    """Implements ChatModel: at most `max_concurrency` calls of the inner model at once, in the order they came.

    Waiting for a slot is bounded by the deadline (DeadlineError), not by the time of one request. A stream holds its
    slot until it ends or is closed. A slot comes back after errors and cancellation.
    """

    def __init__(self, inner: ChatModel, max_concurrency: int) -> None:
        self._inner = inner
        self._max = max_concurrency
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """As the inner model, once a slot is free."""
        async with self._slot(deadline):
            return await self._inner.complete(request, deadline)

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model, once a slot is free."""
        async with self._slot(deadline), closing(self._inner.stream(request, deadline)) as pieces:
            async for piece in pieces:
                yield piece

    @asynccontextmanager
    async def _slot(self, deadline: Deadline | None) -> AsyncIterator[None]:
        slots = self._semaphore()
        try:
            async with asyncio.timeout(None if deadline is None else deadline.remaining_s()):
                await slots.acquire()
        except TimeoutError:
            raise DeadlineError(
                f"the deadline for this answer passed while all {self._max} calls of llm.max_concurrency were in use;"
                " raise it (and the server's slots) or strategies.deadline_s"
            ) from None
        try:
            yield
        finally:
            slots.release()

    def _semaphore(self) -> asyncio.Semaphore:
        """A semaphore belongs to the loop that first waits on it, so each loop gets its own."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = (loop, asyncio.Semaphore(self._max))
        return self._slots[1]
