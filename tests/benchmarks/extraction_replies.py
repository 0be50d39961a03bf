"""The forms of an extraction reply that `extraction_forms` compares: the product's two, and two with the same rules
and examples but claims written in another way.

Each is an async function of (model, title, lines, indexing settings) that gives what one window gave, with every claim
as a line of the product's and the number of the sentence that it came with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field
from rapidfuzz import fuzz

from resin_core.config import IndexingSection
from resin_core.indexing import extract
from resin_core.indexing.extract import Extracted, Failure
from resin_core.llm.context import count_tokens_estimate
from resin_core.llm.protocol import ChatModel
from resin_core.prompts import extraction as wire
from resin_core.prompts import index_document, passages, units
from resin_core.prompts.base import Prompt, WireReply, fields, shown

Lines = Sequence[wire.Line]
Claims = Mapping[str, Sequence[str]]
Ask = Callable[[ChatModel, str, Lines, IndexingSection], Awaitable[Extracted]]

MIN_QUOTE_RATIO = 90.0
KEYS = ("kind", "subject", "property", "value", "limits")
_REQUIRED = 4


class Form(NamedTuple):
    """One way of asking, and the prompts it sends."""

    ask: Ask
    prompts: tuple[Prompt, ...]


async def with_numbers(model: ChatModel, title: str, lines: Lines, settings: IndexingSection) -> Extracted:
    """The product's one call: claim lines under sentence numbers, and passages."""
    return await extract.extract_window(model, title, lines, settings.model_copy(update={"single_call": True}))


async def with_two_calls(model: ChatModel, title: str, lines: Lines, settings: IndexingSection) -> Extracted:
    """The product's two calls: passages, then the claims of each."""
    return await extract.extract_window(model, title, lines, settings.model_copy(update={"single_call": False}))


# Claims that quote their sentence


def quoted(text: str, claims: Claims) -> list[str]:
    """Claim lines under sentence numbers as one list of lines that end with their sentence."""
    rows = (row.removeprefix("[").partition("] ") for row in text.splitlines() if row.startswith("["))
    sentences = {number: sentence for number, _, sentence in rows}
    return [f"{claim} | {sentences[number]}" for number, lines in claims.items() for claim in lines]


QUOTES = Prompt(
    name="quotes",
    system=index_document.PROMPT.system + '\nHere "units" is one list for all sentences, and each claim line ends '
    'with " | " and the sentence that states it, copied word for word.',
    examples=tuple(
        (text, wire.compact({"units": quoted(text, claims), "passages": spans}))
        for text, claims, spans in (
            (wire.PUMP, wire.PUMP_UNITS, wire.PUMP_PASSAGES),
            (wire.BARLEY, wire.BARLEY_UNITS, wire.BARLEY_PASSAGES),
        )
    ),
)


class QuotesReply(WireReply):
    """Claim lines that end with a quote, and passage lines."""

    units: list[str]
    passages: list[str] = Field(default_factory=list)


async def with_quotes(model: ChatModel, title: str, lines: Lines, settings: IndexingSection) -> Extracted:
    """Claims under no number; that of each is found by its quote, or the claim fails (align, quote-not-found)."""
    most = settings.max_units_per_sentence
    stating = [line for line in lines if not line.heading]
    claims = {"type": "array", "minItems": 1, "maxItems": most * len(stating), "items": {"type": "string"}}
    longer = most * sum(count_tokens_estimate(line.text) for line in stating)
    found, reply = await _asked(model, title, lines, settings, QUOTES, claims, QuotesReply, longer)
    if reply is None:
        return found
    found.spans = wire.spans(reply.passages)
    texts = [(line.number, shown(line.text)) for line in lines]
    for row in reply.units:
        *claim, quote = fields(row)
        # With a part less the last one is the value: it would be found, and the claim be without it.
        number = find_quote(quote, texts) if len(claim) >= _REQUIRED else None
        if number is None:
            found.failures.append(Failure("align", "quote-not-found", quote, row))
        else:
            found.claims.append((number, " | ".join(claim)))
    return found


