"""A question under way: its events go to the client, its end is told once, and no client waits for the audit.

It knows neither HTTP nor what is done with a trace.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from resin_core.llm.streams import closing
from resin_core.records import Answer
from resin_core.strategies.ports import Event
from resin_core.strategies.start import Asked

log = logging.getLogger("resin.running")

CANCELLED = "cancelled"

Finish = Callable[[Asked, str, Answer | None, str], None]


class Running:
    """Runs questions. `finish(asked, index, answer, failure)` is called exactly once for each that has begun.

    It comes after the last event. `failure` is empty when all went well, "cancelled" when the question was stopped
    before its end, else the error. It must not raise.
    """

    def __init__(self, finish: Finish) -> None:
        self._finish = finish
        # The event loop by itself holds tasks weakly.
        self._audits: set[asyncio.Task[None]] = set()

    async def whole(self, asked: Asked, index: str) -> Answer:
        """The answer as soon as it is there; what follows it is done behind it.

        Raises what the events raise. Cancelling it stops the question at once, and with it its model calls.
        """
        async with closing(self.until_answer(asked, index)) as events:
            async for event in events:
                if event.answer is not None:
                    return event.answer
        raise AssertionError("unreachable")

    async def until_answer(self, asked: Asked, index: str) -> AsyncIterator[Event]:
        """The events up to the answer, which is the last; what follows it is done behind it.

        Closing it before the answer stops the question at once. Raises what the events raise.
        """
        events = self.events(asked, index)
        passed_on = False
        try:
            async for event in events:
                if event.answer is not None:
                    # Before the answer is given away: whatever its reader does then, the audit is completed.
                    self._complete(events)
                    passed_on = True
                yield event
                if passed_on:
                    return
        finally:
            if not passed_on:
                await _close(events)

    async def events(self, asked: Asked, index: str) -> AsyncIterator[Event]:
        """All events, those of the audit too; closing it stops the question at once. Raises what the events raise."""
        answer: Answer | None = None
        failure = CANCELLED
        try:
            async with closing(asked.events) as events:
                async for event in events:
                    answer = event.answer or answer
                    yield event
            if answer is None:
                raise RuntimeError(f"the strategy {asked.recorder.strategy} ended without an answer")
            failure = ""
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._finish(asked, index, answer, failure)

    async def end(self, within_s: float = 0.0) -> None:
        """Waits for the audits that are still done, then stops the rest; each question is finished afterwards."""
        if audits := set(self._audits):
            _, late = await asyncio.wait(audits, timeout=within_s)
            for audit in late:
                audit.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _complete(self, events: AsyncIterator[Event]) -> None:
        audit = asyncio.create_task(_take_all(events))
        self._audits.add(audit)
        audit.add_done_callback(self._audits.discard)


async def _take_all(events: AsyncIterator[Event]) -> None:
    try:
        async with closing(events) as rest:
            async for _ in rest:
                pass
    except Exception as error:
        # The answer was given; its trace says what went wrong after it.
        log.warning("an answer's audit failed: %s", type(error).__name__)


async def _close(events: AsyncIterator[Event]) -> None:
    async with closing(events):
        pass
