"""From the model's lines of values to worked values: everything that can be calculated is calculated here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resin_core.online.derivation_check import check
from resin_core.online.derivation_records import (
    MAX_SUMS,
    Checked,
    CheckLine,
    DerivationReply,
    Dropped,
    FactLine,
    SumLine,
)
from resin_core.online.grounding import Known, stems
from resin_core.online.quantities import MONEY_SIGNS, UNKNOWN, base, quantities
from resin_core.prompts import derive
from resin_core.prompts.derive import Limit, Values

# More options than that are a list, not a comparison; their differences would crowd out the rest.
_MAX_COMPARED = 4
_BOUND = re.compile(
    r"\b(?:(?P<most>within|at most|no more than|not more than|up to|under|below|less than|fewer than|maximum of)"
    r"|at least|no less than|not less than|more than|over|above|minimum of)\s+(?:of\s+|only\s+)?$",
    re.IGNORECASE,
)


class Worked(NamedTuple):
    """What the answer may rest on: `written`, the model's own lines put right, and `text`, what they come to."""

    written: str
    text: str
    checked: Checked


def work_out(
    reply: str,
    sources: Mapping[int, str],
    titles: Mapping[int, str],
    question: str,
    documents: Mapping[int, str] | None = None,
) -> Worked:
    """Checked values, totals, differences and limits of a reply (RESIN section 3.6: the comparison is the composer's).

    `sources` holds each sentence by its number, `titles` its document's title, `documents` its document's id (not
    given: equal titles are one document). Values that no source states are dropped, wrong sentence numbers put right,
    options that the question does not name set aside when it names others, a value from another option's document taken
    out, a limit that the question does not set left out. Every total and comparison is evaluated, whatever the model
    wrote.
    """
    values, limits = derive.parse(reply)
    dropped: list[Dropped] = []
    further = [SumLine(name=line.name, sum=line.expression, result=line.claimed) for line in values if not line.facts]
    values = _asked_about([line for line in values if line.facts], question, dropped)
    limits = _set_by(question, limits, dropped)
    placed = {number: f"{titles.get(number, '')}: {text}" for number, text in sources.items()}
    first = check(_uncut(facts=tuple(f for line in values for f in line.facts)), placed, question)
    values = _in_asked_units(
        _regrouped(_standing(values, first, placed, titles if documents is None else documents, dropped)),
        question,
        dropped,
    )
    limits += [
        limit for limit in _limits_in(question) if _dimension(limit.value) not in {_dimension(x.value) for x in limits}
    ]
    values, limits = _matched(values, limits)
    sums = derive.totals(values) + further
    texts = " ".join(placed.values()).casefold()
    # A line of its own for a total ("Total cost") answers what is asked; differences would only distract.
    adds_up = bool(further) or any(line.option.casefold() not in texts for line in values if len(line.facts) > 1)
    if not limits and not adds_up and len({line.option for line in values}) <= _MAX_COMPARED:
        sums += derive.differences(values)[: max(0, MAX_SUMS - len(sums))]
    second = check(
        _uncut(
            facts=tuple(fact for line in values for fact in line.facts),
            sums=tuple(sums),
            checks=tuple(derive.checks(values, limits)),
        ),
        placed,
        question,
    )
    checked = second.model_copy(
        update={
            "dropped": (*dropped, *first.dropped, *second.dropped),
            # The model is asked for no comparison and for few results: what it did not write was not wrong.
            "corrections": (*first.corrections, *(c for c in second.corrections if c.old and c.kind != "holds")),
        }
    )
    return Worked(derive.written(values), derive.render(values, checked, limits), checked)


def _uncut(
    facts: tuple[FactLine, ...], sums: tuple[SumLine, ...] = (), checks: tuple[CheckLine, ...] = ()
) -> DerivationReply:
    """All lines: the caps of the JSON form would drop some unsaid, and with them limits that do not hold."""
    return DerivationReply.model_construct(facts=facts, sums=sums, checks=checks)


def _asked_about(values: Sequence[Values], question: str, dropped: list[Dropped]) -> list[Values]:
    asked = set(stems(question))
    named = [line for line in values if asked & set(stems(line.option))]
    return _only(named, values, "the question does not name this option", dropped)


def _set_by(question: str, limits: Sequence[Limit], dropped: list[Dropped]) -> list[Limit]:
    asked = Known()
    asked.add_text(question)
    kept = []
    for limit in limits:
        numbers = quantities(limit.value)
        if numbers and all(asked.has(number.value, converted=True) for number in numbers):
            kept.append(limit)
        else:
            text = f"{limit.quantity} {limit.relation} {limit.value}"
            dropped.append(Dropped(kind="check", text=text, reason="the question sets no such limit"))
    return kept


