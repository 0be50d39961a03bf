"""How many requests each name may still make: one token bucket a name. Knows nothing of keys, HTTP or Ray."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable

log = logging.getLogger("resin.rates")

Allow = Callable[[str, int], Awaitable[float]]
"""Counts as RateLimits.allow does, but elsewhere."""

_MINUTE_S = 60.0
# Whoever waits exactly as long as it was told must be let in, whatever the clock rounds.
_SLACK_S = 1e-6
# A shared count that takes longer would hold up answers; for a while after that it is not asked.
_ASK_S, _PAUSE_S = 1.0, 5.0


class RateLimits:
    """Buckets that hold `per_minute` requests and fill up within a minute.

    A name may make `per_minute` requests at once and goes on at that pace: in no minute more than twice as many. What
    is kept are the names of the last two minutes. For one event loop or thread; `clock` counts seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When each bucket is full again; one that is full already is as good as none.
        self._full_at: dict[str, float] = {}
        self._swept_at = clock()

    @property
    def kept(self) -> int:
        """Names that memory is used for."""
        return len(self._full_at)

    def allow(self, name: str, per_minute: int) -> float:
        """Counts one more request and returns 0, or returns the seconds until it may be made and counts nothing.

        Raises ValueError when `per_minute` is less than 1.
        """
        if per_minute < 1:
            raise ValueError(f"per_minute is {per_minute}; it must be at least 1")
        now = self._clock()
        self._sweep(now)
        pace_s = _MINUTE_S / per_minute
        full_at = max(now, self._full_at.get(name, now))
        wait_s = full_at - now - (_MINUTE_S - pace_s)
        if wait_s > _SLACK_S:
            return wait_s
        self._full_at[name] = full_at + pace_s
        return 0.0

    def _sweep(self, now: float) -> None:
        if now - self._swept_at >= _MINUTE_S:
            self._full_at = {name: full_at for name, full_at in self._full_at.items() if full_at > now}
            self._swept_at = now


class SharedRates:
    """A count that several processes share, and this process's own while the shared one fails or there is none.

    A lost count must not refuse answers: until it is back, a name may be used more often than it should.
    """

    def __init__(
        self, shared: Allow | None = None, clock: Callable[[], float] = time.monotonic, ask_s: float = _ASK_S
    ) -> None:
        """`ask_s`: seconds that one question to the shared count may take."""
        self._shared, self._clock, self._ask_s = shared, clock, ask_s
        self._own = RateLimits(clock)
        self._lost, self._ask_again_at = False, -math.inf

    async def allow(self, name: str, per_minute: int) -> float:
        """As RateLimits.allow."""
        wait_s = await self._ask(name, per_minute)
        return self._own.allow(name, per_minute) if wait_s is None else wait_s

    async def _ask(self, name: str, per_minute: int) -> float | None:
        """What the shared count says; None when it says nothing."""
        if self._shared is None or self._clock() < self._ask_again_at:
            return None
        try:
            async with asyncio.timeout(self._ask_s):
                wait_s = float(await self._shared(name, per_minute))
            if not math.isfinite(wait_s):
                raise ValueError(f"{wait_s} is no number of seconds")
        except Exception as error:
            self._ask_again_at = self._clock() + _PAUSE_S
            if not self._lost:
                self._lost = True
                log.warning(
                    "the shared count of requests does not answer (%s); until it does, each replica counts for itself",
                    type(error).__name__,
                )
            return None
        if self._lost:
            self._lost = False
            log.info("the shared count of requests answers again")
        return wait_s
