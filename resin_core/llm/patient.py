"""Calls that outlast an endpoint's bad hours, for work that may wait; a question with a deadline may not.

An endpoint that is down is waited for, one that refuses is asked again later, and a call that fails on its own while
others do not is given up as a bad reply, so that only the part of the document that it was for is lost. How long all
that may go on is not decided here: `Health` says how things stand, and `stop` ends the waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from resin_core.errors import (
    LLMError,
    LLMRateLimitError,
    LLMReplyError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    LLMUnavailableError,
    StoppedError,
)
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request

R = TypeVar("R")

GAVE_UP = "llm-"
"""Reasons of calls that were given up begin so; what they were for is asked again by the next run."""

_FATAL_STATUS = frozenset({401, 402, 403, 404})
_STOPPED = "the run was told to stop while it waited for the model"


class Health:
    """How the endpoint does, as seen by one client. Times are of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.succeeded_s = clock()
        self.failing_since_s: float | None = None
        self.refused_since_s: float | None = None
        self.cause = ""
        self.fatal = ""
        self.gave_up = 0

    def good(self) -> None:
        """A reply came."""
        self.succeeded_s, self.failing_since_s, self.refused_since_s = self._clock(), None, None

    def bad(self, cause: str) -> None:
        """A call or a probe failed."""
        self.cause = cause
        self.failing_since_s = self._clock() if self.failing_since_s is None else self.failing_since_s

    def better(self, cause: str) -> None:
        """What `bad` was told with that cause is over, unless something else went wrong since."""
        if self.cause == cause:
            self.failing_since_s = None

    def refused(self, cause: str) -> None:
        """The endpoint asks for fewer requests: it is there."""
        self.cause, self.failing_since_s = cause, None
        self.refused_since_s = self._clock() if self.refused_since_s is None else self.refused_since_s

    def silent_s(self) -> float:
        """Seconds since the last reply."""
        return self._clock() - self.succeeded_s

    def failing_s(self) -> float:
        """Seconds since the first of the failures that no reply has interrupted."""
        return 0.0 if self.failing_since_s is None else self._clock() - self.failing_since_s

    def refused_s(self) -> float:
        """Seconds since the first of the refusals that no reply has interrupted."""
        return 0.0 if self.refused_since_s is None else self._clock() - self.refused_since_s


class PatientModel:
    """Implements ChatModel over a model with its own short tries.

    `probe` says whether the endpoint answers at all. `attempts` counts a call's own failures (5xx, or no reply in
    time, while a probe is answered); after them, and for a request that is refused as such (4xx), LLMReplyError with a
    reason that begins with GAVE_UP.
    401, 402, 403 and 404 are of the endpoint, not of the call: they set `health.fatal` and are raised as they are.
    """

    def __init__(
        self,
        inner: ChatModel,
        probe: Callable[[], Awaitable[bool]],
        attempts: int,
        pause_s: float = 1.0,
        health: Health | None = None,
    ) -> None:
        self._inner, self._probe, self._attempts, self._pause_s = inner, probe, attempts, pause_s
        self.health = health or Health()
        self._stopped = asyncio.Event()
        self._coming_back: asyncio.Task[None] | None = None

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    def stop(self) -> None:
        """Whatever waits or calls raises StoppedError, now and from now on."""
        self._stopped.set()

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """The reply, however long that takes. Raises StoppedError, LLMReplyError or a fatal LLMRequestError."""
        failures = 0
        while True:
            try:
                reply = await self._unless_stopped(self._inner.complete(request, deadline))
            except LLMReplyError:
                self.health.good()
                raise
            except LLMRateLimitError as error:
                self.health.refused(str(error))
                await self._unless_stopped(asyncio.sleep(max(self._pause_s, error.retry_after_s or 0.0)))
            except LLMUnavailableError as error:
                self.health.bad(str(error))
                await self._unless_stopped(self._until_up())
            except (LLMServerError, LLMTimeoutError) as error:
                self.health.bad(str(error))
                if not await self._unless_stopped(self._asked()):
                    # Nothing answers there: that is not the call's fault.
                    await self._unless_stopped(self._until_up())
                    continue
                failures += 1
                if failures >= self._attempts:
                    raise self._given_up(error, failures) from None
                await self._unless_stopped(asyncio.sleep(self._pause_s))
            except LLMRequestError as error:
                if error.status in _FATAL_STATUS:
                    self.health.fatal = str(error)
                    raise
                raise self._given_up(error, 1) from None
            else:
                self.health.good()
                return reply

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model: whoever reads a stream does not want to wait."""
        async for piece in self._inner.stream(request, deadline):
            yield piece

    def _given_up(self, error: LLMError, tries: int) -> LLMReplyError:
        self.health.gave_up += 1
        status = getattr(error, "status", None)
        reason = f"{GAVE_UP}http-{status}" if status else f"{GAVE_UP}timeout"
        rounds = f" in each of {tries} rounds of tries" if tries > 1 else ""
        return LLMReplyError(reason, f"the call was given up{rounds}: {error}", "")

    async def _asked(self) -> bool:
        return await self._probe()

    async def _until_up(self) -> None:
        """One prober for all that wait."""
        if self._coming_back is None or self._coming_back.done():
            self._coming_back = asyncio.create_task(self._ask_until_up())
        await asyncio.shield(self._coming_back)

    async def _ask_until_up(self) -> None:
        while not self._stopped.is_set():
            await asyncio.sleep(self._pause_s)
            if await self._probe():
                return

    async def _unless_stopped(self, work: Coroutine[Any, Any, R]) -> R:
        if self._stopped.is_set():
            work.close()
            raise StoppedError(_STOPPED)
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise StoppedError(_STOPPED)
            return doing.result()
        finally:
            stopping.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