def _standing(
    values: Sequence[Values],
    checked: Checked,
    placed: Mapping[int, str],
    documents: Mapping[int, str],
    dropped: list[Dropped],
) -> list[Values]:
    """The lines with the facts that stand, each with its right source."""
    stated = set(checked.facts)
    moved = {(c.text, c.old): int(c.new) for c in checked.corrections if c.kind == "source"}
    # Only what a source names is an option that a value could be mixed up with; "total cost" is none.
    texts = " ".join(placed.values()).casefold()
    options = [line.option.casefold() for line in values if line.option.casefold() in texts]
    kept = []
    for line in values:
        own = line.option.casefold()
        facts = []
        for given in line.facts:
            # By text and number: two facts may read alike ("Alba: 4 days" to build and to send).
            source = moved.get((given.fact, str(given.source)), given.source)
            fact = FactLine(fact=given.fact, source=source)
            if fact not in stated:
                continue
            # All that is shown of its document: a sentence may say "it" of what the title names.
            document = documents.get(fact.source)
            shown = (text for number, text in placed.items() if documents.get(number) == document)
            about = " ".join(shown).casefold()
            if own in options and own not in about:
                dropped.append(Dropped(kind="fact", text=fact.fact, reason=f"source {fact.source} is not about it"))
            else:
                facts.append(fact)
        if facts:
            kept.append(line.keeping(facts))
    return kept


def _regrouped(values: Sequence[Values]) -> list[Values]:
    """Lines without a quantity, or with units that cannot be added, sorted into one line for each kind of unit."""
    kept: list[Values] = []
    loose: dict[tuple[str, str], list[FactLine]] = {}
    for line in values:
        kinds = [_dimension(derive.value_of(fact)) for fact in line.facts]
        if (line.quantity and len(set(kinds)) == 1) or not any(kinds):
            kept.append(line)
            continue
        for kind, fact in zip(kinds, line.facts, strict=True):
            loose.setdefault((line.option, kind or line.quantity), []).append(fact)
    named = {(line.option, line.quantity): i for i, line in enumerate(kept)}
    for (option, quantity), facts in loose.items():
        at = named.get((option, quantity))
        if at is None:
            kept.append(Values.sum_of(option, quantity, facts))
        else:
            kept[at] = Values.sum_of(option, quantity, tuple(dict.fromkeys((*kept[at].facts, *facts))))
    return kept


def _in_asked_units(values: Sequence[Values], question: str, dropped: list[Dropped]) -> list[Values]:
    """Where the question names units ("by how many hours", "$10"), only the lines in such units."""
    words = re.findall(r"[^\W\d_]{3,}", question)
    asked = {_dimension(text) for text in (*(f"1 {word}" for word in words), *_measures_in(question))} - {""}
    fitting = [line for line in values if any(_dimension(derive.value_of(fact)) in asked for fact in line.facts)]
    return _only(fitting, values, "the question asks for other units", dropped)


def _only(chosen: list[Values], values: Sequence[Values], reason: str, dropped: list[Dropped]) -> list[Values]:
    """The chosen lines, the others noted as dropped; all of them when none is chosen."""
    if not chosen:
        return list(values)
    dropped += [Dropped(kind="fact", text=line.name, reason=reason) for line in values if line not in chosen]
    return chosen


def _limits_in(question: str) -> list[Limit]:
    """Bounds that the question states in plain words, for when the model leaves them out. English only."""
    found = []
    for quantity in quantities(question):
        bound = _BOUND.search(question[: quantity.start])
        value = question[quantity.start : quantity.stop]
        kind = _dimension(value)
        if bound and kind:
            found.append(Limit(kind, "<=" if bound["most"] else ">=", value))
    return found


def _matched(values: Sequence[Values], limits: Sequence[Limit]) -> tuple[list[Values], list[Limit]]:
    """Limits under the names of the lines they bound; parts in several lines ("walk", "ride") become one total."""
    lines, named = list(values), []
    for limit in dict.fromkeys(limits):
        kind = _dimension(limit.value)
        own = {line.quantity for line in lines if line.quantity.casefold() == limit.quantity.casefold()}
        alike = [line for line in lines if kind and _dimension(derive.value_of(line.facts[0])) == kind]
        names = {line.quantity for line in alike}
        if own or not alike:
            named.append(limit)
        elif len(names) == 1:
            named.append(limit._replace(quantity=names.pop()))
        else:
            named.append(limit)
            lines = [line for line in lines if line not in alike]
            for option in dict.fromkeys(line.option for line in alike):
                facts = tuple(dict.fromkeys(f for line in alike if line.option == option for f in line.facts))
                lines.append(Values.sum_of(option, limit.quantity, facts))
    return lines, named


def _measures_in(text: str) -> list[str]:
    return [text[quantity.start : quantity.stop] for quantity in quantities(text)]


def _dimension(value: str) -> str:
    """The kind of unit of a value ("time"), the unit itself where it is of no kind ("%"), or "" for none."""
    for quantity in quantities(value):
        measure = base(quantity.value)
        kind = measure[0] if measure else quantity.unit
        if kind and kind != UNKNOWN:
            return "price" if kind in MONEY_SIGNS else kind
    return ""
