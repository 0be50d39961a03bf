"""Which numbers are known, and which source a stated fact rests on. Everything is compared by value and by words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from resin_core.online.arithmetic import ArithmeticFailure, format_number, format_value, measured
from resin_core.online.quantities import (
    LETTER,
    UNKNOWN,
    Quantity,
    Value,
    base,
    base_readings,
    narrowed,
    quantities,
    quantity_at,
)

# Scripts without spaces are compared by characters, other words by how they begin: endings change, sense does not.
_WORD: Final = re.compile(rf"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|(?:(?![\u3040-\u30ff\u3400-\u9fff]){LETTER})+")
_STEM_CHARS: Final = 5
_MOST: Final = 0.5
_LABEL: Final = re.compile(rf"({LETTER}+)[\s-]?(?=\d)")
# Words before a number that do not make it part of a name: "within 40" is no name, "bus 14" is.
_NO_LABELS: Final = frozenset(
    re.findall(
        r"\w+",
        "a about above an and at below by costs for from in is least most of on or over takes than the to under until "
        "with within",
    )
)
# What makes two of one thing without a number.
_TWICE: Final = re.compile(r"\b(?:twice|double|both|pair|return|round[- ]trip|there and back)\b", re.IGNORECASE)

Name = tuple[str, ...]


class Known:
    """Numbers that may be used, each with the units it came with."""

    def __init__(self) -> None:
        self._units: defaultdict[Fraction, set[str]] = defaultdict(set)
        self._bases: set[tuple[str, Fraction]] = set()

    def add(self, value: Value) -> None:
        """From now on the value is known."""
        self._units[value.number].add("" if value.unit == UNKNOWN else value.unit)
        if measure := base(value):
            self._bases.add(measure)

    def add_text(self, text: str) -> None:
        """As `add`, for every reading of every number of the text; "-5" is known as 5 too: signs are often words."""
        for quantity in quantities(text, every=True):
            self.add(quantity.value)
            self.add(Value(abs(quantity.number), quantity.unit))

    def has(self, value: Value, converted: bool = False) -> bool:
        """Whether the number is known, with this unit where both have one.

        `converted`: a number without a unit may also stand for a known value in another unit (60 for "1 hour").
        """
        units = self._units.get(value.number, set())
        if units and (value.unit in units or "" in units or value.unit in ("", UNKNOWN)):
            return True
        measure = base(value)
        if measure:
            return measure in self._bases
        return converted and not value.unit and not self._bases.isdisjoint(base_readings(value.number))

    def unit_of(self, number: Fraction) -> str:
        """The unit that the number always came with, or ""."""
        units = self._units.get(number, set())
        return next(iter(units)) if len(units) == 1 else ""


class _Source(NamedTuple):
    known: Known
    words: frozenset[str]


class Place(NamedTuple):
    """The source that a fact rests on, or None and why there is none."""

    source: int | None
    reason: str = ""


class Grounds:
    """The question and the sources: what `known` holds, and where facts may stand."""

    def __init__(self, question: str, sources: Mapping[int, str]) -> None:
        self.known = Known()
        self._sources: dict[int, _Source] = {}
        self._labels = set(_labels(question).values())
        self.known.add_text(question)
        if _TWICE.search(question):
            self.known.add(Value(Fraction(2)))
        for number, text in sources.items():
            known = Known()
            known.add_text(text)
            self.known.add_text(text)
            self._labels.update(_labels(text).values())
            self._sources[number] = _Source(known, frozenset(stems(text)))

    def place(self, fact: str, cited: int) -> Place:
        """The cited source when it has all numbers of the fact, else the one that has them and most of its words."""
        labels = _labels(fact)
        needed = [quantity for quantity in quantities(fact) if self._is_needed(quantity, labels)]
        home = self._sources.get(cited)
        missing = [q.value for q in needed if home is None or not home.known.has(q.value)]
        if home and not missing:
            return Place(cited)
        words = stems(fact)
        shares = {
            number: sum(word in source.words for word in words) / max(1, len(words))
            for number, source in self._sources.items()
            if all(source.known.has(quantity.value) for quantity in needed)
        }
        best = max(shares, key=lambda number: shares[number], default=None)
        if best is not None and shares[best] > _MOST:
            return Place(best)
        if home is None:
            return Place(None, f"there is no source {cited}")
        return Place(None, f"{', '.join(map(format_value, missing))} does not stand in source {cited}")

    def _is_needed(self, quantity: Quantity, labels: Mapping[int, tuple[str, Fraction]]) -> bool:
        """Not "one", which is seldom a count, and no number of a name that the question or a source has ("bus 14")."""
        if quantity.spelled and quantity.number == 1:
            return False
        return bool(quantity.unit) or labels.get(quantity.start) not in self._labels


def stems(text: str) -> list[str]:
    """The words of a text, cut to their beginnings."""
    return [word[:_STEM_CHARS] for word in _WORD.findall(text.casefold())]


def name_of(text: str) -> Name:
    """A name in a form that can be compared: its words, without case and signs."""
    return tuple(re.findall(r"\w+", text.casefold()))


def place_in(name: Name, text: Name) -> int | None:
    """Where the words of the name stand in the text, one after the other."""
    starts = range(len(text) - len(name) + 1) if name else ()
    return next((start for start in starts if text[start : start + len(name)] == name), None)


def value_in(fact: str) -> Value | None:
    """The one value a fact states: after its colon, else its only number with a unit, else its only number."""
    tail = fact.rpartition(": ")[2]
    try:
        return measured(tail)
    except ArithmeticFailure:
        found = quantities(tail)
    for group in ([quantity for quantity in found if quantity.unit], found):
        if len(group) == 1:
            return group[0].value
    return None


def numbers_of_result(result: str) -> list[Quantity]:
    """The numbers that a result states; one that reads as an expression has its value ("-5", "2 hours 5 min")."""
    found = quantities(result)
    try:
        value = measured(result)
    except ArithmeticFailure:
        return found
    return [found[0]._replace(number=value.number, unit=value.unit)] if len(found) == 1 else found


def agrees(stated: Value, value: Value) -> bool:
    """Whether they are the same; a value of more than two decimals may be stated rounded to one or more."""
    one, other = base(stated), base(value)
    if one and other:
        if one[0] != other[0]:
            return False
        size = base(Value(Fraction(1), stated.unit))
        value = Value(other[1] / size[1]) if size else value
    if stated.number == value.number:
        return True
    places = next((n for n in range(1, 5) if (stated.number * 10**n).denominator == 1), 0)
    if stated.number.denominator == 1 or not places or (value.number * 100).denominator == 1:
        return False
    return bool(abs(stated.number - value.number) * 2 * 10**places <= 1)


def with_number(result: str, stated: Quantity, value: Value) -> str:
    """The result with another number, in the wording it came in; the plain value where that has another unit."""
    if stated.unit not in (value.unit, UNKNOWN, ""):
        return format_value(value)
    old = narrowed(result)[stated.start : stated.end]
    money = re.match(r"[^\w\s.,−-]*", old)
    new = ("-" if value.number < 0 else "") + (money[0] if money else "") + format_number(abs(value.number))
    return result[: stated.start] + new + result[stated.end :]


def _labels(text: str) -> dict[int, tuple[str, Fraction]]:
    """Numbers that follow a word, as in "bus 14", by the place where the number begins."""
    return dict(_each_label(narrowed(text)))


def _each_label(text: str) -> Iterator[tuple[int, tuple[str, Fraction]]]:
    for match in _LABEL.finditer(text):
        word = match[1].casefold()
        quantity = quantity_at(text, match.end())
        if quantity and word not in _NO_LABELS:
            yield match.end(), (word, quantity.number)
