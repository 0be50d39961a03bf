from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.online.arithmetic import (
    ArithmeticFailure,
    Value,
    compare,
    compare_values,
    evaluate,
    format_number,
    format_value,
    literals,
    measured,
)
from resin_core.online.quantities import UNKNOWN, quantities


@pytest.mark.parametrize(
    ("expression", "number", "unit"),
    [
        ("10 + 35", 45, ""),
        ("10 − 4 ÷ 2", 8, ""),
        ("3 × 4 · 2", 24, ""),
        ("-(2 + 3) * -4", 20, ""),
        ("3 x 4", 12, ""),
        ("10 plus 5 times 2 minus 1", 19, ""),
        ("１０＋５", 15, ""),
        ("1,250 + 1 250 + 1\u00a0250", 3750, ""),
        ("1.250,5", Fraction("1250.5"), ""),
        ("1,250.5", Fraction("1250.5"), ""),
        ("1,25", Fraction("1.25"), ""),
        ("0,125", Fraction("0.125"), ""),
        ("1.250", Fraction("1.25"), ""),
        ("1.250.000", 1_250_000, ""),
        ("1,25,000", 125_000, ""),
        ("½ + 1½", 2, ""),
        ("two hundred and five + twenty-one", 226, ""),
        ("2 million / 4", 500_000, ""),
        ("$4", 4, "$"),
        ("3 × $4", 12, "$"),
        ("$4m", 4_000_000, "$"),
        ("4 € + 6 EUR", 10, "€"),
        ("$4 + €4", 8, ""),
        ("10 min", 10, "minutes"),
        ("10-minute walk + 35-minute ride", 45, "minutes"),
        ("10 (walk) + 35 (ride)", 45, ""),
        ("(10 + 5) minutes", 15, "minutes"),
        ("10 min-5 min", 5, "minutes"),
        ("1 hour + 30 minutes", 90, "minutes"),
        ("2 hours and 15 minutes - 5 minutes", 130, "minutes"),
        ("1 day + 2 h", 26, "hours"),
        ("1 km + 200 m + 5 mm", 1_200_005, "mm"),
        ("2 kg + 500 g", 2500, "g"),
        ("2 hours / 30 minutes", 4, ""),
        ("8 °C - 10 °C", -2, "°C"),
        ("40%", 40, "%"),
        ("200 * 15%", 30, ""),
        ("$50 * 10%", 5, "$"),
        ("40% + 20%", 60, "%"),
        ("30 / 50%", 60, ""),
        ("60 km/h * 2 h", 120, ""),
        ("$4 per ticket * 3", 12, ""),
        ("3 apples + 5 minutes", 8, ""),
        ("5 m² + 3 m²", 8, ""),
        ("60 litres + 90 litres", 150, "litres"),
    ],
)
def test_value_and_unit_of_an_expression(expression: str, number: int | Fraction, unit: str) -> None:
    assert evaluate(expression) == Value(Fraction(number), unit)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "number is missing"),
        ("()", "number is missing"),
        ("10 +", "number is missing"),
        ("2 ** 3", "number is missing"),
        ("10²", "no number"),
        ("2 ^ 3", "no number"),
        ("1e5", "side by side"),
        ("10 20", "side by side"),
        ("10)", "not opened"),
        ("(10", "not closed"),
        ("1,2,3", "no number"),
        ("1 / (2 - 2)", "divides by zero"),
        ("100 + 10%", "percentage"),
        ("9" * 16, "larger than"),
        ("9" * 15 + " * 9", "larger than"),
        ("9" * 60, "no number"),
        ("1+" * 60 + "1", "operations"),
        ("1" * 201, "at most 200"),
        ("(" * 21 + "1" + ")" * 21, "brackets are open"),
        ("__import__('os')", "no number"),
        ("{10} + 5", "no number"),
        ("10 + 5; 3", "no number"),
        ("walk 10 + ride 35", "no number"),
        ("10 (a + b)", "no number"),
    ],
)
def test_what_is_no_expression_fails_and_says_why(expression: str, why: str) -> None:
    with pytest.raises(ArithmeticFailure, match=why):
        evaluate(expression)


def test_bounds_are_reached_but_not_passed() -> None:
    assert evaluate("1" + "+1" * 50).number == 51
    assert evaluate("(" * 20 + "1" + ")" * 20).number == 1
    assert evaluate("1" + "0" * 15).number == 10**15


def test_unknown_units_are_kept_apart_from_none() -> None:
    assert measured("3 apples").unit == UNKNOWN
    assert measured("3 apples + 5 minutes").unit == UNKNOWN
    assert measured("3").unit == ""


def test_literals_say_where_they_stand() -> None:
    found = literals("$10 + 35 min / 5")
    assert [(q.number, q.unit, q.start, q.end, q.factor) for q in found] == [
        (10, "$", 0, 3, False),
        (35, "minutes", 6, 8, False),
        (5, "", 15, 16, True),
    ]


