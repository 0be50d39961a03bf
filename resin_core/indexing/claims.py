"""Reads the claims a model writes: "kind | subject | property | value", with " | when or where" where it is limited.

Small models drop parts, wrap them, and name the wrong kind; what can be read without guessing content is read, the rest
is None. Whether a sentence states the claim is not known here. Kinds: RESIN table 2.
"""

from __future__ import annotations

import re
from typing import Final

from resin_core.indexing.lexicon import AUXILIARIES, PREPOSITIONS, STOPWORDS
from resin_core.indexing.words import strip_markup, tokens
from resin_core.records import Record, UnitKind

_MAX_PART_CHARS: Final = 400
_KINDS: Final = {
    name: kind
    for kind, names in {
        UnitKind.ENTITY_FACT: ("fact", "entityfact", "facts", "property", "attribute"),
        UnitKind.TYPE_PROPERTY: ("type", "typeproperty", "typefact"),
        UnitKind.ENTITY_TYPE: ("isa", "entitytype", "instanceof"),
        UnitKind.RELATION: ("rel", "relation", "relationship"),
        UnitKind.CAUSAL_EDGE: ("cause", "causal", "causaledge", "causes"),
        UnitKind.RULE: ("rule", "condition", "conditional"),
    }.items()
    for name in names
}
_LABELLED_KIND: Final = re.compile(
    r"(fact|entity-fact|type|type-property|isa|is-a|entity-type|rel|relation|cause|causal|causal-edge|rule)\s*:\s*(?=\S)",
    re.IGNORECASE,
)
_LEAD: Final = re.compile(r"^(?:\s*(?:[-*+•‣]\s+|\[\d{1,4}\]:?|\(?\d{1,4}[.)]\s))+")
_WRAPS: Final = ("[]", "{}", "<>", "()", '""', "''", "“”", "‘’", "``", "**", "__")
_PLACEHOLDERS: Final = frozenset(
    {
        "none", "n/a", "na", "nil", "null", "nan", "tbd", "undefined", "not specified", "not stated", "not mentioned",
        "not given", "not applicable", "unspecified", "kind", "subject", "predicate", "property", "value", "object",
        "entity", "condition", "conclusion", "when", "where", "when, where or under which condition",
    }
)  # fmt: skip
_MEMBERSHIP: Final = re.compile(
    r"(?:(?:is|are|was|were)\s+)?(?:an?|(?:an?\s+|one\s+)?(?:type|kind|sort|form|class|instance|example|member|one)\s+of"
    r"|classified as|belongs? to(?: the)?(?: (?:class|type|family|group) of)?)|is-?a|isa|instance-?of|subclass-?of",
    re.IGNORECASE,
)
# Predicates that say membership only where the model gave that kind.
_MEMBERSHIP_IF_ISA: Final = re.compile(r"is|are|was|were|type|kind|class|category|:", re.IGNORECASE)
_THEN: Final = re.compile(r"then|so|implies|means|->|=>|→|⇒|conclusion|result", re.IGNORECASE)
_CONDITIONAL: Final = re.compile(
    r"((?:if|when|whenever|unless|once)\s.+?),\s*(?:then\s+)?(.+)", re.IGNORECASE | re.DOTALL
)
_IF: Final = re.compile(r"(?:if|when|whenever)\s+(?=\S)", re.IGNORECASE)
_LEADING_THEN: Final = re.compile(r"then[\s,]+(?=\S)", re.IGNORECASE)
_FULL_STOP: Final = re.compile(r"[^\W\d_]{4}\.$")


class Claim(Record):
    """One claim as the model meant it. `repaired` says that its kind or its parts had to be guessed from the form.

    A rule's `subject` is its condition and its `object` the conclusion; a causal edge leads from subject to object.
    """

    kind: UnitKind
    subject: str
    predicate: str
    object: str
    scope: str = ""
    repaired: bool = False


def parse_claim(raw: str) -> Claim | None:
    """The claim in one line of a model's reply, or None when no subject, predicate and object can be read from it."""
    kind, parts = _kind_and_parts(raw)
    if not parts or any(len(part) > _MAX_PART_CHARS for part in parts):
        return None
    given = kind
    split = _fields(kind, parts)
    if split is None:
        return None
    subject, predicate, object_, scope = split
    if kind is UnitKind.RULE and not _THEN.fullmatch(predicate) and not _is_condition(subject):
        kind = UnitKind.ENTITY_FACT  # "rule | metro ride | duration | 25 minutes": it has a property, no condition.
    kind, predicate, object_ = _by_form(kind, predicate, object_)
    if kind is UnitKind.RULE:
        subject, object_ = _IF.sub("", subject, count=1), _LEADING_THEN.sub("", object_, count=1)
    if any(map(_is_empty, (subject, predicate, object_))) or _bare(subject) == _bare(object_):
        return None
    repaired = kind is not given or len(parts) < 3
    return Claim(kind=kind, subject=subject, predicate=predicate, object=object_, scope=scope, repaired=repaired)


