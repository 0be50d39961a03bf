"""The text by which a unit is found: x_u of RESIN section 3.4, embedded and compared with queries by cosine.

Sentence encoders are trained on statements, so a unit reads like one: it names the entity, the property or relation
with its direction, the value, and what limits the claim.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from resin_core.indexing.lexicon import AUXILIARIES, NEGATORS, PREPOSITIONS
from resin_core.records import UnitKind

_ARTICLE: Final = re.compile(r"(?:an?|the|one|not|some)\s", re.IGNORECASE)
_MODALS: Final = frozenset({
    "can", "could", "may", "might", "must", "need", "needs", "perhaps", "possible", "possibly", "probably", "shall",
    "should", "suggest", "suggested", "suggests",
})  # fmt: skip
_MODAL_WORD: Final = {"possible": "may", "necessary": "must"}
_JOINING_START: Final = PREPOSITIONS | {"when", "while", "if", "because", "where", "unless", "until", "during"}


def retrieval_text(
    kind: UnitKind,
    subject: str,
    predicate: str,
    object_: str,
    *,
    scope: str = "",
    modality: str = "",
    polarity: str = "positive",
    entity_type: str = "",
    aliases: Sequence[str] = (),
) -> str:
    """A statement of the claim in plain text, with the entity's type and its other names where they are known.

    For a rule, `subject` is the condition and `object_` the conclusion; for a causal edge they are source and target.
    A "may", "must" or "not" that the source has and the claim's words lack is put before the predicate.
    """
    words = {word.casefold() for word in re.findall(r"[^\W\d_]+", f"{predicate} {object_}")}
    hedge = _MODAL_WORD.get(modality, "") if not words & _MODALS else ""
    denial = "not" if polarity == "negative" and not words & NEGATORS and "cannot" not in words else ""
    named = (
        f"{subject} ({entity_type})" if entity_type and entity_type.casefold() not in subject.casefold() else subject
    )
    if kind is UnitKind.RULE:
        text = _joined("If", subject, "then", hedge, denial, object_)
    elif kind is UnitKind.ENTITY_TYPE:
        text = _joined(named, *_membership(predicate, object_, hedge, denial), object_)
    elif kind in (UnitKind.RELATION, UnitKind.CAUSAL_EDGE) or hedge or denial or _is_verb(predicate, object_):
        text = _joined(named, hedge, denial, predicate, object_)
    else:
        text = f"{named}: {predicate} is {object_}"
    text = _limited(text, scope, kind)
    return f"{text}. Also called {', '.join(aliases)}." if aliases else text


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _membership(predicate: str, object_: str, hedge: str, denial: str) -> tuple[str, ...]:
    if not re.fullmatch(r"(?:(?:is|are|was|were|be)\b)?[\s-]*(?:an?)?|isa", predicate, re.IGNORECASE):
        return hedge, denial, predicate
    verb = predicate.split()[0] if predicate.split()[:1] and predicate.split()[0] in ("are", "was", "were") else "is"
    article = "" if _ARTICLE.match(object_) or verb in ("are", "were") else "a"
    return (hedge, denial, "be", article) if hedge else (verb, denial, article)


def _is_verb(predicate: str, object_: str) -> bool:
    """Whether subject, predicate and object make a sentence as they stand ("goes from"), unlike "ticket price"."""
    words = predicate.casefold().split()
    first, last = words[0], words[-1]
    if first in AUXILIARIES or first in NEGATORS or (last in PREPOSITIONS and last != "of"):
        return True
    if len(words) == 1 and object_.casefold().startswith(("that ", "the ")):
        return True
    if "of" in words[1:]:
        return False
    bare = len(first) > 3 and not first.endswith(("ss", "us", "is"))
    return (bare and first.endswith(("s", "ed"))) or first.endswith("ly")


def _limited(text: str, scope: str, kind: UnitKind) -> str:
    if not scope:
        return text
    first = scope.split()[0].casefold()
    if kind in (UnitKind.RULE, UnitKind.CAUSAL_EDGE) or first in _JOINING_START:
        return f"{text}, {scope}"
    return f"{text} ({scope})"
