"""From a grounded claim to a reasoning unit: canonical predicate, qualifiers, aliases, confidence, source span.

Source: RESIN section 3.3 and table 1. Optional fields are filled only from the document: a modality from a "may" beside
the claim's own words, an alias from "Full Name (FN)", an entity type only where the passage has its words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from resin_core import ids
from resin_core.indexing.claims import Claim
from resin_core.indexing.grounding import Grounding
from resin_core.indexing.matching import abbreviations, coverage, source
from resin_core.indexing.qualifiers import modality, polarity
from resin_core.indexing.retrieval_text import retrieval_text
from resin_core.indexing.words import concept, content, strip_markup, tokens
from resin_core.records import Passage, ReasoningUnit, Sentence, UnitKind

_DROPPED: Final = frozenset({
    "a", "also", "an", "are", "be", "been", "being", "can", "could", "did", "do", "does", "had", "has", "have", "is",
    "its", "may", "might", "must", "shall", "should", "the", "their", "was", "were", "will", "would",
})  # fmt: skip
_REPAIRED: Final = 0.9
_MIN_TYPE: Final = 0.6


def canonical_predicate(text: str) -> str:
    """One form for the ways to write a predicate: "costs", "the price", "fare" are "cost"; "was founded in" "found in".

    Case and endings folded, articles, auxiliaries and modals dropped, a few synonyms unified (`lexicon.GROUPS`), "not"
    kept. A predicate of dropped words only ("is a") keeps them, folded.
    """
    words = tokens(text)
    kept = [token for token in words if token.text.casefold() not in _DROPPED] or list(words)
    return " ".join(concept(token.key) for token in kept) or ids.normalise_claim(text)


def aliases(subject: str, context: str) -> tuple[str, ...]:
    """Other names of the subject by the full and short forms that the context states, as "Full Name (FN)"."""
    found: dict[str, None] = {}
    have = f" {ids.normalise_claim(subject)} "
    for pair in abbreviations(context):
        full, short = (f" {ids.normalise_claim(form)} " for form in pair)
        if (full in have) == (short in have) or f"({short.strip()})" in have:
            continue
        old, new = (full, pair[1]) if full in have else (short, pair[0])
        at = have.index(old)
        start, end = at, at + len(old) - 2
        plain = " ".join(subject.split())
        if len(plain) + 2 == len(have):
            found[plain[:start] + new + plain[end:]] = None
    return tuple(found)


def confidence(grounding: Grounding, repaired: bool) -> float:
    """How well the source supports the claim, 0 to 1: by the wording it holds, less when parts were guessed."""
    return round((0.5 + 0.5 * min(max(grounding.coverage, 0.0), 1.0)) * (_REPAIRED if repaired else 1.0), 3)


def unit_id(unit: ReasoningUnit) -> str:
    """The id that a unit's claim has in its passage; the `unit_id` it carries plays no part."""
    parts = (unit.subject, unit.canonical_predicate, unit.object, unit.scope, unit.modality, unit.polarity)
    return ids.unit_id(unit.kind, ids.normalise_claim(" | ".join(parts)), unit.passage_id)


def build_unit(
    claim: Claim,
    grounding: Grounding,
    passage: Passage,
    sentences: Mapping[int, Sentence],
    text: str,
    repaired: bool = False,
) -> ReasoningUnit:
    """The unit of a grounded claim; its evidence is the text of its sentences, exactly.

    `sentences` are the document's by number, `text` is the document's; `repaired` says that the reply had to be mended.
    Raises ValueError when the grounding's sentences are not all in the passage.
    """
    span = [sentences[number] for number in range(grounding.start_sentence, grounding.end_sentence + 1)]
    start, end = span[0].char_start, span[-1].char_end
    if start < passage.char_start or end > passage.char_end:
        raise ValueError(
            f"sentences {grounding.start_sentence}-{grounding.end_sentence} are not in passage {passage.passage_id!r}; "
            "give ground() the first sentence of every passage as `starts`"
        )
    quote = text[start:end]
    predicate = canonical_predicate(claim.predicate)
    how, sign = modality(claim, quote), polarity(claim, quote)
    names = aliases(claim.subject, text) if claim.kind not in (UnitKind.RULE, UnitKind.CAUSAL_EDGE) else ()
    entity_type = _entity_type(claim, passage)
    rule, causal = claim.kind is UnitKind.RULE, claim.kind is UnitKind.CAUSAL_EDGE
    unit = ReasoningUnit(
        unit_id="",
        kind=claim.kind,
        subject=claim.subject,
        entity_type=entity_type,
        predicate=claim.predicate,
        canonical_predicate=predicate,
        object=claim.object,
        conditions=(claim.subject,) if rule else (),
        conclusion=claim.object if rule else "",
        source_state=claim.subject if causal else "",
        target_state=claim.object if causal else "",
        modality=how,
        polarity=sign,
        scope=claim.scope,
        confidence=confidence(grounding, repaired or claim.repaired),
        aliases=names,
        evidence_quote=quote,
        char_start=start,
        char_end=end,
        passage_id=passage.passage_id,
        doc_id=passage.doc_id,
        sentence_ids=tuple(sentence.sentence_id for sentence in span),
        retrieval_text=retrieval_text(
            claim.kind,
            claim.subject,
            claim.predicate,
            claim.object,
            scope=claim.scope,
            modality=how,
            polarity=sign,
            entity_type=entity_type if claim.kind is not UnitKind.ENTITY_TYPE else "",
            aliases=names,
        ),
    )
    return unit.model_copy(update={"unit_id": unit_id(unit)})


