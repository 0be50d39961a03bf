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
_HEADING_CHARS = 90
_RAW_CHARS = 2000


@dataclass
class Indexed:
    """What one document gave."""

    document: Document
    sentences: tuple[Sentence, ...]
    passages: list[Passage] = field(default_factory=list)
    units: list[ReasoningUnit] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)


async def index_document(document: Document, model: ChatModel, settings: IndexingSection) -> Indexed:
    """Passages and units of one document. Raises LLMError kinds when the endpoint is down, never for a bad reply."""
    sentences = split_sentences(document.doc_id, document.text, settings.max_sentence_chars)
    found = Indexed(document, sentences)
    spans: list[Span] = []
    extracted = await together([_window(document, window, model, settings) for window in _windows(sentences, settings)])
    for window, got in extracted:
        found.usage += got.usage
        found.rejects += [_reject(document, failure) for failure in got.failures]
        spans += _spans(document, window, got, settings)
    found.passages = build_passages(document, sentences, spans)
    _ground_all(found, [(window, got) for window, got in extracted], spans)
    return found


def _windows(sentences: Sequence[Sentence], settings: IndexingSection) -> list[list[Sentence]]:
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
    return cut


async def _window(
    document: Document, window: list[Sentence], model: ChatModel, settings: IndexingSection
) -> tuple[list[Sentence], Extracted]:
    lines = _lines(document.text, window)
    try:
        return window, await extract_window(model, document.title, lines, settings)
    except ContextLengthError as error:
        if len(window) == 1:
            failure = Failure("extract", "context-length", str(error), lines[0].text[:_RAW_CHARS])
            return window, Extracted(failures=[failure])
        half = len(window) // 2
        parts = [await _window(document, part, model, settings) for part in (window[:half], window[half:])]
        both = Extracted()
        for _, got in parts:
            both.spans += got.spans
            both.claims += got.claims
            both.failures += got.failures
            both.usage += got.usage
            both.repaired = both.repaired or got.repaired
        return window, both


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
    alone = text[sentence.char_end :].lstrip(" \t\r")[:1] in ("\n", "") and sentence.char_end < len(text.rstrip())
    return alone and len(content) <= _HEADING_CHARS and _ENDED.search(content) is None and "\n" not in content


def _spans(document: Document, window: list[Sentence], got: Extracted, settings: IndexingSection) -> list[Span]:
    headings = frozenset(line.number for line in _lines(document.text, window) if line.heading)
    first, last = window[0].number, window[-1].number
    if got.spans:
        return partition(got.spans, first, last, headings)
    pieces = chunks(window, settings.window_sentences, settings.window_chars)
    return partition(pieces, first, last, headings)


def _ground_all(found: Indexed, extracted: list[tuple[list[Sentence], Extracted]], spans: list[Span]) -> None:
    document = found.document
    by_number = {sentence.number: sentence for sentence in found.sentences}
    passage_of: dict[int, Passage] = {}
    for span, passage in zip(sorted(spans), found.passages, strict=True):
        passage_of.update(dict.fromkeys(range(span.first, span.last + 1), passage))
    starts = {span.first for span in spans}
    units: list[ReasoningUnit] = []
    for window, got in extracted:
        texts = [(s.number, shown(document.text[s.char_start : s.char_end])) for s in window]
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
    found.units = merge_duplicates(units, document.text)


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
