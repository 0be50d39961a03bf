"""Numbers with their units as they stand in a text, compared by value and not by spelling.

"two", "2", "1,000", "1000", "$4", "35-minute", "1 hour 20 minutes", "-5 °C". Number words are English; digits may be
of any script, with the thousands and decimal marks in use.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple

# A unit that is not known, or a mixture: it has numbers, but it converts to nothing.
UNKNOWN: Final = "?"
MONEY_SIGNS: Final = "$€£¥₺₹"
# Full-width forms, one character for one, so that places stay true.
_WIDE: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
# A digit raised, lowered or in a circle is a letter to the `re` module; here it is none.
LETTER: Final = r"[^\W\d_¼-¾²³¹⁰-₟⅐-↉①-⓿]"


class Value(NamedTuple):
    """An exact number with its unit: a name of the table below, "" (none), or UNKNOWN."""

    number: Fraction
    unit: str = ""


class Quantity(NamedTuple):
    """A number at `text[start:end]`, its sign included, and a known unit (or "") at `text[end:stop]`.

    `spelled`: it is written in words. `factor`: in an expression, it follows a multiplication or division sign.
    """

    number: Fraction
    unit: str
    start: int
    end: int
    stop: int
    spelled: bool = False
    factor: bool = False

    @property
    def value(self) -> Value:
        """The number with its unit."""
        return Value(self.number, self.unit)


class Unit(NamedTuple):
    """`size` counts in the smallest unit of the dimension."""

    name: str
    dimension: str
    size: Fraction


_MEASURES: Final = {  # dimension: name, size and further spellings of each unit; a plural s is understood
    "time": "seconds 1 s sec second|minutes 60 min minute|hours 3600 h hr hour|days 86400 day|weeks 604800 week",
    "calendar": "months 1 month|years 12 yr year",
    "length": "mm 1 millimetre millimeter|cm 10 centimetre centimeter|m 1000 metre meter|km 1000000 kilometre",
    "mass": "mg 1 milligram|g 1000 gram|kg 1000000 kilogram|t 1000000000 tonne",
    "volume": "ml 1 millilitre milliliter|cl 10 centilitre centiliter|litres 1000 l litre liter",
    "%": "% 1 percent", "°c": "°C 1 celsius", "°f": "°F 1 fahrenheit", "$": "$ 1 us$ usd dollar", "€": "€ 1 eur euro",
    "£": "£ 1 gbp", "¥": "¥ 1 jpy yen", "₺": "₺ 1 try lira", "₹": "₹ 1 inr rupee", "chf": "CHF 1 franc",
}  # fmt: skip


def _units() -> Iterator[tuple[str, Unit]]:
    for dimension, line in _MEASURES.items():
        for entry in line.split("|"):
            name, size, *spellings = entry.split()
            for spelling in (name.casefold(), *spellings, *(f"{spelling}s" for spelling in spellings)):
                yield spelling, Unit(name, dimension, Fraction(size))


_UNITS: Final = dict(_units())
_SMALL: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS: Final = {word: n for n, word in enumerate(_SMALL)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_SCALES: Final = {"hundred": 100, "dozen": 12, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_MONEY_SCALES: Final = _SCALES | {"k": 10**3, "m": 10**6, "mn": 10**6, "bn": 10**9, "b": 10**9}

_MAX_DIGITS: Final = 40
_GAP: Final = "[ \u00a0\u2009\u202f'’]"
_DIGITS: Final = (
    rf"(?:\d{{1,6}}\ ?)?[¼-¾⅐-⅞]|\d{{1,3}}(?:{_GAP}\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*|(?<![\w.])\.\d+"
)
_NUMBER: Final = re.compile(
    rf"(?:(?P<money>(?:\bUS)?[{MONEY_SIGNS}]|\b(?-i:USD|EUR|GBP|JPY|TRY|INR|CHF)\b)\s?)?"
    # ASCII case only: else a dotless i is an i, and a word is found here that the table does not have.
    rf"(?:(?P<digits>{_DIGITS})|\b(?P<word>(?a:{'|'.join((*_WORDS, *_SCALES))}))\b)",
    re.IGNORECASE,
)
_WORD: Final = re.compile("[a-zA-Z]+")
_NEXT_WORD: Final = re.compile(r"(?:\s+[aA]nd\s+|[\s-]+)([a-zA-Z]+)\b")
_SCALE: Final = re.compile(r"[\s-]?([a-zA-Z]+)\b")
_UNIT: Final = re.compile(rf"\s?-?(°\s?[CF]\b|%|[{MONEY_SIGNS}]|{LETTER}+(?:[²³]|/{LETTER}+)*)")
_SIGN: Final = re.compile(r"(?:^|[\s(:])[-−]$|\bminus\s$", re.IGNORECASE)
_JOINED: Final = re.compile(r"\s*(?:,|and\b)?\s*", re.IGNORECASE)


def unit_named(word: str) -> Unit | None:
    """The unit of that name or spelling, in any case."""
    return _UNITS.get(word.casefold().replace(" ", ""))


def narrowed(text: str) -> str:
    """Full-width letters, digits and signs as plain ones, at the same places."""
    return text.translate(_WIDE)


def base(value: Value) -> tuple[str, Fraction] | None:
    """What a known unit measures, and the value in that dimension's smallest unit."""
    unit = unit_named(value.unit)
    return (unit.dimension, value.number * unit.size) if unit else None


