"""Evidence for tests: passages with true offsets, and units that rest on their sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from resin_core.ids import passage_id, sentence_id, unit_id
from resin_core.records import Candidate, Passage, ReasoningUnit, Sentence, SourcePassage, UnitKind
from resin_core.strategies.ports import Retrieved

# Passages seldom begin where their document does, so that an offset taken for the other's is seen.
_START = 7


def source(doc_id: str, *sentences: str, title: str | None = None) -> SourcePassage:
    """A passage of these sentences, a space between them, from character 7 of its document on."""
    found, at = [], _START
    for number, text in enumerate(sentences, start=1):
        found.append(
            Sentence(sentence_id=sentence_id(doc_id, number), number=number, char_start=at, char_end=at + len(text))
        )
        at += len(text) + 1
    text = " ".join(sentences)
    passage = Passage(
        passage_id=passage_id(doc_id, text, 0),
        doc_id=doc_id,
        sentence_ids=tuple(sentence.sentence_id for sentence in found),
        char_start=_START,
        char_end=_START + len(text),
        text=text,
    )
    name = doc_id if title is None else title
    return SourcePassage(passage=passage, title=name, uri=f"file:///{doc_id}", sentences=tuple(found))


def candidate(of: SourcePassage, *numbers: int, rank: int = 1, score: float = 0.5, text: str = "") -> Candidate:
    """A unit that rests on these sentences of the passage."""
    ids = tuple(of.sentences[number - 1].sentence_id for number in numbers)
    unit = ReasoningUnit(
        unit_id=unit_id("entity-fact", text + ",".join(ids), of.passage.passage_id),
        kind=UnitKind.ENTITY_FACT,
        subject="it",
        predicate="is",
        canonical_predicate="is",
        object="so",
        evidence_quote="",
        char_start=of.passage.char_start,
        char_end=of.passage.char_end,
        passage_id=of.passage.passage_id,
        doc_id=of.passage.doc_id,
        sentence_ids=ids,
        retrieval_text=text or f"unit of {of.passage.doc_id}",
    )
    return Candidate(unit=unit, score=score, rank=rank)


def row(*sources: SourcePassage) -> tuple[Candidate, ...]:
    """A hop's candidates: a unit of each passage's first sentence, best first."""
    return tuple(candidate(of, 1, rank=rank, score=1 - rank / 10) for rank, of in enumerate(sources, start=1))


def retrieved(*rows: Sequence[Candidate], sources: Sequence[SourcePassage]) -> Retrieved:
    """What a retriever found."""
    return Retrieved(
        candidates=tuple(tuple(hop) for hop in rows), passages={of.passage.passage_id: of for of in sources}
    )


def raising(error: Exception) -> Callable[[dict[str, Any]], Any]:
    """A handler for a scripted model that always fails with this error."""

    def handler(request: dict[str, Any]) -> Any:
        raise error

    return handler
