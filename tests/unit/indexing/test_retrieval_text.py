from __future__ import annotations

import pytest

from resin_core.indexing.retrieval_text import retrieval_text
from resin_core.records import UnitKind

FACT, TYPE, ISA, REL, CAUSE, RULE = (
    UnitKind.ENTITY_FACT,
    UnitKind.TYPE_PROPERTY,
    UnitKind.ENTITY_TYPE,
    UnitKind.RELATION,
    UnitKind.CAUSAL_EDGE,
    UnitKind.RULE,
)


@pytest.mark.parametrize(
    ("kind", "parts", "scope", "text"),
    [
        (FACT, ("Bus 14", "ticket price", "$4"), "weekday mornings", "Bus 14: ticket price is $4 (weekday mornings)"),
        (FACT, ("Bus 14", "costs", "$4"), "on weekdays", "Bus 14 costs $4, on weekdays"),
        (FACT, ("Orrel Glassworks", "founded in", "1874"), "", "Orrel Glassworks founded in 1874"),
        (FACT, ("Halden station", "number of pumps", "three"), "", "Halden station: number of pumps is three"),
        (FACT, ("effects", "suggest", "that wax helps"), "", "effects suggest that wax helps"),
        (FACT, ("CKL12", "may act downstream of", "BR"), "", "CKL12 may act downstream of BR"),
        (TYPE, ("cold boxes", "lid seal", "rubber"), "", "cold boxes: lid seal is rubber"),
        (ISA, ("Aster 200", "is a", "cold box"), "", "Aster 200 is a cold box"),
        (ISA, ("Aster 200", "isa", "a cold box"), "", "Aster 200 is a cold box"),
        (ISA, ("Aster boxes", "are", "cold boxes"), "", "Aster boxes are cold boxes"),
        (ISA, ("Aster 200", "belongs to", "cold boxes"), "", "Aster 200 belongs to cold boxes"),
        (REL, ("Osk Bridge", "crosses", "the river Osk"), "", "Osk Bridge crosses the river Osk"),
        (CAUSE, ("silt in inlet", "lowers", "flow"), "in summer", "silt in inlet lowers flow, in summer"),
        (RULE, ("level falls below 2 m", "then", "pump starts"), "", "If level falls below 2 m then pump starts"),
    ],
)  # fmt: skip
def test_each_kind_reads_like_a_statement(kind: UnitKind, parts: tuple[str, str, str], scope: str, text: str) -> None:
    assert retrieval_text(kind, *parts, scope=scope) == text


@pytest.mark.parametrize(
    ("kind", "parts", "modality", "polarity", "text"),
    [
        (REL, ("wax", "drives", "growth"), "possible", "positive", "wax may drives growth"),
        (REL, ("wax", "may drive", "growth"), "possible", "positive", "wax may drive growth"),
        (REL, ("headgroups", "hinder", "binding"), "", "negative", "headgroups not hinder binding"),
        (REL, ("headgroups", "do not hinder", "binding"), "", "negative", "headgroups do not hinder binding"),
        (REL, ("headgroups", "cannot fit", "the gap"), "", "negative", "headgroups cannot fit the gap"),
        (ISA, ("Tolva", "is a", "wild line"), "possible", "positive", "Tolva may be a wild line"),
        (ISA, ("Tolva", "is a", "wild line"), "", "negative", "Tolva is not a wild line"),
        (RULE, ("seal is cracked", "then", "box is checked"), "necessary", "positive",
         "If seal is cracked then must box is checked"),
    ],
)  # fmt: skip
def test_hedges_and_denials_are_said_once(
    kind: UnitKind, parts: tuple[str, str, str], modality: str, polarity: str, text: str
) -> None:
    assert retrieval_text(kind, *parts, modality=modality, polarity=polarity) == text


def test_type_and_aliases() -> None:
    text = retrieval_text(FACT, "Aster 200", "holds", "60 litres", entity_type="cold box", aliases=("A200", "Aster"))
    assert text == "Aster 200 (cold box) holds 60 litres. Also called A200, Aster."
    assert retrieval_text(FACT, "Osk Bridge", "spans", "two", entity_type="bridge") == "Osk Bridge spans two"
