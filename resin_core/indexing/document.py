"""One document, from text to passages, units and rejects: independent of every other (RESIN section 3.3).

Pure but for the model calls. Every claim of a reply becomes a unit, merges into one, or becomes a reject.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from resin_core import ids
from resin_core.config.sections import IndexingSection
from resin_core.errors import ContextLengthError
from resin_core.indexing.carry import Carried, Former, find_carried
from resin_core.indexing.claims import parse_claim
from resin_core.indexing.extract import Extracted, Failure, extract_window, together
from resin_core.indexing.grounding import Grounding, ground
from resin_core.indexing.normalise import build_unit, merge_duplicates
from resin_core.indexing.passages import build_passages, chunks, partition
from resin_core.llm.protocol import ChatModel
from resin_core.prompts.base import shown
from resin_core.prompts.extraction import Line, Span
from resin_core.records import Document, Passage, ReasoningUnit, Reject, Sentence, Usage
from resin_core.text.sentences import split_sentences

_ENDED = re.compile(r"[.!?。！？।؟…:;][\"'”’»)\]*_]*$")
# Nothing else on the line, and more of the text below it.
_LINE_ENDS = re.compile(r"[ \t\r]*\n\s*\S")
_HEADING_CHARS = 90
_RAW_CHARS = 2000


@dataclass
class Indexed:
    """What one document gave. `carried` counts the passages taken over from an earlier extraction."""

    document: Document
    sentences: tuple[Sentence, ...]
    passages: list[Passage] = field(default_factory=list)
    units: list[ReasoningUnit] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    carried: int = 0


@dataclass(frozen=True)
class _Window:
    """Consecutive sentences that one call shows, and how it shows them."""

    sentences: list[Sentence]
    lines: list[Line]


async def index_document(
    document: Document, model: ChatModel, settings: IndexingSection, former: Former | None = None
) -> Indexed:
    """Passages and units of one document. Raises LLMError kinds when the endpoint is down, never for a bad reply.

    With a `former` extraction only what changed is shown to the model; what is carried over: `indexing.carry`. It must
    come from the same model, prompts and settings (`keys.extraction_key`), which is not checked here.
    """
    sentences = split_sentences(document.doc_id, document.text, settings.max_sentence_chars)
    carried = Carried() if former is None else find_carried(former, document, sentences, settings)
    found = Indexed(document, sentences, carried=len(carried.kept))
    found.rejects += [_reject(document, failure) for failure in carried.failures]
    windows = [window for run in carried.rest(sentences) for window in _windows(document.text, run, settings)]
    extracted = await together([_extract(document, window, model, settings) for window in windows])
    spans = carried.spans
    for window, got in zip(windows, extracted, strict=True):
        found.usage += got.usage
        found.rejects += [_reject(document, failure) for failure in got.failures]
        spans += _spans(window, got, settings)
    found.passages = build_passages(document, sentences, spans)
    passage_of = _by_sentence(spans, found.passages)
    units = _ground_all(found, list(zip(windows, extracted, strict=True)), {span.first for span in spans}, passage_of)
    found.units = _in_text_order(carried.units(passage_of), units, found.passages)
    return found


def _windows(text: str, sentences: Sequence[Sentence], settings: IndexingSection) -> list[_Window]:
    """Consecutive runs of nearly equal length, so that no window is a lonely last sentence."""
    cut: list[list[Sentence]] = []
    run: list[Sentence] = []
    size = 0
    most = settings.window_sentences
    if len(sentences) > most:
        most = -(-len(sentences) // -(-len(sentences) // most))
    for sentence in sentences:
        length = sentence.char_end - sentence.char_start
        if run and (len(run) >= most or size + length > settings.window_chars):
            cut.append(run)
            run, size = [], 0
        run.append(sentence)
        size += length
    if run:
        cut.append(run)
    return [_Window(run, _lines(text, run)) for run in cut]


async def _extract(document: Document, window: _Window, model: ChatModel, settings: IndexingSection) -> Extracted:
    lines = window.lines
    try:
        return await extract_window(model, document.title, lines, settings)
    except ContextLengthError as error:
        if len(lines) == 1:
            failure = Failure("extract", "context-length", str(error), lines[0].text[:_RAW_CHARS])
            return Extracted(failures=[failure])
        half = len(lines) // 2
        both = Extracted()
        for part in (slice(None, half), slice(half, None)):
            got = await _extract(document, _Window(window.sentences[part], lines[part]), model, settings)
            both.spans += got.spans
            both.claims += got.claims
            both.failures += got.failures
            both.usage += got.usage
            both.repaired = both.repaired or got.repaired
        return both


def _lines(text: str, window: Sequence[Sentence]) -> list[Line]:
    lines = []
    for sentence in window:
        content = text[sentence.char_start : sentence.char_end]
        lines.append(Line(sentence.number, content, _is_heading(text, sentence)))
    return lines


def _is_heading(text: str, sentence: Sentence) -> bool:
    """A markdown heading, or a short line of its own that does not end as a sentence does."""
    content = text[sentence.char_start : sentence.char_end]
    if content.startswith("#"):
        return True
    alone = _LINE_ENDS.match(text, sentence.char_end) is not None
    return alone and len(content) <= _HEADING_CHARS and _ENDED.search(content) is None and "\n" not in content


def _spans(window: _Window, got: Extracted, settings: IndexingSection) -> list[Span]:
    headings = frozenset(line.number for line in window.lines if line.heading)
    first, last = window.lines[0].number, window.lines[-1].number
    if got.spans:
        return partition(got.spans, first, last, headings)
    pieces = chunks(window.sentences, settings.window_sentences, settings.window_chars)
    return partition(pieces, first, last, headings)


def _by_sentence(spans: Sequence[Span], passages: Sequence[Passage]) -> dict[int, Passage]:
    found: dict[int, Passage] = {}
    for span, passage in zip(sorted(spans), passages, strict=True):
        found.update(dict.fromkeys(range(span.first, span.last + 1), passage))
    return found


def _ground_all(
    found: Indexed, extracted: list[tuple[_Window, Extracted]], starts: set[int], passage_of: dict[int, Passage]
) -> list[ReasoningUnit]:
    document = found.document
    by_number = {sentence.number: sentence for sentence in found.sentences}
    units: list[ReasoningUnit] = []
    for window, got in extracted:
        texts = [(line.number, shown(line.text)) for line in window.lines]
        context = " ".join([shown(document.title), *(text for _, text in texts)])
        for hint, raw in got.claims:
            claim = parse_claim(raw)
            if claim is None:
                found.rejects.append(_reject(document, Failure("parse", "bad-claim", f"sentence {hint}", raw)))
                continue
            result = ground(claim, texts, hint, context, starts)
            if not isinstance(result, Grounding):
                detail = f"sentence {hint}: {result.detail}"
                found.rejects.append(_reject(document, Failure("ground", result.reason, detail, raw)))
                continue
            passage = passage_of[result.start_sentence]
            units.append(build_unit(claim, result, passage, by_number, document.text, got.repaired))
    return merge_duplicates(units, document.text)


def _in_text_order(
    carried: list[ReasoningUnit], units: list[ReasoningUnit], passages: Sequence[Passage]
) -> list[ReasoningUnit]:
    """Both together, passage by passage; either of them alone stays as it is."""
    if not carried or not units:
        return carried or units
    order = {passage.passage_id: place for place, passage in enumerate(passages)}
    return sorted(carried + units, key=lambda unit: order[unit.passage_id])


def _reject(document: Document, failure: Failure) -> Reject:
    raw = failure.raw[:_RAW_CHARS]
    return Reject(
        reject_id="r" + ids.digest((document.doc_id, failure.stage, failure.reason, failure.detail, raw)),
        doc_id=document.doc_id,
        uri=document.uri,
        stage=failure.stage,
        reason=failure.reason,
        detail=failure.detail,
        raw=raw,
    )
