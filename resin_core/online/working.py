"""From the model's lines of values to worked values: everything that can be calculated is calculated here."""

from __future__ import annotations

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
from resin_core.online.grounding import Known
from resin_core.online.quantities import quantities
from resin_core.prompts import derive
from resin_core.prompts.derive import Limit, Values

# More options than that are a list, not a comparison; their differences would crowd out the rest.
_MAX_COMPARED = 4


class Worked(NamedTuple):
    """What the answer may rest on: `written`, the model's own lines put right, and `text`, what they come to."""

    written: str
    text: str
    checked: Checked


def work_out(reply: str, sources: Mapping[int, str], titles: Mapping[int, str], question: str) -> Worked:
    """Checked values, totals, differences and limits of a reply (RESIN section 3.6: the comparison is the composer's).

    `sources` holds each sentence by its number, `titles` its document's title. Values that no source states are
    dropped, wrong sentence numbers put right, options that the question does not name set aside when it names others,
    a value from another option's document taken out, a limit that the question does not set left out. Every total and
    comparison is evaluated, whatever the model wrote.
    """
    values, limits = derive.parse(reply)
    dropped: list[Dropped] = []
    values = _asked_about(values, question, dropped)
    limits = _set_by(question, limits, dropped)
    placed = {number: f"{titles.get(number, '')}: {text}" for number, text in sources.items()}
    first = check(_uncut(facts=tuple(f for line in values for f in line.facts)), placed, question)
    values = _standing(values, first, placed, dropped)
    sums = derive.totals(values)
    if not limits and len({line.option for line in values}) <= _MAX_COMPARED:
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
    return Worked(derive.written(values), derive.render(values, checked), checked)


def _uncut(
    facts: tuple[FactLine, ...], sums: tuple[SumLine, ...] = (), checks: tuple[CheckLine, ...] = ()
) -> DerivationReply:
    """All lines: the caps of the JSON form would drop some unsaid, and with them limits that do not hold."""
    return DerivationReply.model_construct(facts=facts, sums=sums, checks=checks)


def _asked_about(values: Sequence[Values], question: str, dropped: list[Dropped]) -> list[Values]:
    named = [line for line in values if line.option.casefold() in question.casefold()]
    if not named:
        return list(values)
    for line in values:
        if line not in named:
            dropped.append(Dropped(kind="fact", text=line.name, reason="the question does not name this option"))
    return named


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
    values: Sequence[Values], checked: Checked, placed: Mapping[int, str], dropped: list[Dropped]
) -> list[Values]:
    """The lines with the facts that stand, each with its right source."""
    stated = set(checked.facts)
    moved = {(c.text, c.old): int(c.new) for c in checked.corrections if c.kind == "source"}
    options = [line.option.casefold() for line in values]
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
            about = placed[fact.source].casefold()
            if own not in about and any(other in about for other in options if other != own):
                dropped.append(
                    Dropped(kind="fact", text=fact.fact, reason=f"source {fact.source} is about another option")
                )
            else:
                facts.append(fact)
        if facts:
            kept.append(line.keeping(facts))
    return kept
