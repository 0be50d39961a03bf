"""The model's part of indexing one window of sentences: passages and claim lines, in one call or in two.

Knows nothing of grounding or storage. A reply that cannot be used becomes a reject; an endpoint that is down raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from resin_core.config.sections import IndexingSection
from resin_core.errors import LLMReplyError
from resin_core.indexing.passages import partition
from resin_core.llm.context import count_tokens_estimate
from resin_core.llm.protocol import ChatModel, Request
from resin_core.llm.structured import Structured, structured
from resin_core.prompts import extraction as wire
from resin_core.prompts import index_document, passages, units
from resin_core.prompts.base import Prompt
from resin_core.records import Usage

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

# A claim line repeats a good part of its sentence; JSON and passage lines come on top.
_TOKENS_PER_SENTENCE = 30
_TOKENS_BASE = 120


@dataclass(frozen=True)
class Failure:
    """A reply that could not be used, whole or in part."""

    stage: str
    reason: str
    detail: str
    raw: str


@dataclass
class Extracted:
    """What one window gave: spans (none when the model failed), claim lines with their sentence numbers."""

    spans: list[wire.Span] = field(default_factory=list)
    claims: list[tuple[int, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    repaired: bool = False


def prompts_used(settings: IndexingSection) -> dict[str, str]:
    """Prompt names and ids, for manifests and content keys."""
    chosen = (index_document.PROMPT,) if settings.single_call else (passages.PROMPT, units.PROMPT)
    return {prompt.name: prompt.id for prompt in chosen}


async def extract_window(
    model: ChatModel, title: str, lines: Sequence[wire.Line], settings: IndexingSection
) -> Extracted:
    """Passages and claims of one window. Raises LLMError kinds other than LLMReplyError."""
    found = Extracted()
    if all(line.heading for line in lines):
        return found
    if settings.single_call:
        reply = await _ask(
            model,
            found,
            index_document.PROMPT,
            wire.render(title, lines),
            index_document.schema(lines, settings.max_units_per_sentence),
            index_document.IndexReply,
            _cap(lines, settings),
            settings.repair_attempts,
        )
        if reply is not None:
            found.spans, found.claims = wire.spans(reply.passages), wire.claims(reply.units)
        return found
    return await _two_calls(model, title, lines, settings, found)


async def together(work: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    """The results, in order. When one raises, the others are cancelled: nobody would read what they still cost."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _two_calls(
    model: ChatModel, title: str, lines: Sequence[wire.Line], settings: IndexingSection, found: Extracted
) -> Extracted:
    reply = await _ask(
        model,
        found,
        passages.PROMPT,
        wire.render(title, lines),
        passages.schema(lines),
        passages.PassagesReply,
        _TOKENS_BASE + 10 * len(lines),
        settings.repair_attempts,
    )
    if reply is None:
        return found
    headings = frozenset(line.number for line in lines if line.heading)
    found.spans = partition(wire.spans(reply.passages), lines[0].number, lines[-1].number, headings)

    async def units_of(span: wire.Span) -> None:
        inside = [line for line in lines if span.first <= line.number <= span.last]
        if all(line.heading for line in inside):
            return
        got = await _ask(
            model,
            found,
            units.PROMPT,
            wire.render(title, inside),
            units.schema(inside, settings.max_units_per_sentence),
            units.UnitsReply,
            _cap(inside, settings),
            settings.repair_attempts,
        )
        if got is not None:
            found.claims += wire.claims(got.units)

    await together([units_of(span) for span in found.spans])
    found.claims.sort(key=lambda claim: claim[0])
    return found


async def _ask(
    model: ChatModel,
    found: Extracted,
    prompt: Prompt,
    user: str,
    schema: dict[str, Any],
    response_type: type[T],
    max_tokens: int,
    attempts: int,
) -> T | None:
    request = Request(
        messages=prompt.messages(user),
        max_tokens=max_tokens,
        json_schema=schema,
        schema_name=prompt.name,
        prompt_id=prompt.id,
    )
    try:
        got: Structured[T] = await structured(model, request, response_type, attempts=attempts, accept_truncated=True)
    except LLMReplyError as error:
        found.usage += error.usage or Usage()
        found.failures.append(Failure(prompt.name, error.reason, str(error), error.raw))
        return None
    found.usage += got.usage
    found.repaired = found.repaired or got.repaired
    if got.truncated:
        found.failures.append(
            Failure(prompt.name, "truncated", "the reply was cut off; its complete items were kept", got.reply.text)
        )
    return got.value


def _cap(lines: Sequence[wire.Line], settings: IndexingSection) -> int:
    shown = sum(count_tokens_estimate(line.text) for line in lines if not line.heading)
    most = len(lines) * settings.max_units_per_sentence * _TOKENS_PER_SENTENCE
    return _TOKENS_BASE + min(most, 2 * shown + _TOKENS_PER_SENTENCE * len(lines))
