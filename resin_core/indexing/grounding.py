"""Finds the sentence that states a claim, or says why none does.

Strict on numbers and names, which a reader would take over as they stand; lenient on wording, which a small model
changes freely. The sentence number that came with the claim is a hint only: models drift by a sentence or more.
A unit's evidence is then the text of the sentences found, exact by construction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from resin_core.indexing.claims import Claim
from resin_core.indexing.lexicon import PERSONAL, PREPOSITIONS, PRONOUNS
from resin_core.indexing.matching import Source, abbreviations, coverage, earlier, missing, source, turned
from resin_core.indexing.words import Token, content, tokens
from resin_core.records import Record, UnitKind

_MIN_COVERAGE: Final = 0.6
_MIN_SUBJECT: Final = 0.5
# A value of this many words that is most of its sentence says something by itself, whatever it was filed under.
_CLAUSE_WORDS: Final = 5
_CLAUSE_SHARE: Final = 0.7
# Where a sentence names what it is about.
_FIRST_WORDS: Final = 4
_MAX_RESOLVED: Final = 4
# Scores: sentences this close are equally good; the subject's share; a part that only the context holds.
_TIE: Final = 0.05
_SUBJECT_WEIGHT: Final = 0.2
_SUBJECT_BEFORE: Final = 0.8
_FROM_CONTEXT: Final = 0.9


class Grounding(Record):
    """Numbers of the first and last sentence (one or two neighbours), and how much of the wording they hold, 0 to 1."""

    start_sentence: int
    end_sentence: int
    coverage: float


class Failure(Record):
    """Why no sentence states the claim: number-not-in-source, name-not-in-source or not-in-source."""

    reason: str
    detail: str


class _Place(NamedTuple):
    """A sentence to try: itself, the one before it when a claim may need both, and all that is said up to here."""

    number: int
    main: Source
    before: Source | None
    known: Source


class _Words(NamedTuple):
    """The words of a claim that need support, part by part."""

    subject: tuple[Token, ...]
    predicate: tuple[Token, ...]
    object: tuple[Token, ...]
    scope: tuple[Token, ...]


class _Try(NamedTuple):
    """How a claim fares at a place: `failure`, or a coverage. `score` orders tries of either kind."""

    score: float
    number: int
    needs_before: bool = False
    coverage: float = 0.0
    failure: Failure | None = None


class _RejectedError(Exception):
    """The place does not state the claim; caught within this module."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def ground(
    claim: Claim,
    sentences: Sequence[tuple[int, str]],
    hint: int,
    context: str = "",
    starts: Collection[int] = (),
) -> Grounding | Failure:
    """The one sentence, or two neighbours, that best support the claim; `hint` decides between near equals.

    `sentences` are (number, text) in order; `context` is text that may resolve the subject (title, what came before),
    beside the sentences before the one found; `starts` are numbers of sentences that begin a passage, which are never
    taken together with the sentence before. Every number of predicate, object and scope is in the span returned, and
    every name, but for a name from what is known that stands for a pronoun of the sentence.
    """
    subject = tokens(claim.subject)
    if not subject or all(token.text.casefold() in PRONOUNS for token in subject):
        return Failure(reason="not-in-source", detail=f"the subject {claim.subject!r} names nothing")
    pairs = abbreviations(" ".join([context, *(text for _, text in sentences)]))
    known = earlier(context, tuple(text for _, text in sentences), pairs)
    predicate = content(tokens(claim.predicate), or_all=False)
    words = _Words(content(subject), predicate, content(tokens(claim.object)), content(tokens(claim.scope)))
    tries = []
    for i, (number, text) in enumerate(sentences):
        before = None
        if i and sentences[i - 1][0] == number - 1 and number not in starts:
            before = source(sentences[i - 1][1], pairs)
        tries.append(_try(claim, words, _Place(number, source(text, pairs), before, known[i])))
    good = [t for t in tries if t.failure is None]
    if not good:
        return _nearest_failure(tries, hint)
    best = max(t.score for t in good)
    found = min((t for t in good if t.score >= best - _TIE), key=lambda t: (abs(t.number - hint), -t.score, t.number))
    return Grounding(
        start_sentence=found.number - found.needs_before, end_sentence=found.number, coverage=round(found.coverage, 3)
    )


def _nearest_failure(tries: Sequence[_Try], hint: int) -> Failure:
    if not tries:
        return Failure(reason="not-in-source", detail="there is no sentence")
    nearest = max(tries, key=lambda t: (t.score, -abs(t.number - hint)))
    return nearest.failure or Failure(reason="not-in-source", detail="no sentence states it")


def _try(claim: Claim, words: _Words, place: _Place) -> _Try:
    try:
        return _state(claim, words, place)
    except _RejectedError as error:
        failure = Failure(reason=error.reason, detail=f"{error} (nearest sentence: {place.number})")
        closeness = coverage(words.predicate + words.object + words.scope, place.main)
        return _Try(closeness, place.number, failure=failure)