def _entity_type(claim: Claim, passage: Passage) -> str:
    """The type the passage gives its main entity, if that is the subject and the passage has the type's words."""
    if claim.kind is UnitKind.ENTITY_TYPE:
        return claim.object
    subject, entity = ids.normalise_claim(claim.subject), ids.normalise_claim(strip_markup(passage.main_entity))
    if not entity or subject != entity or claim.kind not in (UnitKind.ENTITY_FACT, UnitKind.RELATION):
        return ""
    held = coverage(content(tokens(passage.entity_type)), source(passage.text))
    return passage.entity_type if held >= _MIN_TYPE else ""


def merge_duplicates(units: Iterable[ReasoningUnit], text: str = "") -> list[ReasoningUnit]:
    """One unit for each claim of a passage, in the order given; never across passages or subjects.

    Of equal claims the better grounded stays, with the sentences of both when they overlap or, where the document's
    `text` is given to quote from, follow each other. A claim within another of the same sentence goes.
    """
    merged: dict[tuple[str, ...], ReasoningUnit] = {}
    for unit in units:
        parts = (unit.subject, unit.object, unit.scope)
        key = (unit.passage_id, unit.canonical_predicate, unit.polarity, *map(_without_article, parts))
        merged[key] = _merged(merged[key], unit, text) if key in merged else unit
    by_sentence: defaultdict[tuple[str, str], list[ReasoningUnit]] = defaultdict(list)
    for unit in merged.values():
        for sentence_id in unit.sentence_ids:
            by_sentence[unit.passage_id, sentence_id].append(unit)
    return [
        unit
        for unit in merged.values()
        if not any(_within(unit, other) for other in by_sentence[unit.passage_id, unit.sentence_ids[0]])
    ]


def _merged(one: ReasoningUnit, other: ReasoningUnit, text: str) -> ReasoningUnit:
    better = other if other.confidence > one.confidence else one
    first, last = sorted((one, other), key=lambda unit: (unit.char_start, unit.char_end))
    start, end = first.char_start, max(first.char_end, last.char_end)
    if last.char_start < first.char_end:
        quote = first.evidence_quote + last.evidence_quote[first.char_end - last.char_start :]
    elif text and not text[first.char_end : last.char_start].strip():
        quote = text[start:end]
    else:
        return better
    sentence_ids = tuple(dict.fromkeys(first.sentence_ids + last.sentence_ids))
    span = {"char_start": start, "char_end": end, "evidence_quote": quote, "sentence_ids": sentence_ids}
    return better.model_copy(update=span)


def _within(unit: ReasoningUnit, other: ReasoningUnit) -> bool:
    """Whether `other` says all that `unit` says, and more, from the same sentences."""
    if unit is other or (unit.polarity, unit.modality) != (other.polarity, other.modality):
        return False
    if not set(unit.sentence_ids) <= set(other.sentence_ids):
        return False
    inner, outer = (_worded(u.subject, u.canonical_predicate, u.object, u.scope) for u in (unit, other))
    if len(inner) >= len(outer):
        return False
    same = (unit.subject, unit.canonical_predicate) == (other.subject, other.canonical_predicate)
    parts = [(_worded(unit.object), _worded(other.object)), (_worded(unit.scope), _worded(other.scope))]
    return inner in outer or (same and all(small in large for small, large in parts))


def _worded(*parts: str) -> str:
    """The parts as folded words between spaces, so that a substring is a run of whole words."""
    return " " + "".join(f"{token.key} " for part in parts for token in tokens(part))


def _without_article(text: str) -> str:
    return ids.normalise_claim(text).removeprefix("the ").removeprefix("an ").removeprefix("a ")
