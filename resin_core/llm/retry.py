"""Further tries after errors that may pass, decided by the error's type alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

from resin_core.config.sections import LLMSection
from resin_core.errors import DeadlineError, LLMError
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing


class RetryingModel:
    """Implements ChatModel: up to `settings.max_retries` further tries of calls whose error is `retryable`.

    Pauses grow from `backoff_base_s` with full jitter (a random share of the doubled pause, so that callers that
    failed together do not come back together), up to `backoff_max_s`. A server's Retry-After is waited for; one that is
    longer than `backoff_max_s` ends the tries at once, with the error. A pause that would pass the deadline is not
    begun: DeadlineError. A stream is tried again only while it has yielded nothing.
    """

    def __init__(self, inner: ChatModel, settings: LLMSection) -> None:
        self._inner = inner
        self._settings = settings
        self.retries = 0

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """As the inner model; the last error says how many tries were made."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self._inner.complete(request, deadline)
            except LLMError as error:
                pause_s = self._pause_s(error, tries, deadline)
            await self._rest(pause_s)

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model."""
        tries = 0
        while True:
            tries += 1
            begun = False
            try:
                async with closing(self._inner.stream(request, deadline)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except LLMError as error:
                if begun:
                    raise
                pause_s = self._pause_s(error, tries, deadline)
            await self._rest(pause_s)

    async def _rest(self, pause_s: float) -> None:
        self.retries += 1
        await asyncio.sleep(pause_s)

    def _pause_s(self, error: LLMError, tries: int, deadline: Deadline | None) -> float:
        """Seconds until the next try, or raises `error` (its message completed) or DeadlineError."""
        if not error.retryable:
            raise error
        if tries > self._settings.max_retries:
            raise _completed(error, f"gave up after {tries} {'try' if tries == 1 else 'tries'}")
        longest = self._settings.backoff_max_s
        # The power is capped so that it cannot overflow; the pause has reached its limit long before.
        ceiling = min(longest, self._settings.backoff_base_s * 2.0 ** min(tries - 1, 30))
        pause_s = random.uniform(0.0, ceiling)  # noqa: S311 - spreads load, guards nothing
        asked = getattr(error, "retry_after_s", None)
        if asked is not None:
            if asked > longest:
                raise _completed(
                    error,
                    f"it asks to wait {asked:.0f} s, longer than llm.backoff_max_s = {longest:g} s;"
                    f" gave up after {tries} {'try' if tries == 1 else 'tries'}",
                )
            pause_s = max(pause_s, asked)
        if deadline is not None and pause_s >= deadline.remaining_s():
            raise DeadlineError(
                f"the deadline for this answer leaves no time for another try (made: {tries}); last error: {error};"
                " raise strategies.deadline_s"
            ) from error
        return pause_s


def _completed(error: LLMError, ending: str) -> LLMError:
    """The same error, so that its type and attributes stay, with more to its message."""
    error.args = (f"{error} ({ending})", *error.args[1:])
    return error