@pytest.mark.parametrize(
    ("left", "relation", "right", "holds"),
    [
        ("45", "<=", "40", False),
        ("10 + 35", "at most", "45", True),
        ("45 minutes", "<", "1 hour", True),
        ("90 min", "within", "1 hour", False),
        ("1.5 hours", "=", "90 minutes", True),
        ("$8", "<=", "$10", True),
        ("$8", "≤", "10", True),
        ("52 hours", "more than", "37 hours", True),
        ("52 hours", "Less  Than", "37 hours", False),
        ("1,000", "=", "1000", True),
        ("two", "==", "2", True),
        ("5", "!=", "5", False),
        ("5", "at least", "5", True),
        ("-5 °C", "<", "-2 °C", True),
        ("3 apples", "<", "5 pears", True),
        ("$8", "<", "€10", None),
        ("8 minutes", "<", "10 km", None),
        ("3 apples", "<", "5 minutes", None),
        ("8", "near", "10", None),
        ("eight-ish", "<", "10", None),
        ("1/0", "<", "10", None),
    ],
)
def test_compare(left: str, relation: str, right: str, holds: bool | None) -> None:
    assert compare(left, relation, right) is holds


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Fraction(45), "45"),
        (Fraction(1, 2), "0.5"),
        (Fraction(10, 3), "3.3333"),
        (Fraction(2, 3), "0.6667"),
        (Fraction(-1, 4), "-0.25"),
        (Fraction(-1, 10**6), "0"),
        (Fraction(100), "100"),
        (Fraction(10**15), "1000000000000000"),
        (Fraction("1.00005"), "1.0001"),
    ],
)
def test_format_number(number: Fraction, text: str) -> None:
    assert format_number(number) == text


def test_format_value() -> None:
    values = [("$", "-$4"), ("%", "-4%"), ("minutes", "-4 minutes"), ("", "-4"), (UNKNOWN, "-4")]
    assert [format_value(Value(Fraction(-4), unit)) for unit, _ in values] == [text for _, text in values]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a 10-minute walk", [(10, "minutes")]),
        ("takes 1 hour 20 minutes, then 5", [(80, "minutes"), (5, "")]),
        ("two steel spans, opened in 1911", [(2, ""), (1911, "")]),
        ("about twenty-five dollars or US$ 30.", [(25, "$"), (30, "$")]),
        ("stays below -5 °C", [(-5, "°C")]),
        ("minus 5 degrees", [(-5, "")]),
        ("10–12 minutes", [(10, ""), (12, "minutes")]),
        ("the 1980s; try 4", [(1980, ""), (4, "")]),
        ("COVID-19", [(19, "")]),
        ("zero five, one two", [(0, ""), (5, ""), (1, ""), (2, "")]),
        ("five hundred thousand and two, two dozen", [(500_002, ""), (24, "")]),
        ("v1.2.3", [(1, ""), (2, ""), (3, "")]),
        # A dotless i is no i, and letters of other alphabets bound words too.
        ("sıx sİx öten", []),
        ("Lindmar bir pazar kasabasıdır. 林德马是一个集镇。", []),
        ("九" + "9" * 5000, []),
    ],
)
def test_numbers_of_a_text(text: str, found: list[tuple[int, str]]) -> None:
    assert [(q.number, q.unit) for q in quantities(text)] == found


@pytest.mark.parametrize(
    ("text", "also"), [("1.250 lira", 1250), ("1,250", Fraction("1.25")), ("bus 14 350", 14), ("1 hour 20 minutes", 20)]
)
def test_other_readings_of_a_number_are_given_on_request(text: str, also: int | Fraction) -> None:
    assert also not in {q.number for q in quantities(text)}
    assert also in {q.number for q in quantities(text, every=True)}


Tree = tuple[str, Fraction | None]
_numbers = st.integers(0, 999).map(Fraction) | st.integers(0, 9999).map(lambda n: Fraction(n, 100))


def _leaf(number: Fraction) -> Tree:
    return format_number(number), number


def _join(parts: tuple[Tree, str, Tree]) -> Tree:
    (left, a), sign, (right, b) = parts
    if a is None or b is None or (sign == "/" and b == 0):
        value = None
    else:
        value = {"+": a + b, "-": a - b, "*": a * b}[sign] if sign != "/" else a / b
    return f"({left} {sign} {right})", value


_trees = st.recursive(
    _numbers.map(_leaf),
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(_join)
        | inner.map(lambda tree: (f"-{tree[0]}", None if tree[1] is None else -tree[1]))
    ),
    max_leaves=5,
)


@given(_trees)
def test_evaluates_as_fractions_do(tree: Tree) -> None:
    text, expected = tree
    if expected is None:
        with pytest.raises(ArithmeticFailure, match="zero"):
            evaluate(text)
    elif abs(expected) < 10**9:
        assert evaluate(text) == Value(expected, "")


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 99)), min_size=1, max_size=10), st.integers(0, 99))
def test_precedence_without_brackets(steps: list[tuple[str, int]], first: int) -> None:
    terms, product, sign = [], first, 1
    for operator, number in steps:
        if operator == "*":
            product *= number
        else:
            terms.append(sign * product)
            product, sign = number, 1 if operator == "+" else -1
    expected = sum(terms) + sign * product
    if abs(expected) <= 10**12 and max(map(abs, [*terms, product])) <= 10**12:
        assert evaluate(f"{first}" + "".join(f" {o} {n}" for o, n in steps)).number == expected


_PIECES = st.sampled_from(
    [*"1,. ()+-−×/%$x½²{}=ıİ５٣九\u00a0\x00", "23", "°C", "min", "two", "hundred", "per", "km/h", "and"]
)


@given(st.text(max_size=250) | st.lists(_PIECES, max_size=60).map("".join))
def test_any_text_gives_a_value_or_the_one_failure(text: str) -> None:
    quantities(text, every=True)
    try:
        value = evaluate(text)
    except ArithmeticFailure:
        assert compare(text, "<", "5") is None
    else:
        assert abs(value.number) <= 10**15
        assert compare_values(value, "=", value) is True


@pytest.mark.parametrize("piece", ["(", "-", "1 ", "1+", "½", "two ", "x", "1.", "1,", "1 hour ", "a-", "$", "((1)"])
def test_hostile_texts_take_no_time(piece: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ArithmeticFailure):
        evaluate(piece * 5000)
    with pytest.raises(ArithmeticFailure):
        evaluate((piece * 200)[:200])
    quantities(piece * 5000, every=True)
    assert time.perf_counter() - started < 5