def base_readings(number: Fraction) -> set[tuple[str, Fraction]]:
    """`base` of the number under every known unit: what a number without one may stand for."""
    return {(unit.dimension, number * unit.size) for unit in _UNITS.values()}


def comparable(left: Value, right: Value) -> bool:
    """Whether the units allow a comparison: one has none, both are unknown, or both measure the same."""
    one, other = base(left), base(right)
    return not left.unit or not right.unit or left.unit == right.unit or bool(one and other and one[0] == other[0])


def runs_on(last: Value, value: Value) -> bool:
    """Whether the two, side by side, are one measure, as in "1 hour 20 minutes"."""
    one, other = unit_named(last.unit), unit_named(value.unit)
    return bool(one and other and one.dimension == other.dimension and one.size > other.size)


def added(left: Value, right: Value) -> Value:
    """The sum, in the smaller unit where they measure the same; UNKNOWN where they do not."""
    one, other = unit_named(left.unit), unit_named(right.unit)
    if one and other and one.dimension == other.dimension:
        small = min(one, other, key=lambda unit: unit.size)
        return Value((left.number * one.size + right.number * other.size) / small.size, small.name)
    mixed = left.unit and right.unit and left.unit != right.unit
    return Value(left.number + right.number, UNKNOWN if mixed else left.unit or right.unit)


def quantity_at(text: str, at: int) -> Quantity | None:
    """The quantity that begins exactly at that place of a `narrowed` text, without its sign."""
    match = _NUMBER.match(text, at)
    return _read(text, match) if match else None


def quantities(text: str, every: bool = False) -> list[Quantity]:
    """The numbers of any text, in their order; "1 hour 20 minutes" is one of 80 minutes.

    `every` adds what they may be read as besides: the parts of such a time, "1.250" as 1250, "14 350" as two numbers.
    """
    found: list[Quantity] = []
    extra: list[Quantity] = []
    at, text = 0, narrowed(text)
    while match := _NUMBER.search(text, at):
        quantity = _read(text, match)
        at = quantity.stop if quantity else match.end()
        if match["digits"] and (every or quantity is None):
            extra += _other_readings(match, quantity is None)
        if quantity is None:
            continue
        if _SIGN.search(text[max(0, quantity.start - 7) : quantity.start]):
            start = quantity.start - (text[quantity.start - 1] in "-−")
            quantity = quantity._replace(number=-quantity.number, start=start)
        last = found[-1] if found else None
        if last and runs_on(last.value, quantity.value) and _JOINED.fullmatch(text, last.stop, quantity.start):
            extra += [last, quantity] if every else []
            both = added(last.value, quantity.value)
            found[-1] = quantity._replace(number=both.number, unit=both.unit, start=last.start)
        else:
            found.append(quantity)
    return sorted(found + extra, key=lambda quantity: quantity.start)


