"""What of an earlier extraction still holds for a changed, renamed or moved document, so that it is not paid twice.

A passage is carried when its text stands unchanged in the new text, over whole sentences of the new split and in the
old order. Ids and offsets are made for the new document, as a fresh extraction would make them; what the model said
stays: a passage's entity, type, focus and role, a unit's claim, and what was read for it from other parts of the old
text, such as aliases ("Full Name (FN)"). A passage is read again when a claim of it has a name or number that only its
neighbours said, and near it the new text no longer says it ("It has three pumps", when "it" is now another station).

Work that failed is done again: when a model call for the former document failed, its remainder passages are not carried
(sentences that the failed call was to read), nor, when a call for units alone failed, passages without units. A call
whose reply was cut off counts as failed.

Rejects name no passage. They are kept, for the new document's id, when both texts consist of the same carried passages;
otherwise none is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from resin_core.config.sections import IndexingSection
from resin_core.indexing.align import in_order
from resin_core.indexing.extract import Failure
from resin_core.indexing.matching import missing, source
from resin_core.indexing.normalise import unit_id
from resin_core.indexing.words import content, tokens
from resin_core.prompts import index_document, passages, units
from resin_core.prompts.extraction import Span
from resin_core.records import Document, Passage, ReasoningUnit, Reject, Sentence
from resin_core.text.sentences import split_sentences

_CALL_STAGES: Final = frozenset({"extract", index_document.PROMPT.name, passages.PROMPT.name, units.PROMPT.name})
# Other stages, such as reading, are not indexing's to keep.
_STAGES: Final = _CALL_STAGES | {"parse", "ground"}


@dataclass(frozen=True)
class Former:
    """An earlier extraction: of the same document, or of another with nearly the same text (a moved file)."""

    document: Document
    passages: tuple[Passage, ...]
    units: tuple[ReasoningUnit, ...]
    rejects: tuple[Reject, ...] = ()


@dataclass(frozen=True)
class Kept:
    """A former passage that stands in the new document at `span`."""

    span: Span
    passage: Passage


@dataclass(frozen=True)
class Carried:
    """Passages in document order; their units, as they were and in the order they had; rejects that still hold."""

    kept: tuple[Kept, ...] = ()
    former_units: tuple[ReasoningUnit, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def spans(self) -> list[Span]:
        """Places of the carried passages in the new document."""
        return [kept.span for kept in self.kept]

    def rest(self, sentences: Sequence[Sentence]) -> list[list[Sentence]]:
        """Runs of consecutive sentences that no carried passage covers. `sentences` are the new document's."""
        runs = []
        at = 0
        for kept in self.kept:
            runs.append(list(sentences[at : kept.span.first - 1]))
            at = kept.span.last
        runs.append(list(sentences[at:]))
        return [run for run in runs if run]

    def units(self, passage_of: Mapping[int, Passage]) -> list[ReasoningUnit]:
        """The carried units in the new document; `passage_of` gives its passages by sentence number."""
        places = {kept.passage.passage_id: (kept.passage, passage_of[kept.span.first]) for kept in self.kept}
        return [_moved(unit, *places[unit.passage_id]) for unit in self.former_units]


def find_carried(
    former: Former, document: Document, sentences: Sequence[Sentence], settings: IndexingSection
) -> Carried:
    """The former's passages that hold for `document`, of which `sentences` is the split.

    Time is O(n log n) in the sentences of both texts. A former passage that is not whole sentences of the former text
    as it is split now, or has a unit whose quote is not in its place, is not carried.
    """
    before, after = _Text(former.document, _split(former, document, sentences, settings)), _Text(document, sentences)
    aligned = in_order(before.contents, after.contents)
    starts = {sentence.char_start: i for i, sentence in enumerate(before.sentences)}
    ends = {sentence.char_end: i for i, sentence in enumerate(before.sentences)}
    units_of = defaultdict(list)
    for unit in former.units:
        units_of[unit.passage_id].append(unit)
    failed = {reject.stage for reject in former.rejects if reject.doc_id == former.document.doc_id} & _CALL_STAGES
    kept: list[Kept] = []
    free = 0
    for passage in sorted(former.passages, key=lambda p: p.char_start):
        first, last = starts.get(passage.char_start), ends.get(passage.char_end)
        mine = tuple(units_of[passage.passage_id])
        if first is None or last is None or len(passage.sentence_ids) != last - first + 1:
            continue
        if (failed and not passage.semantic) or (units.PROMPT.name in failed and not mine):
            continue
        start = _place(passage.text, aligned, (first, last), free, after)
        if start is None or not _quotes_stand(passage, mine, after.text, after.sentences[start].char_start):
            continue
        end = start + last - first
        near = before.around(first, last, settings), after.around(start, end, settings)
        if not _still_said(mine, *near, f"{former.document.title} {document.title}"):
            continue
        kept.append(Kept(_span(passage, start + 1, end + 1), passage))
        free = end + 1
    carried = {one.passage.passage_id for one in kept}
    mine = tuple(unit for unit in former.units if unit.passage_id in carried)
    return Carried(tuple(kept), mine, _failures(former, kept, sentences))


