"""How a claim is meant: possible or necessary, affirmed or denied, by its words and those beside them in the source.

English only; in other languages a claim is taken as affirmed and without modality.
"""

from __future__ import annotations

from typing import Final

from resin_core.indexing.claims import Claim
from resin_core.indexing.lexicon import NEGATORS, STOPWORDS
from resin_core.indexing.words import Token, concept, content, fold, tokens
from resin_core.records import UnitKind

_POSSIBLE: Final = frozenset({"may", "might", "could", "perhaps", "possible", "possibly", "probably", "likely"})
_SUPPOSING: Final = frozenset(map(fold, ("suggest", "hypothesize", "hypothesise", "assume", "speculate", "propose")))
_NECESSARY: Final = frozenset({"must", "shall"})
# How many words before the claim's own words a "may", a "suggests" and a "not" may stand and still be about them.
_MODAL_REACH: Final = 4
_SUPPOSING_REACH: Final = 12
_NOT_REACH: Final = 3
_DENIALS: Final = {"not": 3, "never": 3, "no": 2, "neither": 2, "nor": 2}
# Words besides stopwords and adverbs that may stand between a "not" and its verb.
_LIGHT: Final = NEGATORS | {"yet", "always", "ever", "often", "usually", "longer", "any"}


def modality(claim: Claim, span: str) -> str:
    """ "possible", "necessary" or "": from the claim's words, else from the words before them in the source span."""
    own = tokens(claim.predicate) + tokens(claim.object)
    if claim.kind is not UnitKind.RULE:
        own = own[: len(tokens(claim.predicate)) + 2]
    near, further = _words_before(claim, span, _MODAL_REACH), _words_before(claim, span, _SUPPOSING_REACH, True)
    for words in (own, near):
        said = {token.text.casefold() for token in words}
        if said & _NECESSARY:
            return "necessary"
        if said & _POSSIBLE:
            return "possible"
    return "possible" if {token.key for token in own + further} & _SUPPOSING else ""


def polarity(claim: Claim, span: str) -> str:
    """ "negative" when the claim says not, no, never or without, or the span says so of the claim's verb."""
    objects = tokens(claim.object)
    if any(token.key in NEGATORS for token in tokens(claim.predicate)):
        return "negative"
    if any(token.key in _DENIALS for token in (objects if claim.kind is UnitKind.RULE else objects[:1])):
        return "negative"
    before = _words_before(claim, span, _NOT_REACH)
    verb_between = False  # "Does not hinder binding" denies no binding.
    for distance, token in enumerate(reversed(before), start=1):
        following = before[1 - distance].text.casefold() if distance > 1 else ""
        near = distance <= _DENIALS.get(token.key, 1) and not (verb_between and token.key in ("not", "never"))
        if token.key in NEGATORS and near and following != "only":
            return "negative"
        verb_between |= token.text.casefold() not in STOPWORDS | _LIGHT and not token.text.endswith("ly")
    return "positive"


def _words_before(claim: Claim, span: str, reach: int, across_clauses: bool = False) -> tuple[Token, ...]:
    """The words of the span just before those that carry the claim: its predicate's, or else its object's, first."""
    words = tokens(span)
    value = {token.key for token in content(tokens(claim.object))}
    values = [i for i, token in enumerate(words) if token.key in value]
    for part in (claim.predicate, claim.object):
        keys = {concept(token.key) for token in content(tokens(part))}
        places = [i for i, token in enumerate(words) if concept(token.key) in keys]
        if not places:
            continue
        last = max((i for i in places if values and i <= values[0]), default=places[0])
        at = last
        while at - 1 in places:
            at -= 1
        before = words[max(0, at - reach) : at]
        return tuple(t for t in before if across_clauses or t.clause == words[at].clause)
    return ()