def _state(claim: Claim, words: _Words, place: _Place) -> _Try:
    main = place.main
    in_main = coverage(words.subject, main)
    resolved, before_names_it = _resolved(claim, words, place, in_main)
    before_limits_it = _before_limits(words.scope, place)
    needs_before = before_names_it or before_limits_it
    subject_before = in_main < _MIN_SUBJECT and _before_has_subject(claim, words.subject, place)
    span = main | place.before if place.before and (needs_before or subject_before) else main
    _check_subject(claim, words.subject, span if claim.kind is UnitKind.RULE else span | place.known)

    stated = tuple(token for token in words.object if token not in resolved)
    wording = coverage(words.predicate + stated, main)
    in_object = coverage(stated, main) if stated else 1.0
    # Subject and value both word for word: the property's own name is the model's, and only costs confidence.
    verbatim = words.subject and in_main == 1 and stated and in_object == 1
    if min(wording, in_object) < _MIN_COVERAGE and not verbatim:
        raise _RejectedError("not-in-source", f"its sentence holds {min(wording, in_object):.0%} of the wording")
    anchored = in_main >= _MIN_SUBJECT or any(word in PERSONAL for word in main.raw[:_FIRST_WORDS])
    if not anchored and not subject_before and not _stands_alone(words.predicate, stated, main):
        raise _RejectedError("not-in-source", "neither subject nor property is in the sentence that holds the value")
    reversal = turned(tokens(claim.predicate) + tokens(claim.object), words.predicate, span)
    if reversal:
        raise _RejectedError("not-in-source", reversal)

    needs_before = needs_before or subject_before
    total = coverage(words.predicate + stated + words.scope, span if before_limits_it else main)
    if (resolved or in_main < _MIN_SUBJECT) and not needs_before:
        total *= _FROM_CONTEXT
    subject_here = max(in_main, _SUBJECT_BEFORE if subject_before else 0.0)
    return _Try(total + _SUBJECT_WEIGHT * subject_here, place.number, needs_before, total)


def _resolved(claim: Claim, words: _Words, place: _Place, in_main: float) -> tuple[frozenset[Token], bool]:
    """Words of the object that a pronoun of the sentence stands for, and whether the sentence before has them.

    Raises when a number, a name that no pronoun stands for, or a name with digits is missing from the span.
    """
    lost = missing(words.predicate + words.object, place.main)
    _raise_for(tuple(token for token in lost if token.kind == "number"))
    if not lost:
        return frozenset(), False
    resolved = frozenset(token for token in words.object if coverage((token,), place.main) == 0)
    if in_main < _MIN_SUBJECT or not _stands_for_pronoun(claim, words, lost, resolved, place):
        _raise_for(lost)
    before_has_it = place.before is not None and coverage(tuple(resolved), place.before) == 1
    if not before_has_it:
        _raise_for(tuple(token for token in lost if any(map(str.isdigit, token.text))))
    return resolved, before_has_it


def _stands_for_pronoun(
    claim: Claim, words: _Words, lost: Sequence[Token], resolved: Collection[Token], place: _Place
) -> bool:
    """Whether what the sentence lacks is a known name in the place of a pronoun or of "the".

    "Heavy lorries are not allowed on it" is claimed of the bridge by name, "the pumps" as the pumps of the station.
    Only a short end of the object may be so resolved, and the property must be in the sentence.
    """
    if len(resolved) > _MAX_RESOLVED or missing(tuple(resolved), place.known) or not set(lost) <= set(resolved):
        return False
    if words.predicate and coverage(words.predicate, place.main) < _MIN_COVERAGE:
        return False
    whole = tokens(claim.object)
    first = min(i for i, token in enumerate(whole) if token in resolved)
    if set(content(whole[first:])) != set(resolved):
        return False
    if any(word in PERSONAL for word in place.main.raw):
        return True
    linked = first > 1 and whole[first - 1].text.casefold() in PREPOSITIONS
    return linked and coverage(content(whole[: first - 1]), place.main) == 1


def _before_limits(scope: tuple[Token, ...], place: _Place) -> bool:
    """Whether the claim's limit of place, time or condition needs the sentence before. Raises when neither has it."""
    if not scope or _holds_scope(scope, place.main):
        return False
    if place.before is not None and _holds_scope(scope, place.main | place.before):
        return True
    _raise_for(missing(scope, place.main), "scope: ")
    raise _RejectedError("not-in-source", "its limit of place, time or condition is not in the sentence")


def _holds_scope(scope: tuple[Token, ...], source_: Source) -> bool:
    return not missing(scope, source_) and coverage(scope, source_) >= _MIN_SUBJECT


def _before_has_subject(claim: Claim, subject: tuple[Token, ...], place: _Place) -> bool:
    """Whether the sentence before is needed to name what this one begins with, or holds a rule's condition."""
    if place.before is None:
        return False
    if claim.kind is not UnitKind.RULE and not any(word in PRONOUNS for word in place.main.raw[:_FIRST_WORDS]):
        return False
    return coverage(subject, place.main | place.before) == 1


def _check_subject(claim: Claim, subject: tuple[Token, ...], known: Source) -> None:
    _raise_for(missing(subject, known), "subject: ")
    if coverage(subject, known) < (_MIN_COVERAGE if claim.kind is UnitKind.RULE else _MIN_SUBJECT):
        raise _RejectedError("not-in-source", f"nothing names the subject {claim.subject!r}")


def _stands_alone(predicate: tuple[Token, ...], stated: tuple[Token, ...], main: Source) -> bool:
    """For a sentence without the subject: it has the property, or the value is next to all that it says."""
    return coverage(predicate, main) > 0 or (
        len(stated) >= _CLAUSE_WORDS and len(stated) >= _CLAUSE_SHARE * main.weight
    )


def _raise_for(lost: tuple[Token, ...], where: str = "") -> None:
    """Raises for numbers first, then for names; nothing lost raises nothing."""
    for kind in ("number", "name"):
        texts = [repr(token.text) for token in lost if token.kind == kind]
        if texts:
            raise _RejectedError(f"{kind}-not-in-source", (where + ", ".join(texts))[:200])