def find_quote(quote: str, sentences: Sequence[tuple[int, str]]) -> int | None:
    """Number of the sentence that the middle of the quote is in, or None.

    Where the quote stands exactly, else where it stands nearly (rapidfuzz's partial_ratio of at least 90).
    """
    quote = shown(quote).strip("\"“”'… ")
    if not any(map(str.isalnum, quote)):
        return None
    joined = " ".join(text for _, text in sentences)
    at = joined.find(quote)
    middle = at + len(quote) // 2
    if at < 0:
        nearest = fuzz.partial_ratio_alignment(quote, joined, score_cutoff=MIN_QUOTE_RATIO)
        if nearest is None:
            return None
        middle = (nearest.dest_start + nearest.dest_end) // 2
    end = 0
    for number, text in sentences:
        end += len(text) + 1
        if middle < end:
            return number
    return None


# Claims as objects


def as_object(claim: str) -> dict[str, str]:
    """A claim line as an object."""
    return dict(zip(KEYS, fields(claim), strict=False))


def as_line(claim: Mapping[str, str]) -> str:
    """A claim object as a claim line; what the object lacks is empty, and fails when the line is parsed."""
    return " | ".join(claim.get(key, "").replace("|", "/") for key in KEYS).removesuffix(" | ")


OBJECTS = Prompt(
    name="objects",
    system=index_document.PROMPT.system + '\nHere each claim is no line but a JSON object with the keys "kind", '
    '"subject", "property", "value" and, where the sentence limits the claim, "limits".',
    examples=tuple(
        (
            text,
            wire.compact({"units": {n: [as_object(c) for c in rows] for n, rows in claims.items()}, "passages": spans}),
        )
        for text, claims, spans in (
            (wire.PUMP, wire.PUMP_UNITS, wire.PUMP_PASSAGES),
            (wire.BARLEY, wire.BARLEY_UNITS, wire.BARLEY_PASSAGES),
        )
    ),
)


class ObjectsReply(WireReply):
    """Claim objects by sentence number, and passage lines."""

    units: dict[str, list[dict[str, str]]]
    passages: list[str] = Field(default_factory=list)


async def with_objects(model: ChatModel, title: str, lines: Lines, settings: IndexingSection) -> Extracted:
    """Claim objects under sentence numbers, made into lines for the product's parser."""
    most = settings.max_units_per_sentence
    item = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in KEYS},
        "required": list(KEYS[:_REQUIRED]),
        "additionalProperties": False,
    }
    rows = {"type": "array", "minItems": 1, "maxItems": most, "items": item}
    claims = wire.units_schema(lines, most)
    claims |= {"properties": dict.fromkeys(claims["required"], rows)}
    longer = most * len(lines) * count_tokens_estimate(wire.compact(dict.fromkeys(KEYS, "")))
    found, reply = await _asked(model, title, lines, settings, OBJECTS, claims, ObjectsReply, longer)
    if reply is not None:
        found.spans = wire.spans(reply.passages)
        found.claims = wire.claims({number: [as_line(one) for one in got] for number, got in reply.units.items()})
    return found


async def _asked(
    model: ChatModel,
    title: str,
    lines: Lines,
    settings: IndexingSection,
    prompt: Prompt,
    claims: dict[str, Any],
    response_type: type[extract.T],
    longer: int,
) -> tuple[Extracted, extract.T | None]:
    """The product's call with `claims` as the schema of "units" and room for `longer` more tokens."""
    found = Extracted()
    if all(line.heading for line in lines):
        return found, None
    schema = index_document.schema(lines, settings.max_units_per_sentence)
    schema |= {"properties": schema["properties"] | {"units": claims}}
    cap = extract._cap(lines, settings) + longer
    text, tries = wire.render(title, lines), settings.repair_attempts
    return found, await extract._ask(model, found, prompt, text, schema, response_type, cap, tries)


FORMS: Mapping[str, Form] = {
    "numbers": Form(with_numbers, (index_document.PROMPT,)),
    "two-calls": Form(with_two_calls, (passages.PROMPT, units.PROMPT)),
    "quotes": Form(with_quotes, (QUOTES,)),
    "objects": Form(with_objects, (OBJECTS,)),
}