class _Text:
    """A document's text by its sentences; indexes count from 0."""

    def __init__(self, document: Document, sentences: Sequence[Sentence]) -> None:
        self.text, self.sentences = document.text, sentences
        self.contents = [document.text[s.char_start : s.char_end] for s in sentences]

    def stands(self, text: str, first: int, last: int) -> bool:
        """Whether the sentences first..last, with what lies between them, are `text`."""
        start, end = self.sentences[first].char_start, self.sentences[last].char_end
        return end - start == len(text) and self.text.startswith(text, start)

    def around(self, first: int, last: int, settings: IndexingSection) -> str:
        """The sentences first..last with as many on each side as a call may have shown with them."""
        low = max(0, first - settings.window_sentences)
        high = min(len(self.sentences) - 1, last + settings.window_sentences)
        return self.text[self.sentences[low].char_start : self.sentences[high].char_end]


def _split(
    former: Former, document: Document, sentences: Sequence[Sentence], settings: IndexingSection
) -> Sequence[Sentence]:
    if former.document.text == document.text:
        return sentences
    return split_sentences(former.document.doc_id, former.document.text, settings.max_sentence_chars)


def _place(text: str, aligned: Sequence[int | None], span: tuple[int, int], free: int, after: _Text) -> int | None:
    """The first sentence of the passage in the new text, at `free` or later; None where it does not stand.

    Any of its sentences may tell the place: the alignment may have given a repeated one to another passage.
    """
    first, last = span
    for shift in sorted({j - i for i, j in enumerate(aligned[first : last + 1], first) if j is not None}):
        start, end = first + shift, last + shift
        if start >= free and end < len(after.sentences) and after.stands(text, start, end):
            return start
    return None


def _quotes_stand(passage: Passage, mine: Sequence[ReasoningUnit], text: str, char_start: int) -> bool:
    shift = char_start - passage.char_start
    inside = set(passage.sentence_ids)
    return all(
        passage.char_start <= unit.char_start < unit.char_end <= passage.char_end
        and text[unit.char_start + shift : unit.char_end + shift] == unit.evidence_quote
        and inside.issuperset(unit.sentence_ids)
        for unit in mine
    )


def _still_said(mine: Sequence[ReasoningUnit], before: str, after: str, titles: str) -> bool:
    """Whether the claims' names and numbers that are not in their own sentences still stand near the passage.

    `before` and `after` are the passage with its neighbours in the two texts; a name of either title counts as said.
    """
    if before == after:
        return True
    for unit in mine:
        parts = (unit.subject, unit.predicate, unit.object, unit.scope)
        words = [word for part in parts for word in content(tokens(part))]
        if missing(words, source(unit.evidence_quote)) and missing(words, source(f"{titles} {after}")):
            return False
    return True


def _span(passage: Passage, first: int, last: int) -> Span:
    return Span(first, last, passage.main_entity, passage.entity_type, passage.semantic_focus, passage.evidence_role)


def _failures(former: Former, kept: Sequence[Kept], sentences: Sequence[Sentence]) -> tuple[Failure, ...]:
    covered = sum(one.span.last - one.span.first + 1 for one in kept)
    if len(kept) < len(former.passages) or covered < len(sentences):
        return ()
    return tuple(
        Failure(reject.stage, reject.reason, reject.detail, reject.raw)
        for reject in former.rejects
        if reject.doc_id == former.document.doc_id and reject.stage in _STAGES
    )


def _moved(unit: ReasoningUnit, old: Passage, new: Passage) -> ReasoningUnit:
    shift = new.char_start - old.char_start
    place = dict(zip(old.sentence_ids, new.sentence_ids, strict=True))
    moved = unit.model_copy(
        update={
            "passage_id": new.passage_id,
            "doc_id": new.doc_id,
            "sentence_ids": tuple(place[sentence_id] for sentence_id in unit.sentence_ids),
            "char_start": unit.char_start + shift,
            "char_end": unit.char_end + shift,
        }
    )
    return moved.model_copy(update={"unit_id": unit_id(moved)})