def _kind_and_parts(raw: str) -> tuple[UnitKind | None, list[str]]:
    line = _unwrap(_LEAD.sub("", raw.replace("｜", "|").strip()))
    parts = [_unwrap(strip_markup(part)) for part in _LEAD.sub("", line).split("|")]
    parts = [part for part in parts if part]
    if not parts:
        return None, []
    labelled = _LABELLED_KIND.match(parts[0])
    if labelled:
        parts = [labelled[1], parts[0][labelled.end() :], *parts[1:]]
    kind = _KINDS.get(re.sub(r"[\s_:\-]", "", parts[0]).casefold())
    return kind, parts if kind is None else parts[1:]


def _fields(kind: UnitKind | None, parts: list[str]) -> tuple[str, str, str, str] | None:
    """Subject, predicate, object, scope; the predicate of two parts is found by its form."""
    if len(parts) >= 3:
        scope = "; ".join(part for part in parts[3:] if not _is_empty(part))
        return parts[0], parts[1], parts[2], scope
    if len(parts) == 1:
        conditional = _CONDITIONAL.fullmatch(parts[0]) if kind is UnitKind.RULE else None
        return (conditional[1], "then", conditional[2], "") if conditional else None
    subject, rest = parts
    if kind is UnitKind.RULE and _is_condition(subject):
        return subject, "then", rest, ""
    if kind is UnitKind.ENTITY_TYPE:
        return subject, "is a", re.sub(r"^(?:is|are)\s+", "", rest, flags=re.IGNORECASE), ""
    words = rest.split()
    cut = _predicate_words(words)
    if cut == len(words):
        verb = _verb_at(subject.split())
        if verb is None:
            return None
        return " ".join(subject.split()[:verb]), " ".join(subject.split()[verb:]), rest, ""
    if words[cut].casefold() in ("and", "or"):
        return subject, "is", rest, ""  # "constructed and validated": both are said of the subject.
    return subject, " ".join(words[:cut]), " ".join(words[cut:]), ""


def _is_condition(text: str) -> bool:
    """Whether a rule's first part says that something is so, rather than naming a thing."""
    return bool(_IF.match(text)) or any(word.casefold() in AUXILIARIES for word in text.split())


def _verb_at(words: list[str]) -> int | None:
    """Where a subject that runs on into its verb ends: "river Osk | runs through", "lorries | are not allowed on"."""
    for i, word in enumerate(words):
        if i and word.casefold() in AUXILIARIES:
            return i
    names = [i for i, word in enumerate(words) if word[:1].isupper() or any(map(str.isdigit, word))]
    return names[-1] + 1 if names and names[-1] + 1 < len(words) else None


def _predicate_words(words: list[str]) -> int:
    """How many first words are the predicate: up to an early number or name, else a verb and what clings to it."""
    for i, word in enumerate(words[:3]):
        if i and any(token.kind in ("number", "name") for token in tokens(word)):
            return i
    at = 0
    while at < len(words) - 1 and (words[at].casefold() in AUXILIARIES or words[at].endswith("ly")):
        at += 1
    at += 1
    while at < len(words) - 1 and words[at].casefold() in PREPOSITIONS:
        at += 1
    return at


def _by_form(kind: UnitKind | None, predicate: str, object_: str) -> tuple[UnitKind, str, str]:
    """The kind that the form of the claim allows, with predicate and object in that kind's form."""
    if kind is UnitKind.RULE:
        return kind, "then", object_ if _THEN.fullmatch(predicate) else f"{predicate} {object_}"
    if kind is UnitKind.CAUSAL_EDGE:
        return kind, "leads to" if not any(map(str.isalpha, predicate)) else predicate, object_
    counted = any(token.kind == "number" for token in tokens(object_)[:1])
    if _MEMBERSHIP.fullmatch(predicate) and not counted:
        return UnitKind.ENTITY_TYPE, predicate, object_
    if kind is UnitKind.ENTITY_TYPE:
        if _MEMBERSHIP_IF_ISA.fullmatch(predicate) and not counted:
            return kind, "is a", object_
        return UnitKind.ENTITY_FACT, predicate, object_
    return kind or UnitKind.ENTITY_FACT, predicate, object_


def _unwrap(text: str) -> str:
    """Without the quotes or brackets that hold the whole of it, and without stray marks at its ends."""
    text = text.strip().strip(",;").strip()
    text = text[:-1] if _FULL_STOP.search(text) else text
    for opening, closing in _WRAPS:
        inner = text[1:-1]
        wrapped = len(text) > 2 and text[0] == opening and text[-1] == closing
        if wrapped and opening not in inner and closing not in inner:
            return _unwrap(inner)
    if text.count('"') == 1 and text.strip('"') != text:
        return _unwrap(text.strip('"'))
    return text


def _is_empty(part: str) -> bool:
    bare = part.casefold().strip(" .<>[]()*_-–—?")
    return not any(map(str.isalnum, bare)) or bare in _PLACEHOLDERS


def _bare(text: str) -> str:
    words = [word for word in text.casefold().split() if word not in STOPWORDS]
    return " ".join(words) or text.casefold()
