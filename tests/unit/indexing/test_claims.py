from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.indexing.claims import Claim, parse_claim
from resin_core.records import UnitKind


def parsed(raw: str) -> Claim:
    claim = parse_claim(raw)
    assert claim is not None, raw
    return claim


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fact", UnitKind.ENTITY_FACT),
        ("type", UnitKind.TYPE_PROPERTY),
        ("rel", UnitKind.RELATION),
        ("cause", UnitKind.CAUSAL_EDGE),
        ("rule", UnitKind.RULE),
        ("Causal-Edge", UnitKind.CAUSAL_EDGE),
        ("TYPE_PROPERTY", UnitKind.TYPE_PROPERTY),
    ],
)
def test_kind_names(name: str, kind: UnitKind) -> None:
    assert parsed(f"{name} | basin level is low | then | the pump starts").kind is kind


@pytest.mark.parametrize(
    "raw",
    [
        "fact | Bus 14 | ticket price | $4",
        "  - fact|Bus 14|ticket price|$4  ",
        "[3] fact | Bus 14 | ticket price | $4 | ",
        "fact: Bus 14 | ticket price | $4",
        '"fact | [Bus 14] | "ticket price" | <$4>"',
        "fact ｜ Bus 14 ｜ ticket price ｜ $4",
        "fact | <b>Bus&nbsp;14</b> | ticket price | $4",
    ],
)
def test_spellings_of_one_claim(raw: str) -> None:
    claim = parsed(raw)
    assert (claim.kind, claim.subject, claim.predicate, claim.object, claim.scope) == (
        UnitKind.ENTITY_FACT,
        "Bus 14",
        "ticket price",
        "$4",
        "",
    )
    assert not claim.repaired


def test_fifth_and_further_parts_are_the_scope() -> None:
    claim = parsed("rel | Kessel | built | pumps (three) | in 1987 | n/a | at Halden")
    assert claim.object == "pumps (three)"
    assert claim.scope == "in 1987; at Halden"


def test_missing_kind_is_read_from_the_form() -> None:
    claim = parsed("Aster 200 | is a | vaccine cold box")
    assert (claim.kind, claim.repaired) == (UnitKind.ENTITY_TYPE, True)
    claim = parsed("Orrel Glassworks | founded in | 1874 | Lindmar")
    assert (claim.kind, claim.scope, claim.repaired) == (UnitKind.ENTITY_FACT, "Lindmar", True)


@pytest.mark.parametrize(
    ("raw", "kind", "predicate", "object_"),
    [
        ("fact | Aster 200 | is a | cold box", UnitKind.ENTITY_TYPE, "is a", "cold box"),
        ("fact | Aster 200 | is a type of | cold box", UnitKind.ENTITY_TYPE, "is a type of", "cold box"),
        ("isa | Aster 200 | is | cold box", UnitKind.ENTITY_TYPE, "is a", "cold box"),
        ("isa | Aster 200 | cold box", UnitKind.ENTITY_TYPE, "is a", "cold box"),
        ("isa | Aster 200 | holds | vaccine", UnitKind.ENTITY_FACT, "holds", "vaccine"),
        ("fact | bus stop | is a | 10-minute walk away", UnitKind.ENTITY_FACT, "is a", "10-minute walk away"),
        ("fact | Lindmar | is | in the Vell valley", UnitKind.ENTITY_FACT, "is", "in the Vell valley"),
        ("cause | silt | -> | low flow", UnitKind.CAUSAL_EDGE, "leads to", "low flow"),
    ],
)
def test_kind_is_repaired_by_form(raw: str, kind: UnitKind, predicate: str, object_: str) -> None:
    claim = parsed(raw)
    assert (claim.kind, claim.predicate, claim.object) == (kind, predicate, object_)


@pytest.mark.parametrize(
    ("rest", "predicate", "object_"),
    [
        ("closed in 1962", "closed in", "1962"),
        ("implicated in tumor progression", "implicated in", "tumor progression"),
        ("ticket price $4", "ticket price", "$4"),
        ("may contribute to root growth", "may contribute to", "root growth"),
        ("designed by the engineer Mara Velten", "designed by", "the engineer Mara Velten"),
        ("was subsequently validated by assays", "was subsequently validated by", "assays"),
        ("constructed and validated", "is", "constructed and validated"),
    ],
)
def test_two_parts_are_split_by_form(rest: str, predicate: str, object_: str) -> None:
    claim = parsed(f"fact | Orrel Glassworks | {rest}")
    assert (claim.predicate, claim.object, claim.repaired) == (predicate, object_, True)


