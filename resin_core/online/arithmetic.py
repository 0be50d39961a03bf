"""Exact arithmetic on short expressions as models write them: "10 + 35 minutes", "3 × $4", "(1,250 − 50) / 4".

Small models add badly, so the sums and comparisons of a derivation are evaluated here: own tokenizer and recursive
descent over fractions, bounded in length, depth, operations and size. Units are read, converted and remembered.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from resin_core.online.quantities import (
    LETTER,
    MONEY_SIGNS,
    UNKNOWN,
    Quantity,
    Value,
    added,
    base,
    comparable,
    narrowed,
    quantity_at,
    runs_on,
    unit_named,
)

__all__ = [
    "ArithmeticFailure", "Value", "compare", "compare_values", "evaluate", "format_number", "format_value", "literals",
    "measured",
]  # fmt: skip

MAX_CHARS: Final = 200
MAX_OPERATIONS: Final = 50
MAX_DEPTH: Final = 20
MAX_NUMBER: Final = 10**15

_ADDING, _SCALING = ("+", "-"), ("*", "/")
_OPERATORS: Final = dict(zip("+-−*×·⋅/÷()", "+--****//()", strict=True)) | {
    "plus": "+", "minus": "-", "times": "*", "x": "*"
}  # fmt: skip
_CROSS: Final = re.compile(rf"x\s*[\d(.{MONEY_SIGNS}]", re.IGNORECASE)
_TRAILING: Final = re.compile(rf"{LETTER}+(?:['’.²³]|[/-](?={LETTER})|{LETTER})*")
_REMARK: Final = re.compile(rf"\(\s*({LETTER}+)[^()\d+*/×÷−]*\)")

_LESS, _MORE = ("less", "fewer", "lower", "cheaper", "shorter"), ("more", "greater", "higher", "longer")
_RELATIONS: Final[dict[str, Callable[[Fraction, Fraction], bool]]] = {
    **dict.fromkeys(("<", "below", "under", *(f"{word} than" for word in _LESS)), operator.lt),
    **dict.fromkeys((">", "above", "over", *(f"{word} than" for word in _MORE)), operator.gt),
    **dict.fromkeys(("<=", "≤", "=<", "at most", "within", "up to", "no more than", "not more than"), operator.le),
    **dict.fromkeys((">=", "≥", "=>", "at least", "no less than", "not less than"), operator.ge),
    **dict.fromkeys(("=", "==", "is", "equals", "equal to", "same as"), operator.eq),
    **dict.fromkeys(("!=", "≠", "<>", "not equal to", "different from"), operator.ne),
}


class ArithmeticFailure(ValueError):  # noqa: N818
    """An expression that cannot be evaluated, and why; it never leaves `resin_core.online`."""


def evaluate(expression: str) -> Value:
    """The value of + - * / ( ) over numbers with units, exact. An unknown or mixed unit is "".

    A comma before groups of three is a thousands mark, any other a decimal comma. A percentage scales what it
    multiplies. Times, lengths, masses and volumes are added in the smaller unit. At most 200 characters, 50
    operations, 20 brackets deep and 10**15 large. Raises ArithmeticFailure, and nothing else.
    """
    value = measured(expression)
    return Value(value.number) if value.unit == UNKNOWN else value


def measured(expression: str) -> Value:
    """As `evaluate`, but an unknown or mixed unit is UNKNOWN. Raises ArithmeticFailure."""
    return _Parser(_tokens(expression)).whole()


def literals(expression: str) -> tuple[Quantity, ...]:
    """The numbers of an expression as they stand, with UNKNOWN for an unknown unit. Raises ArithmeticFailure."""
    return tuple(token for token in _tokens(expression) if isinstance(token, Quantity))


def compare(left: str, relation: str, right: str) -> bool | None:
    """Whether `left relation right` holds; None where a side or the relation cannot be read, or the units differ.

    The relation is a sign (<, <=, =, >=, >, !=) or words such as "at most", "within", "less than".
    """
    try:
        return compare_values(measured(left), relation, measured(right))
    except ArithmeticFailure:
        return None


def compare_values(left: Value, relation: str, right: Value) -> bool | None:
    """As `compare`. A number without a unit compares with anything, by its number."""
    test = _RELATIONS.get(" ".join(relation.casefold().split()))
    if test is None or not comparable(left, right):
        return None
    one, other = base(left), base(right)
    return test(one[1], other[1]) if one and other else test(left.number, right.number)


def format_number(number: Fraction) -> str:
    """Decimal digits: at most four after the point, halves away from zero, no trailing zeros."""
    scaled = int(abs(number) * 10**4 + Fraction(1, 2))
    whole, rest = divmod(scaled, 10**4)
    text = f"{whole}.{rest:04d}".rstrip("0").rstrip(".")
    return f"-{text}" if number < 0 and scaled else text


def format_value(value: Value) -> str:
    """The number with its unit, where that is known: "$4", "40%", "90 minutes"."""
    text = format_number(value.number)
    if value.unit and value.unit in MONEY_SIGNS:
        return f"-{value.unit}{text[1:]}" if text.startswith("-") else value.unit + text
    return text if value.unit in ("", UNKNOWN) else f"{text}{'' if value.unit == '%' else ' '}{value.unit}"


def _tokens(expression: str) -> list[Quantity | str]:
    """Numbers with their units, operators and brackets; a unit after a bracket is its name after a colon."""
    if len(expression) > MAX_CHARS:
        raise ArithmeticFailure(f"it has {len(expression)} characters; at most {MAX_CHARS} are read")
    text, tokens, at = narrowed(expression), list[Quantity | str](), 0
    while at < len(text):
        last = tokens[-1] if tokens else ""
        done = isinstance(last, Quantity) or last[:1] in (")", ":")
        word = _TRAILING.match(text, at)
        name = word[0].casefold() if word else text[at]
        if text[at].isspace():
            at += 1
        elif isinstance(last, Quantity) and (remark := _REMARK.match(text, at)):
            tokens[-1], at = _with_word(last, remark[1]), remark.end()
        elif done and _CROSS.match(text, at):
            tokens.append("*")
            at += 1
        elif name in _OPERATORS and name != "x":
            tokens.append(_OPERATORS[name])
            at += len(word[0]) if word else 1
        elif quantity := quantity_at(text, at):
            tokens.append(quantity._replace(factor=last in _SCALING))
            at = quantity.stop
        elif word and done:
            if isinstance(last, Quantity):
                tokens[-1] = _with_word(last, name)
            elif last == ")" and (unit := unit_named(name)):
                tokens.append(f":{unit.name}")
            at = word.end()
        else:
            raise ArithmeticFailure(f"{text[at : at + 20]!r} is no number, operator or unit")
    if sum(token in (*_ADDING, *_SCALING) for token in tokens) > MAX_OPERATIONS:
        raise ArithmeticFailure(f"it has more than {MAX_OPERATIONS} operations")
    return tokens


def _with_word(quantity: Quantity, word: str) -> Quantity:
    """The quantity with a further word after it: a unit, or a remark on what it is."""
    known = unit_named(word)
    if word.casefold() == "per":
        return quantity._replace(unit=UNKNOWN)
    if quantity.unit in ("", UNKNOWN):
        return quantity._replace(unit=known.name if known else UNKNOWN)
    return quantity


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, tokens: list[Quantity | str]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    def whole(self) -> Value:
        value = self._sum()
        if self._at < len(self._tokens):
            raise ArithmeticFailure("two numbers stand side by side, or a bracket is closed that was not opened")
        return value

    def _next(self) -> Quantity | str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _sum(self) -> Value:
        value = self._product()
        while (sign := self._next()) in _ADDING:
            self._at += 1
            value = _bounded(_add(value, self._product(), 1 if sign == "+" else -1))
        return value

    def _product(self) -> Value:
        value = self._signed()
        while (sign := self._next()) in _SCALING:
            self._at += 1
            value = _bounded((_times if sign == "*" else _over)(value, self._signed()))
        return value

    def _signed(self) -> Value:
        factor = 1
        while (sign := self._next()) in _ADDING:
            factor, self._at = -factor if sign == "-" else factor, self._at + 1
        value = self._operand()
        return value._replace(number=factor * value.number)

    def _operand(self) -> Value:
        first = self._next()
        self._at += 1
        if isinstance(first, Quantity):
            value, last = first.value, first
            while isinstance(further := self._next(), Quantity) and runs_on(last.value, further.value):
                value, last, self._at = added(value, further.value), further, self._at + 1
            return _bounded(value)
        if first != "(":
            raise ArithmeticFailure("a number is missing")
        if self._depth == MAX_DEPTH:
            raise ArithmeticFailure(f"more than {MAX_DEPTH} brackets are open at once")
        self._depth += 1
        value = self._sum()
        self._depth -= 1
        if self._next() != ")":
            raise ArithmeticFailure("a bracket is not closed")
        self._at += 1
        if isinstance(unit := self._next(), str) and unit.startswith(":"):
            self._at += 1
            value = value._replace(unit=value.unit or unit[1:])
        return value


def _bounded(value: Value) -> Value:
    if abs(value.number) > MAX_NUMBER:
        raise ArithmeticFailure(f"a number is larger than {MAX_NUMBER}")
    return value


def _add(left: Value, right: Value, sign: int) -> Value:
    if left.unit != right.unit and "%" in (left.unit, right.unit):
        raise ArithmeticFailure("a percentage and something else cannot be added; multiply by it first")
    return added(left, right._replace(number=sign * right.number))


def _times(left: Value, right: Value) -> Value:
    if "%" in (left.unit, right.unit):
        share, whole = (left, right) if left.unit == "%" else (right, left)
        return Value(share.number * whole.number / 100, whole.unit)
    return Value(left.number * right.number, UNKNOWN if left.unit and right.unit else left.unit or right.unit)


def _over(left: Value, right: Value) -> Value:
    if not right.number:
        raise ArithmeticFailure("it divides by zero")
    one, other = base(left), base(right)
    if one and other and one[0] == other[0]:
        return Value(one[1] / other[1])
    if right.unit == "%":
        return Value(left.number * 100 / right.number, left.unit)
    if left.unit == right.unit:
        return Value(left.number / right.number)
    return Value(left.number / right.number, UNKNOWN if right.unit else left.unit)
