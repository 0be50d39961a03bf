"""What of a claim's words a source text holds: exactly for names and numbers, nearly for other words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from rapidfuzz import fuzz, process

from resin_core.indexing.lexicon import DECREASE, INCREASE, NEGATIVE, NEGATIVE_PREFIXES, NEGATORS
from resin_core.indexing.words import Token, concept, content, fold, number_readings, strip_markup, tokens

Pairs = tuple[tuple[str, str], ...]

_NEAR: Final = 84.0
_NEAR_LETTERS: Final = 5
_STEM_LETTERS: Final = 6
_ROOT_LETTERS: Final = 4
_INCREASE: Final = frozenset(map(fold, INCREASE))
_DECREASE: Final = frozenset(map(fold, DECREASE))
_NEGATIVE: Final = frozenset(map(fold, NEGATIVE))
_NAME_ENDINGS: Final = ("s", "es", "n", "en", "e", "an", "ian")


@dataclass(frozen=True)
class Source:
    """The words of a text: as written (casefolded, in order), folded, neighbours written as one; its numbers.

    `weight` is the number of words that carry meaning.
    """

    raw: tuple[str, ...]
    keys: frozenset[str]
    joined: frozenset[str]
    numbers: frozenset[str]
    weight: int

    def __or__(self, other: Source) -> Source:
        """Both texts, this one first."""
        return Source(
            self.raw + other.raw,
            self.keys | other.keys,
            self.joined | other.joined,
            self.numbers | other.numbers,
            self.weight + other.weight,
        )


@lru_cache(maxsize=2048)
def source(text: str, pairs: Pairs = ()) -> Source:
    """A text made ready; of each (full form, short form) pair in `pairs` that it uses one of, it has the other too."""
    words = tokens(text)
    keys = {token.key for token in words if token.kind != "number"}
    numbers = {reading for token in words if token.kind == "number" for reading in number_readings(token)}
    if any(token.text.casefold() == "one" for token in words):
        numbers.add("1")
    for pair in pairs:
        full, short = ({token.key for token in tokens(form)} for form in pair)
        if short <= keys or {token.key for token in content(tokens(pair[0]))} <= keys | numbers:
            keys |= full | short
    joined = {fold(one.text + other.text) for one, other in pairwise(words)}
    raw = tuple(token.text.casefold() for token in words)
    return Source(raw, frozenset(keys), frozenset(joined), frozenset(numbers), len(content(words)))


@lru_cache(maxsize=16)
def earlier(context: str, texts: tuple[str, ...], pairs: Pairs) -> tuple[Source, ...]:
    """For each of `texts`, the context and the texts before it."""
    known = [source(context, pairs)]
    for text in texts[:-1]:
        known.append(known[-1] | source(text, pairs))
    return tuple(known)


def missing(words: Sequence[Token], place: Source) -> tuple[Token, ...]:
    """The names and numbers among neighbouring `words` that the source lacks."""
    found = _found_exactly(words, place)
    return tuple(t for t, there in zip(words, found, strict=True) if not there and t.kind in ("name", "number"))


def coverage(words: Sequence[Token], place: Source) -> float:
    """The part of `words` that the source holds, exactly or nearly, 0 to 1; 0 for no words."""
    if not words:
        return 0.0
    found = _found_exactly(words, place)
    held = sum(
        there or (token.kind in ("word", "unit") and _nearly(token.key, place))
        for token, there in zip(words, found, strict=True)
    )
    return held / len(words)


def _found_exactly(words: Sequence[Token], place: Source) -> list[bool]:
    found = [_exactly(token, place) for token in words]
    for i, (one, other) in enumerate(pairwise(words)):
        # "CKL 12" for "CKL12": neither part alone is a word of the source.
        if not (found[i] and found[i + 1]) and fold(one.text + other.text) in place.keys:
            found[i] = found[i + 1] = True
    return found


def _exactly(token: Token, place: Source) -> bool:
    key = token.key
    if token.kind == "number":
        return key in place.numbers
    if key in place.keys or key in place.joined:
        return True
    return token.kind == "name" and key.isalpha() and len(key) >= 4 and _same_name(key, place)


def _same_name(key: str, place: Source) -> bool:
    """A name in another of its forms: a plural, a genitive; in scripts other than Latin another case ending."""
    if any(key + ending in place.keys or key.removesuffix(ending) in place.keys for ending in _NAME_ENDINGS):
        return True
    if key.isascii():
        return False
    stem = key[:-2]
    return len(stem) >= 3 and any(other.startswith(stem) and len(other) <= len(key) + 2 for other in place.keys)


def _nearly(key: str, place: Source) -> bool:
    if concept(key) in map(concept, place.keys):
        return True
    if any(key in way and place.keys & way for way in (_INCREASE, _DECREASE)):
        return True
    if len(key) < _NEAR_LETTERS:
        return False
    stem = key[:_STEM_LETTERS] if len(key) >= _STEM_LETTERS else None
    for other in place.keys:
        if (stem and other.startswith(stem)) or (len(other) >= _ROOT_LETTERS and key.startswith(other)):
            return True
    return process.extractOne(key, place.keys, scorer=fuzz.ratio, score_cutoff=_NEAR) is not None


_BREAK: Final = re.compile(r"[,;:.!?]")
_PARENTHESIS: Final = re.compile(r"\(([^()]{2,80})\)")
_SHORT_FORM: Final = re.compile(r"(?=.*[^\W\d_a-z])[^\W_][\w.\-/]{1,11}")


@lru_cache(maxsize=64)
def abbreviations(text: str) -> tuple[tuple[str, str], ...]:
    """(full form, short form) pairs that a text states as "Full Name (FN)" or "FN (Full Name)", in order, once each."""
    text = strip_markup(text)
    found: dict[tuple[str, str], None] = {}
    for match in _PARENTHESIS.finditer(text):
        inner = match[1].strip()
        before = text[max(0, match.start() - 120) : match.start()].rstrip()
        outer = before.rpartition(" ")[2]
        if _SHORT_FORM.fullmatch(inner):
            full = _full_form(inner, before)
        elif _SHORT_FORM.fullmatch(outer):
            inner, full = outer, _full_form(outer, inner)
            full = full if full == match[1].strip() else ""
        else:
            continue
        if full and full.casefold() != inner.casefold():
            found[full, inner] = None
    return tuple(found)


def _full_form(short: str, before: str) -> str:
    """The words at the end of `before` whose letters give `short`, its first letter at the start of a word; or ""."""
    letters = [c for c in short.casefold() if c.isalnum()]
    if letters[-1:] == ["s"] and short[-1] == "s" and len(letters) > 2:
        letters.pop()  # A plural: DEGs.
    lower = before.casefold()
    at = len(lower)
    for i in range(len(letters) - 1, -1, -1):
        at -= 1
        while at >= 0 and (lower[at] != letters[i] or (i == 0 and at > 0 and lower[at - 1].isalnum())):
            at -= 1
        if at < 0:
            return ""
    full = before[at:].strip()
    enough = len(full) > len(short) and len(full.split()) <= min(len(letters) + 5, 2 * len(letters))
    return full if enough and len(lower) == len(before) and not _BREAK.search(full) else ""


def turned(said: Sequence[Token], predicate: Sequence[Token], place: Source) -> str:
    """Says so when a claim's words have a "not", or its predicate a direction, that the source turns round; or ""."""
    negated = any(token.key in NEGATORS for token in said)
    if negated and not place.keys & (NEGATORS | _NEGATIVE) and not any(map(_sounds_negative, place.keys)):
        return "the claim is negated, the sentence is not"
    verbs = {token.key for token in predicate}
    for one, other in ((_INCREASE, _DECREASE), (_DECREASE, _INCREASE)):
        if verbs & one and not verbs & other and place.keys & other and not place.keys & one:
            return "the claim goes up where the sentence goes down, or the other way"
    return ""


def _sounds_negative(key: str) -> bool:
    return len(key) > 5 and key.startswith(NEGATIVE_PREFIXES)
