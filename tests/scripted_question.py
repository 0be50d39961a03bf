"""A question whose events are written down beforehand: what a strategy yields, without any strategy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from resin_core.records import Answer, Citation, Usage
from resin_core.strategies.ports import Event
from resin_core.strategies.recorder import Recorder
from resin_core.strategies.start import Asked

DONE = Event(kind="done")
PLAN = Event(kind="plan")


def token(text: str) -> Event:
    return Event(kind="token", text=text)


def cited(number: int, **fields: Any) -> Citation:
    values: dict[str, Any] = {
        "number": number,
        "passage_id": f"p{number}",
        "doc_id": f"doc {number}",
        "title": f"Title {number}",
        "uri": f"file:///{number}.md",
        "sentence_ids": (f"doc {number}#s{number}",),
        "char_start": 10 * number,
        "char_end": 10 * number + 5,
        "text": f"Sentence {number}.",
    }
    return Citation(**(values | fields))


def answer(text: str, *citations: Citation) -> Answer:
    return Answer(
        question="q",
        answer=text,
        citations=citations,
        evidence=(),
        pool=(),
        strategy="resin",
        generation="g7",
        trace_id="t1",
        usage=Usage(llm_calls=3, prompt_tokens=100, completion_tokens=11),
        timings_s={},
    )


def answered(text: str, *citations: Citation) -> Event:
    return Event(kind="answer", answer=answer(text, *citations))


class Script:
    """Yields the events among its steps, waits for the gates, raises the errors; notes how it ended."""

    def __init__(self, *steps: Event | asyncio.Event | Exception) -> None:
        self._steps = steps
        self.waits, self.closed = asyncio.Event(), asyncio.Event()
        self.cut = False
        self.asked = Asked(self._run(), Recorder("q", "resin", "g7"))

    async def _run(self) -> AsyncIterator[Event]:
        try:
            for step in self._steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, Event):
                    yield step
                else:
                    self.waits.set()
                    await step.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.cut = True
            raise
        finally:
            self.closed.set()


class Finished:
    """Notes what is told of questions at their end."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Answer | None, str]] = []
        self.told = asyncio.Event()

    def __call__(self, asked: Asked, index: str, found: Answer | None, failure: str) -> None:
        self.calls.append((asked.recorder.trace_id, index, found, failure))
        self.told.set()

    @property
    def failures(self) -> list[str]:
        return [failure for *_, failure in self.calls]

    @property
    def answers(self) -> list[str | None]:
        return [None if found is None else found.answer for _, _, found, _ in self.calls]
