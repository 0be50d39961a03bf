"""Collects the trace of one question."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from resin_core.records import Trace, TraceEvent, Usage
from resin_core.strategies.ports import Call


class Recorder:
    """Events of one question, with times since its start and the usage of all its model calls."""

    def __init__(self, question: str, strategy: str, generation: str) -> None:
        # The hour is for whoever keeps traces: one is found, and old ones are deleted, by the id alone.
        self.trace_id = f"t{datetime.now(UTC):%Y%m%d%H}-{secrets.token_hex(8)}"
        self.question, self.strategy, self.generation = question, strategy, generation
        self.usage = Usage()
        self.timings_s: dict[str, float] = {}
        self._started = time.monotonic()
        self._events: list[TraceEvent] = []

    def now_s(self) -> float:
        """Seconds since the question came."""
        return time.monotonic() - self._started

    def add(
        self, stage: str, started_s: float, data: dict[str, Any], calls: Sequence[Call] = (), failure: str = ""
    ) -> None:
        """One stage's event and one for each model call behind it; `started_s` is on `now_s`'s scale.

        `failure` says why the stage ended early, and is empty when it did not.
        """
        seconds = self.now_s() - started_s
        self.timings_s[stage] = round(self.timings_s.get(stage, 0.0) + seconds, 4)
        at = round(started_s, 4)
        self._events.append(
            TraceEvent(stage=stage, started_s=at, seconds=round(seconds, 4), failure=failure, data=data)
        )
        for call in calls:
            self.usage += call.usage
            self._events.append(
                TraceEvent(
                    stage=f"{stage}.call",
                    started_s=at,
                    seconds=round(call.seconds, 4),
                    prompt_id=call.prompt_id,
                    model=call.model,
                    usage=call.usage,
                    failure=call.failure,
                    data={"reply": call.raw} if call.raw else {},
                )
            )

    def trace(self) -> Trace:
        """Everything so far, in the order of the stages' starts."""
        return Trace(
            trace_id=self.trace_id,
            question=self.question,
            strategy=self.strategy,
            generation=self.generation,
            events=tuple(sorted(self._events, key=lambda event: event.started_s)),
        )
