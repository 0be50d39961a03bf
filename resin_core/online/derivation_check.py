"""The check of a derivation, line by line: facts against sources, sums and comparisons against arithmetic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from resin_core.online.arithmetic import (
    ArithmeticFailure,
    compare_values,
    format_number,
    format_value,
    literals,
    measured,
)
from resin_core.online.derivation_records import (
    Checked,
    CheckLine,
    Correction,
    CorrectionKind,
    DerivationReply,
    Dropped,
    FactLine,
    SumLine,
)
from resin_core.online.grounding import (
    Grounds,
    Name,
    agrees,
    name_of,
    numbers_of_result,
    place_in,
    value_in,
    with_number,
)
from resin_core.online.quantities import LETTER, UNKNOWN, Quantity, Value, base, comparable

# A citation inside a text: the number of the source has its own place, and the answer may only cite what it was given.
_MARKER: Final = re.compile(r"\s*\[\d+(?:\s*,\s*\d+)*\]")
_TIMES_NEXT: Final = re.compile(r"\s*[*×·x]")
# Numbers that no source has to state when they multiply or divide: conversions of times and shares.
_CONSTANTS: Final = frozenset(map(Fraction, (7, 12, 24, 60, 100, 1000)))
# What follows a sum's name where a comparison is about that sum, and not about something of a longer name.
_ABOUT: Final = frozenset(
    re.findall(
        r"\w+",
        "above at below cheaper equal equals exceeds fewer fits greater higher in is larger less longer lower more no "
        "not of over shorter smaller than under up vs within",
    )
)


def check(reply: DerivationReply, sources: Mapping[int, str], question: str = "") -> Checked:
    """The derivation put right: pure, and it does not raise for what a model may write.

    A fact keeps its source when that has all its numbers, gets the one that has them and most of its words, or goes.
    Sums use only numbers of the question, a source or an earlier sum; wrong results are replaced. Comparisons are
    evaluated; an operand that contradicts the sum which the comparison names is replaced by it.
    """
    work = _Checking(Grounds(question, sources))
    facts = [work.fact(line) for line in reply.facts]
    sums = [work.sum(line) for line in reply.sums]
    checks = [work.check(line) for line in reply.checks]
    return Checked(
        facts=tuple(line for line in facts if line),
        sums=tuple(line for line in sums if line),
        checks=tuple(line for line in checks if line),
        dropped=tuple(work.dropped),
        corrections=tuple(work.corrections),
    )


class _Refused(Exception):  # noqa: N818
    """Why a line is dropped."""


class _Operand(NamedTuple):
    """One side of a comparison. `known`: a name, or all its numbers are known ones."""

    value: Value
    shown: str
    known: bool
    named: bool = False


class _Checking:
    """The state of one check: what is known so far, by number and by name, and what was changed."""

    def __init__(self, grounds: Grounds) -> None:
        self.dropped: list[Dropped] = []
        self.corrections: list[Correction] = []
        self._grounds, self._known = grounds, grounds.known
        # By name; None where one name has two values.
        self._facts: dict[Name, Value | None] = {}
        self._sums: dict[Name, Value | None] = {}
        # Wrong results that later lines may still use.
        self._replaced: dict[Fraction, Value] = {}

    def fact(self, line: FactLine) -> FactLine | None:
        """The fact with its right source, or None."""
        text = _unmarked(line.fact)
        place = self._grounds.place(text, line.source)
        if not text or place.source is None:
            self.dropped.append(Dropped(kind="fact", text=line.fact, reason=place.reason or "it is empty"))
            return None
        if place.source != line.source:
            self._correct("source", text, str(line.source), str(place.source))
        if value := value_in(text):
            for name in {text, text.rpartition(": ")[0]}:
                _register(self._facts, name, value)
        return FactLine(fact=text, source=place.source)

    def sum(self, line: SumLine) -> SumLine | None:
        """The sum with known numbers and its right result, or None."""
        line = SumLine(name=_unmarked(line.name), sum=_unmarked(line.sum), result=_unmarked(line.result))
        try:
            expression = self._expression(line)
            value = measured(expression)
            stated = numbers_of_result(line.result)
            if stated and len(literals(expression)) == 1 and not any(agrees(q.value, value) for q in stated):
                raise _Refused(f"it adds nothing up to {line.result!r}")
        except (ArithmeticFailure, _Refused) as error:
            self.dropped.append(Dropped(kind="sum", text=f"{line.name}: {line.sum}", reason=str(error)))
            return None
        if stated and stated[-1].unit == "%" and not value.unit and re.search("[/÷]", expression):
            value = Value(value.number if "100" in expression else value.number * 100, "%")
        fitting = next((quantity for quantity in stated if agrees(quantity.value, value)), None)
        unit = (fitting or stated[-1]).unit if stated else ""
        if value.unit in ("", UNKNOWN):
            value = value._replace(unit=unit)
        result = line.result
        if fitting is None:
            result = with_number(line.result, stated[-1], value) if stated else format_value(value)
            self._correct("result", line.name or expression, line.result, result)
            if stated:
                self._replaced[stated[-1].number] = value
        self._known.add(value)
        self._known.add(Value(abs(value.number), value.unit))
        _register(self._sums, line.name, value)
        return SumLine(name=line.name, sum=expression, result=result)

    def check(self, line: CheckLine) -> CheckLine | None:
        """The comparison as it truly is, or None."""
        line = line.model_copy(update={"check": _unmarked(line.check)})
        texts = [_unmarked(line.left), _unmarked(line.right)]
        sides = self._against_named_sums(line.check, [self._operand(text) for text in texts])
        reason = ""
        for text, side in zip(texts, sides, strict=True):
            if side is None:
                reason = reason or f"{text!r} is no number and no name of a fact or sum"
            elif not side.known:
                reason = reason or f"{text!r} stands in no source, fact or sum"
            elif side.shown != text and not (side.named and name_of(text) in self._named):
                self._correct("operand", line.check, text, side.shown)
        left, right = sides
        holds = compare_values(left.value, line.relation, right.value) if left and right and not reason else None
        if left is None or right is None or holds is None:
            reason = reason or f"{line.left!r} {line.relation} {line.right!r} cannot be compared"
            self.dropped.append(Dropped(kind="check", text=line.check, reason=reason))
            return None
        if holds != line.holds:
            self._correct("holds", line.check, str(line.holds).lower(), str(holds).lower())
        return line.model_copy(update={"left": left.shown, "right": right.shown, "holds": holds})

    @property
    def _named(self) -> dict[Name, Value]:
        """What can be meant by a name: a sum before a fact."""
        return {name: value for name, value in (self._facts | self._sums).items() if value is not None}

    def _correct(self, kind: CorrectionKind, text: str, old: str, new: str) -> None:
        self.corrections.append(Correction(kind=kind, text=text, old=old, new=new))

    def _expression(self, line: SumLine) -> str:
        """The part of the line that is a sum, names put in, all its numbers known. Raises with what it lacks."""
        if re.search("[<>≤≥]", line.sum):
            raise _Refused("it is a comparison")
        parts = [part.strip() for part in re.split(r"[=≈]|:(?!\d)", line.sum) if part.strip()]
        readable: list[tuple[str, tuple[Quantity, ...]]] = []
        failure: Exception = ArithmeticFailure("it is empty")
        for part in (*parts, *map(self._with_names, parts)):
            try:
                measured(part)
                readable.append((part, literals(part)))
            except ArithmeticFailure as error:
                failure = error
        if not readable:
            raise failure
        part, numbers = next((pair for pair in readable if len(pair[1]) > 1), readable[0])
        edits: list[tuple[int, int, str]] = []
        for number in numbers:
            if self._is_usable(number, numbers, part):
                continue
            if number.number not in self._replaced:
                raise _Refused(f"{format_value(number.value)} stands in no source, fact or earlier sum")
            right = format_number(self._replaced[number.number].number)
            edits.append((number.start, number.end, right))
            self._correct("number", line.name or part, part[number.start : number.end], right)
        return _edited(part, edits or self._with_units(numbers))

    def _is_usable(self, number: Quantity, numbers: tuple[Quantity, ...], expression: str) -> bool:
        if self._known.has(number.value, converted=True):
            return True
        if number.unit or not (number.factor or _TIMES_NEXT.match(expression, number.stop)):
            return False
        # The mean of three numbers divides by three.
        return number.number in _CONSTANTS or (number is numbers[-1] and number.number == len(numbers) - 1)

    def _with_units(self, numbers: tuple[Quantity, ...]) -> list[tuple[int, int, str]]:
        """Units for bare numbers that are added, where they came with different ones: 1 hour and 30 minutes."""
        units = [self._known.unit_of(number.number) for number in numbers]
        measures = [base(Value(Fraction(1), unit)) for unit in units]
        if any(number.unit or number.factor for number in numbers) or len(set(units)) < 2:
            return []
        if None in measures or len({measure[0] for measure in measures if measure}) != 1:
            return []
        return [(number.end, number.end, f" {unit}") for number, unit in zip(numbers, units, strict=True)]

    def _with_names(self, text: str) -> str:
        """The text with names of earlier sums and facts replaced by their values."""
        named = self._named
        names = [r"\W+".join(map(re.escape, name)) for name in sorted(named, key=len, reverse=True)]
        if not names:
            return text
        pattern = re.compile(rf"\b(?:{'|'.join(names)})\b", re.IGNORECASE)
        return pattern.sub(lambda match: format_value(named.get(name_of(match[0]), Value(Fraction(0)))), text)

    def _operand(self, text: str) -> _Operand | None:
        words, named = name_of(text), self._named
        if words in named:
            return _by_name(named[words])
        if side := self._by_numbers(text):
            return side
        inside = [name for name in named if place_in(name, words) is not None]
        if inside:
            return _by_name(named[max(inside, key=len)])
        if side := self._by_numbers(text.rpartition(":")[2]):
            return side
        around = {value for name, value in named.items() if place_in(words, name) is not None}
        return _by_name(around.pop()) if len(around) == 1 else None

    def _by_numbers(self, text: str) -> _Operand | None:
        """The operand as an expression; a bare number takes the unit that it always came with."""
        try:
            value, numbers = measured(text), literals(text)
        except ArithmeticFailure:
            return None
        known = all(not number.number or self._is_usable(number, numbers, text) for number in numbers)
        if not known and len(numbers) == 1 and (right := self._replaced.get(value.number)):
            return _Operand(right, format_value(right), known=True)
        if not value.unit and len(numbers) == 1:
            value = value._replace(unit=self._known.unit_of(value.number))
        return _Operand(value, text, known)

    def _against_named_sums(self, text: str, sides: list[_Operand | None]) -> list[_Operand | None]:
        """The sides with those that contradict a sum named in the comparison's text replaced by it."""
        words = name_of(text)
        places = {name: at for name in self._sums if (at := place_in(name, words)) is not None}
        for name, at in sorted(places.items(), key=lambda item: item[1]):
            value = self._sums[name]
            # "total" within "bus total" is not meant.
            if value is None or any(name != other and place_in(name, other) is not None for other in places):
                continue
            if any(side and agrees(side.value, value) for side in sides):
                continue
            after = words[at + len(name) : at + len(name) + 1]
            subject = at == 0 and (not after or after[0] in _ABOUT or after[0].isdecimal())
            for slot, side in enumerate(sides):
                open_ = side is None or not side.known or (subject and slot == 0 and not side.named)
                if open_ and (side is None or comparable(side.value, value)):
                    sides[slot] = _Operand(value, format_value(value), known=True)
                    break
        return sides


def _unmarked(text: str) -> str:
    return _MARKER.sub("", text).strip()


def _register(table: dict[Name, Value | None], text: str, value: Value) -> None:
    name = name_of(text)
    if re.search(LETTER, text):
        table[name] = value if table.get(name, value) == value else None


def _by_name(value: Value) -> _Operand:
    return _Operand(value, format_value(value), known=True, named=True)


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
