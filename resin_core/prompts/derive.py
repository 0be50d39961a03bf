"""The derivation's wire form: one line for each option and quantity, with the sentences its values are from.

A small model lists values well and calculates badly, so it writes down what belongs together and code does the rest:
totals, each limit against each option, differences. A line keeps every value attached to what it is a value of
(RESIN section 3.2). Lines instead of JSON: a third of the tokens, and fewer wrong sentence numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from resin_core.online.arithmetic import ArithmeticFailure, evaluate
from resin_core.online.derivation_records import Checked, CheckLine, FactLine, SumLine

MAX_LINES = 24
_BOUNDS = {
    "<=": ("within", "over"),
    "≤": ("within", "over"),
    "<": ("under", "not under"),
    ">=": ("at least", "less than"),
    "≥": ("at least", "less than"),
    ">": ("over", "not over"),
    "=": ("equal to", "not equal to"),
}
LIMIT = "limit"

RULES = """TASK: values. Write one line for each option and each quantity that the question is about: "option, \
quantity: value [number of its sentence] + value [number]". All values that make up one total stand in one line, \
joined by +. Then one line for each limit in the question, if it sets any: "limit, quantity: <= value" (or >=, <, >). \
Copy values with their units. Do not calculate. Write nothing that the question does not need."""

_LINE = re.compile(r"[-*\s]*(?P<option>[^:,]{1,80})(?:,\s*(?P<quantity>[^:]{1,60}))?:\s*(?P<rest>.{1,300})")
_TERM = re.compile(r"(?P<value>[^\[\]+=]{1,80}?)\s*\[(?P<source>\d{1,4})\]")
_BOUND = re.compile(r"(?P<relation><=|>=|<|>|=|≤|≥)\s*(?P<value>.{1,60})")
_VERDICT = re.compile(r"(?:,\s*)?\bwhich is\b.*$|[.;]\s*(?:Ruled out|Keeps all limits)\W*$")
_QUANTITY_VALUE = re.compile(r"(?P<quantity>[^\W\d][^\d$€£¥:]{0,40}?)\s*:?\s*(?P<value>\W?\d.{0,200})")
_MARK = re.compile(r"\s*\[\d{1,4}\]")
_DIGIT = re.compile(r"\d")
# Arithmetic over values that other lines have: no sentence of its own, but nothing except numbers and units either.
_SUM = re.compile(r"\W?\d[^+*/×÷]{0,40}(?:[+\-*/×÷−]\s*\W?\d[^+*/×÷]{0,40})+")


class Values(NamedTuple):
    """A line read: its values as facts with their sentences, what is summed, and the total the model claims, if any."""

    option: str
    quantity: str
    facts: tuple[FactLine, ...]
    expression: str
    claimed: str

    @classmethod
    def sum_of(cls, option: str, quantity: str, facts: Sequence[FactLine]) -> Values:
        """A line that adds up its facts."""
        return cls(option, quantity, tuple(facts), " + ".join(map(value_of, facts)), "")

    @property
    def name(self) -> str:
        """As the line begins."""
        return f"{self.option}, {self.quantity}" if self.quantity else self.option

    def keeping(self, facts: Sequence[FactLine]) -> Values:
        """The line with these of its facts: its expression as written when none is gone, else the sum of the rest."""
        whole = len(facts) == len(self.facts)
        expression = self.expression if whole else self.sum_of(self.option, self.quantity, facts).expression
        return self._replace(facts=tuple(facts), expression=expression)


def value_of(fact: FactLine) -> str:
    """The value of a fact "option: value"."""
    return fact.fact.partition(": ")[2]


class Limit(NamedTuple):
    """A bound that the question sets on a quantity."""

    quantity: str
    relation: str
    value: str


def parse(text: str) -> tuple[list[Values], list[Limit]]:
    """The lines of a reply; what is not of the form, or repeats, is passed over."""
    values: dict[str, Values] = {}
    limits: list[Limit] = []
    for row in _rows(text)[:MAX_LINES]:
        match = _LINE.fullmatch(row)
        if match is None:
            continue
        option, quantity = _MARK.sub("", match["option"]).strip(), (match["quantity"] or "").strip()
        rest = match["rest"].strip()
        inside = None if quantity else _QUANTITY_VALUE.fullmatch(rest)
        if inside:  # "A: time 2 days [1]", as worked values are written.
            quantity, rest = inside["quantity"].strip(), inside["value"]
        if option.casefold() == LIMIT:
            bound = _BOUND.fullmatch(rest)
            if bound and quantity:
                limits.append(Limit(quantity, bound["relation"], _MARK.sub("", bound["value"]).strip()))
            continue
        left, _, claimed = rest.partition("=")
        facts = tuple(
            FactLine(fact=f"{option}: {term['value'].strip()}", source=int(term["source"]))
            for term in _TERM.finditer(left)
            if _DIGIT.search(term["value"])
        )
        found = Values(option, quantity, facts, _MARK.sub("", left).strip(), _MARK.sub("", claimed).strip())
        if facts or _SUM.fullmatch(found.expression):
            key = found.name.casefold() if quantity else f"{option.casefold()}: {found.expression}"
            values.setdefault(key, found)
    return list(values.values()), list(dict.fromkeys(limits))


def _rows(text: str) -> list[str]:
    """One row a quantity: "A, time: 2 days [1], which is within 3 days; price $4 [2]" is two."""
    rows = []
    for row in text.splitlines():
        first, *more = (_VERDICT.sub("", part).strip() for part in row.split(";"))
        rows.append(first)
        option = first.partition(":")[0].partition(",")[0].strip()
        for part in more:
            match = _QUANTITY_VALUE.fullmatch(part)
            if match:
                rows.append(f"{option}, {match['quantity']}: {match['value']}")
    return rows


def totals(values: Sequence[Values]) -> list[SumLine]:
    """One sum for each line that has something to add up."""
    return [
        SumLine(name=line.name, sum=line.expression, result=line.claimed)
        for line in values
        if re.search(r"[+*/×÷]", line.expression)
    ]


def differences(values: Sequence[Values]) -> list[SumLine]:
    """Between options, quantity by quantity, larger less smaller: what "which is more" and "by how much" ask for."""
    found = []
    for one, other in combinations(values, 2):
        if not one.quantity or one.quantity.casefold() != other.quantity.casefold():
            continue
        try:
            less = evaluate(f"({one.expression}) - ({other.expression})").number < 0
        except ArithmeticFailure:
            continue
        more, rest = (other, one) if less else (one, other)
        name = f"{one.quantity}, {more.option} minus {rest.option}"
        found.append(SumLine(name=name, sum=f"{_bracketed(more)} - {_bracketed(rest)}"))
    return found


def _bracketed(line: Values) -> str:
    return f"({line.expression})" if len(line.facts) > 1 else line.expression


def checks(values: Sequence[Values], limits: Sequence[Limit]) -> list[CheckLine]:
    """Each option that has the quantity against each limit."""
    return [
        CheckLine(check=line.name, left=line.expression, relation=limit.relation, right=limit.value)
        for line in values
        for limit in limits
        if line.quantity.casefold() == limit.quantity.casefold()
    ]


def written(values: Sequence[Values]) -> str:
    """The lines as the model should have written them: with the sentence numbers that were put right."""
    return "\n".join(f"{line.name}: {_terms(line)}" for line in values)


def render(values: Sequence[Values], checked: Checked, limits: Sequence[Limit] = ()) -> str:
    """The worked values as the model sees them for the answer, in the form of the prompt's example.

    With limits, one line an option says all there is to say of it: what a small model can repeat, it does not spoil.
    """
    results = {line.name: line.result for line in checked.sums}
    outcomes: dict[str, list[CheckLine]] = {}
    for check in checked.checks:
        outcomes.setdefault(check.check, []).append(check)
    bounds_set = {(limit.relation, limit.value) for limit in limits}
    said: dict[str, list[str]] = {}
    for line in values:
        value = _terms(line)
        if line.name in results:
            # The total alone: shown the parts as well, a small model adds them up again.
            marks = "".join(f"[{source}]" for source in dict.fromkeys(fact.source for fact in line.facts))
            value = f"{results[line.name]} {marks}"
        bounds = "".join(f", which is {_bound(check)}" for check in outcomes.get(line.name, ()))
        said.setdefault(line.option, []).append(f"{line.quantity} {value}{bounds}".strip())
    lines = []
    for option, parts in said.items():
        own_checks = [c for line in values if line.option == option for c in outcomes.get(line.name, ())]
        known = {(check.relation, check.right) for check in own_checks}
        # An option with a value missing is neither: only what was compared is said of it.
        verdict = ". Keeps all limits" if bounds_set and known == bounds_set else ""
        verdict = verdict if all(check.holds for check in own_checks) else ". Ruled out"
        lines.append(f"{option}: {'; '.join(parts)}{verdict}")
    own = {line.name for line in values}
    return "\n".join(
        lines + [f"{line.name}: {line.sum} = {line.result}" for line in checked.sums if line.name not in own]
    )


def _bound(check: CheckLine) -> str:
    holds, fails = _BOUNDS[check.relation]
    return f"{holds if check.holds else fails} {check.right}"


def _terms(line: Values) -> str:
    return " + ".join(f"{value_of(fact)} [{fact.source}]" for fact in line.facts)
