"""How many calls are in flight at once: more than the server's slots only wait there, and time out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from resin_core.errors import DeadlineError
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing


class LimitedModel:
    """Implements ChatModel: at most `limit` calls of the inner model at once, in the order they came.

    Waiting for a slot is bounded by the deadline (DeadlineError), not by the time of one request. A stream holds its
    slot until it ends or is closed. A slot comes back after errors and cancellation. The limit may change while calls
    run (`resize`); use that, and the counts, in the event loop of the calls.
    """

    def __init__(self, inner: ChatModel, max_concurrency: int) -> None:
        self._inner = inner
        self._limit = _checked(max_concurrency)
        self._slots: _Slots | None = None

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    @property
    def limit(self) -> int:
        """Calls that may run at once."""
        return self._limit

    @property
    def in_use(self) -> int:
        """Calls that run; after a smaller `resize` this may be above the limit for a while."""
        return 0 if self._slots is None or self._slots.loop.is_closed() else self._slots.in_use

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        return 0 if self._slots is None or self._slots.loop.is_closed() else self._slots.waiting

    def resize(self, limit: int) -> None:
        """From now on at most `limit` calls at once; 0 pauses. Raises ValueError below 0.

        A larger limit starts waiting calls, the oldest first. A smaller one stops no running call.
        """
        self._limit = _checked(limit)
        if self._slots is not None:
            self._slots.resize(limit)

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
        slots = self._of_this_loop()
        try:
            async with asyncio.timeout(None if deadline is None else deadline.remaining_s()):
                await slots.acquire()
        except TimeoutError:
            raise DeadlineError(self._too_late()) from None
        try:
            yield
        finally:
            slots.release()

    def _too_late(self) -> str:
        if not self._limit:
            return (
                "the deadline for this answer passed while calls were paused: the share of the model that this process"
                " was given is 0; raise llm.max_concurrency (and the server's slots) or run fewer processes"
            )
        return (
            f"the deadline for this answer passed while all {self._limit} calls of llm.max_concurrency were in use;"
            " raise it (and the server's slots) or strategies.deadline_s"
        )

    def _of_this_loop(self) -> _Slots:
        """A future belongs to one loop, so each loop gets slots of its own."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots.loop is not loop:
            self._slots = _Slots(loop, self._limit)
        return self._slots


class _Slots:
    """A semaphore whose size may change. A slot is counted as used from the moment it is given to a waiter."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self.loop = loop
        self.in_use = 0
        self._limit = limit
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for turn in self._queue)

    def resize(self, limit: int) -> None:
        self._limit = limit
        self._give()

    async def acquire(self) -> None:
        turn = self.loop.create_future()
        self._queue.append(turn)
        self._give()
        try:
            # A turn that is there already is not waited for: as with asyncio's own semaphore, no detour over the loop.
            if not turn.done():
                await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._queue.remove(turn)
            else:
                # Given and cancelled in one step of the loop: the slot goes to the next.
                self.release()
            raise

    def release(self) -> None:
        self.in_use -= 1
        self._give()

    def _give(self) -> None:
        # A loop that was closed with calls still waiting takes no more events.
        while self._queue and self.in_use < self._limit and not self.loop.is_closed():
            turn = self._queue.popleft()
            if not turn.done():
                self.in_use += 1
                turn.set_result(None)


def _checked(limit: int) -> int:
    if limit < 0:
        raise ValueError(f"a limit of {limit} calls makes no sense; give 0 (pause) or more")
    return limit