@pytest.mark.parametrize(
    ("raw", "condition", "conclusion"),
    [
        ("rule | If level is below 2 m | then | then the pump starts", "level is below 2 m", "the pump starts"),
        ("rule | seal is cracked | must not be used for | vaccine", "seal is cracked", "must not be used for vaccine"),
        ("rule | seal is cracked | box is not used", "seal is cracked", "box is not used"),
        ("rule | When the seal is cracked, then the box is not used.", "the seal is cracked", "the box is not used"),
        ("rule | If power fails | pump | stops", "power fails", "pump stops"),
        (
            "rule | basin level is low | pump start | after 5 minutes",
            "basin level is low",
            "pump start after 5 minutes",
        ),
        ("rule | pump failure | => | alarm", "pump failure", "alarm"),
    ],
)
def test_rules(raw: str, condition: str, conclusion: str) -> None:
    claim = parsed(raw)
    assert (claim.kind, claim.subject, claim.predicate, claim.object) == (UnitKind.RULE, condition, "then", conclusion)


@pytest.mark.parametrize(
    ("raw", "kind", "parts"),
    [
        ("rule | metro ride | duration | 25 minutes", UnitKind.ENTITY_FACT, ("metro ride", "duration", "25 minutes")),
        ("rule | visitors | must wear | helmets", UnitKind.ENTITY_FACT, ("visitors", "must wear", "helmets")),
        ("rule | metro ride | takes 25 minutes", UnitKind.ENTITY_FACT, ("metro ride", "takes", "25 minutes")),
        ("rule | Aster 200 | is a | cold box", UnitKind.ENTITY_TYPE, ("Aster 200", "is a", "cold box")),
    ],
)
def test_a_rule_without_a_condition_is_read_as_what_its_form_says(
    raw: str, kind: UnitKind, parts: tuple[str, str, str]
) -> None:
    claim = parsed(raw)
    assert (claim.kind, (claim.subject, claim.predicate, claim.object)) == (kind, parts)
    assert claim.repaired


def test_the_scope_of_a_rule_that_is_a_fact_stays_its_scope() -> None:
    claim = parsed("rule | metro ride | duration | 25 minutes | on weekdays")
    assert (claim.kind, claim.scope) == (UnitKind.ENTITY_FACT, "on weekdays")


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "|||",
        "fact",
        "fact | Bus 14",
        "fact | Bus 14 | evaluated",
        "fact | Bus 14 | ticket price | n/a",
        "fact | subject | property | value",
        "fact | Bus 14 | ... | $4",
        "fact | - | price | $4",
        "fact | CD1c molecule | protrudes through | the CD1c molecule",
        "fact | Bus 14 | price | " + "x" * 401,
        "to date, the roles of these kinases remain unclear",
    ],
)
def test_what_cannot_be_read_is_none(raw: str) -> None:
    assert parse_claim(raw) is None


@given(st.text(alphabet=st.sampled_from("| fact rule:isa[]\"'-.,9Aé水\n"), max_size=60) | st.text(max_size=60))
def test_any_text_is_a_whole_claim_or_none(raw: str) -> None:
    claim = parse_claim(raw)
    if claim is not None:
        parts = (claim.subject, claim.predicate, claim.object)
        assert all(any(map(str.isalnum, part)) for part in parts)
        assert not any("|" in part or part != part.strip() for part in (*parts, claim.scope))


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        ("fact | river Osk runs through | Lindmar", ("river Osk", "runs through", "Lindmar")),
        ("fact | heavy lorries are not allowed on | it", ("heavy lorries", "are not allowed on", "it")),
    ],
)
def test_a_subject_that_runs_on_into_its_verb_is_cut_there(raw: str, parts: tuple[str, str, str]) -> None:
    claim = parse_claim(raw)
    assert claim is not None
    assert (claim.subject, claim.predicate, claim.object) == parts