def _other_readings(match: re.Match[str], broken: bool) -> list[Quantity]:
    digits = match["digits"]
    others = []
    if broken or (re.search(_GAP, digits) and digits[-1].isdecimal()):
        others = [Fraction(run) for run in re.findall(r"\d+", digits) if len(run) <= _MAX_DIGITS]
    elif re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", digits):
        others = [Fraction(re.sub("[.,]", mark, digits)) for mark in ("", ".")]
    return [Quantity(number, "", match.start(), match.end(), match.end()) for number in others]


def _read(text: str, match: re.Match[str]) -> Quantity | None:
    """The quantity of a match of _NUMBER; None where its digits make no number."""
    end, money = match.end(), match["money"]
    if match["word"]:
        number, end = _spelled(text, match.start("word"))
    else:
        read = _from_digits(match["digits"])
        if read is None:
            return None
        number, scale = read, _SCALE.match(text, end)
        factor = (_MONEY_SCALES if money else _SCALES).get(scale[1].casefold()) if scale else None
        if scale and factor:
            number, end = number * factor, scale.end()
    stop, unit = end, unit_named(money) if money else None
    # "1980s" is no time.
    if unit is None and (after := _UNIT.match(text, end)) and after[0] != "s":
        unit = unit_named(after[1])
        stop = after.end() if unit else end
    return Quantity(number, unit.name if unit else "", match.start(), end, stop, bool(match["word"]))


def _from_digits(digits: str) -> Fraction | None:
    """A comma or point before groups of three is a thousands mark when it must be: "1,250", "1.250,5", "1.250.000"."""
    body = re.sub(_GAP, "", digits)
    if len(body) > _MAX_DIGITS:
        return None
    if not body[-1].isdecimal():
        return Fraction(body[:-1] or 0) + Fraction(unicodedata.numeric(body[-1])).limit_denominator(10)
    mark, other = (".", ",") if body.rfind(".") > body.rfind(",") else (",", ".")
    whole, _, rest = body.rpartition(mark)
    if mark not in body:
        return Fraction(body)
    if other in body:
        return Fraction(f"{whole.replace(other, '')}.{rest}") if _is_grouped(whole, other) else None
    if _is_grouped(body, mark) and (mark == "," or body.count(mark) > 1):
        return Fraction(body.replace(mark, ""))
    return Fraction(f"{whole}.{rest}") if body.count(mark) == 1 else None


def _is_grouped(digits: str, mark: str) -> bool:
    # Groups of two before the last are those of India: 1,25,000.
    return re.fullmatch(rf"[1-9]\d{{0,2}}(?:[{mark}]\d{{2,3}})*[{mark}]\d{{3}}", digits) is not None


def _spelled(text: str, at: int) -> tuple[Fraction, int]:
    """The number in words at that place and where it ends: "two hundred and five", "twenty-one"."""
    total = current = 0
    end, match = at, _WORD.match(text, at)
    while match:
        word = match[match.lastindex or 0].casefold()
        small, scale = _WORDS.get(word), _SCALES.get(word, 0)
        begun, room = end > at, current % 100 == 0 or (current % 10 == 0 and current % 100 >= 20)
        if small is not None and (not begun or (0 < small < (100 if current % 100 == 0 else 10) and room)):
            # "zero five" is two numbers.
            if begun and not current and not total:
                break
            current += small
        elif scale > 100 and (not begun or current):
            total, current = total + (current or 1) * scale, 0
        elif scale and (not begun or 0 < current < 100):
            current = (current or 1) * scale
        else:
            break
        end, match = match.end(), _NEXT_WORD.match(text, match.end())
    return Fraction(total + current), end
