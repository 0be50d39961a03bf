from __future__ import annotations

import pytest

from resin_core.indexing.claims import Claim, parse_claim
from resin_core.indexing.grounding import Grounding
from resin_core.indexing.normalise import aliases, build_unit, canonical_predicate, confidence, merge_duplicates
from resin_core.indexing.qualifiers import modality, polarity
from resin_core.records import Passage, ReasoningUnit, Sentence, UnitKind
from resin_core.text.sentences import split_sentences

TEXT = (
    "The casein kinase 1 (CK1) family has 13 members.  If the seal is cracked, the CK1 box must not be used. "
    "Silt lowers flow.\nThe CK1 family has 13 members. Rivers are wet."
)
SENTENCES = {sentence.number: sentence for sentence in split_sentences("d", TEXT)}


def claimed(raw: str) -> Claim:
    claim = parse_claim(raw)
    assert claim is not None
    return claim


def passage(first: int, last: int, entity: str = "CK1 family", entity_type: str = "family") -> Passage:
    start, end = SENTENCES[first].char_start, SENTENCES[last].char_end
    return Passage(
        passage_id=f"p{first}",
        doc_id="d",
        sentence_ids=tuple(SENTENCES[n].sentence_id for n in range(first, last + 1)),
        char_start=start,
        char_end=end,
        text=TEXT[start:end],
        main_entity=entity,
        entity_type=entity_type,
    )


def unit(
    raw: str, first: int, last: int | None = None, coverage: float = 1.0, where: Passage | None = None
) -> ReasoningUnit:
    grounding = Grounding(start_sentence=first, end_sentence=last or first, coverage=coverage)
    return build_unit(claimed(raw), grounding, where or passage(1, 5), SENTENCES, TEXT)


@pytest.mark.parametrize(
    "same",
    [("costs", "the price", "fare", "Cost"), ("was founded in", "founded in"), ("crosses", "crossed", "is crossing"),
     ("number of pumps", "number of pump"), ("is a", "are a")[:1]],
)  # fmt: skip
def test_canonical_predicates_agree(same: tuple[str, ...]) -> None:
    assert len({canonical_predicate(text) for text in same}) == 1
    assert canonical_predicate(same[0])


@pytest.mark.parametrize(
    ("one", "other"), [("binds", "does not bind"), ("raises", "lowers"), ("founded in", "founded by")]
)
def test_canonical_predicates_differ(one: str, other: str) -> None:
    assert canonical_predicate(one) != canonical_predicate(other)


def test_canonical_predicate_is_never_empty() -> None:
    assert canonical_predicate("is a")
    assert canonical_predicate("=>") == "=>"


@pytest.mark.parametrize(
    ("raw", "span", "expected"),
    [
        ("rel | wax | may drive | growth", "Wax drives growth.", "possible"),
        ("rel | wax | drives | growth", "Leaf wax might drive growth.", "possible"),
        ("rel | wax | drives | growth", "These data suggest that leaf wax drives growth.", "possible"),
        ("rel | wax | drives | growth", "Wax drives growth, which may help.", ""),
        ("rel | genes | expressed in | cold lines", "Genes were expressed in cold lines, suggesting a role.", ""),
        ("rule | seal is cracked | then | box must be dried", "If cracked, the box must be dried.", "necessary"),
        ("rel | box | used for | vaccine", "The box must be used for vaccine.", "necessary"),
    ],
)  # fmt: skip
def test_modality(raw: str, span: str, expected: str) -> None:
    assert modality(claimed(raw), span) == expected


@pytest.mark.parametrize(
    ("raw", "span", "expected"),
    [
        ("rel | groups | do not hinder | binding", "The groups do not hinder binding.", "negative"),
        ("rel | groups | hinder | binding", "The groups do not hinder binding.", "negative"),
        ("rel | groups | fit within | the gap", "They cannot easily fit within the gap.", "negative"),
        ("fact | salt | has effect on | yield", "Salt had no significant effect on yield.", "negative"),
        ("fact | lorries | are | not allowed", "Lorries are not allowed.", "negative"),
        ("rel | protein | binds | DNA", "The groups do not hinder protein that binds DNA.", "positive"),
        ("rel | protein | binds | DNA", "The protein not only binds DNA but cuts it.", "positive"),
        ("rel | bus 9 | stops at | Quay", "Bus 9 stops at Quay but not at Mill Lane.", "positive"),
        ("rule | seal is cracked | then | box must not be used", "It must not be used.", "negative"),
    ],
)
def test_polarity(raw: str, span: str, expected: str) -> None:
    assert polarity(claimed(raw), span) == expected


def test_aliases_from_stated_short_forms() -> None:
    context = "Casein kinase 1 (CK1) and T cell receptor (TCR). BR (brassinosteroid) acts. It (see above) is (n = 7)."
    assert aliases("CK1 family", context) == ("Casein kinase 1 family",)
    assert aliases("T cell receptor", context) == ("TCR",)
    assert aliases("BR", context) == ("brassinosteroid",)
    assert aliases("CK12", context) == ()
    assert aliases("casein kinase 1 (CK1) family", context) == ()
    assert aliases("above", context) == ()


def test_confidence_is_within_bounds_and_lower_when_repaired() -> None:
    whole = Grounding(start_sentence=1, end_sentence=1, coverage=1.0)
    poor = whole.model_copy(update={"coverage": 0.6})
    assert confidence(whole, False) == 1.0
    assert 0 < confidence(poor, True) < confidence(poor, False) < 1.0


def test_unit_of_a_fact() -> None:
    got = unit("fact | CK1 family | number of members | 13", 4, where=passage(3, 4))
    assert TEXT[got.char_start : got.char_end] == got.evidence_quote == "The CK1 family has 13 members."
    assert (got.passage_id, got.doc_id, got.sentence_ids) == ("p3", "d", ("d#s4",))
    assert (got.kind, got.entity_type, got.aliases) == (UnitKind.ENTITY_FACT, "family", ("casein kinase 1 family",))
    assert got.retrieval_text == "CK1 family: number of members is 13. Also called casein kinase 1 family."
    assert (got.conditions, got.conclusion, got.source_state, got.target_state) == ((), "", "", "")


def test_an_entity_type_that_the_passage_does_not_say_is_left_out() -> None:
    got = unit("fact | CK1 family | number of members | 13", 4, where=passage(3, 4, entity_type="enzyme group"))
    assert got.entity_type == ""
    assert unit("isa | CK1 | is a | kinase", 1).entity_type == "kinase"


def test_unit_of_a_rule_and_of_a_cause() -> None:
    rule = unit("rule | seal is cracked | then | CK1 box must not be used", 2)
    assert (rule.conditions, rule.conclusion) == (("seal is cracked",), "CK1 box must not be used")
    assert (rule.modality, rule.polarity) == ("necessary", "negative")
    cause = unit("cause | silt | lowers | flow", 3)
    assert (cause.source_state, cause.target_state, cause.canonical_predicate) == ("silt", "flow", "lower")


def test_two_sentences_are_quoted_with_what_is_between() -> None:
    got = unit("fact | CK1 family | number of members | 13", 1, 2)
    assert got.evidence_quote == TEXT[: SENTENCES[2].char_end]
    assert got.sentence_ids == ("d#s1", "d#s2")


def test_ids_are_stable_and_of_the_claim() -> None:
    one = unit("fact | CK1 family | number of members | 13", 1)
    assert one.unit_id == unit("fact |  CK1  Family | number of members | 13", 1).unit_id
    assert one.unit_id != unit("fact | CK1 family | number of members | 13", 4, where=passage(4, 5)).unit_id
    assert one.unit_id != unit("rel | CK1 family | number of members | 13", 1).unit_id


def test_sentences_outside_the_passage_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"sentences 1-2 are not in passage 'p2'.*starts"):
        unit("fact | CK1 family | number of members | 13", 1, 2, where=passage(2, 5))


def test_equal_claims_merge_to_the_better_grounded() -> None:
    poor = unit("fact | CK1 family | has | 13 members", 1, coverage=0.7)
    good = unit("rel | the CK1 family | has | 13 members", 1)
    assert merge_duplicates([poor, good]) == [good]
    assert merge_duplicates([good, poor]) == [good]


def test_merged_spans_join_only_when_they_touch() -> None:
    first, second = (unit("fact | CK1 family | has | 13 members", n, coverage=c) for n, c in ((3, 0.8), (4, 1.0)))
    (joined,) = merge_duplicates([first, second], TEXT)
    assert joined.sentence_ids == ("d#s3", "d#s4")
    assert (
        joined.evidence_quote
        == TEXT[joined.char_start : joined.char_end]
        == "Silt lowers flow.\nThe CK1 family has 13 members."
    )
    assert joined.confidence == second.confidence
    assert merge_duplicates([first, second]) == [second]
    (apart,) = merge_duplicates([unit("fact | CK1 family | has | 13 members", 1), second], TEXT)
    assert apart.sentence_ids == ("d#s1",)
    pair = unit("fact | CK1 family | has | 13 members", 3, 4)
    (overlapping,) = merge_duplicates([pair, second])
    assert overlapping.evidence_quote == pair.evidence_quote


def test_what_must_not_merge() -> None:
    one = unit("fact | CK1 family | has | 13 members", 1)
    others = [
        unit("fact | CK2 family | has | 13 members", 1),
        unit("fact | CK1 family | has | 14 members", 1),
        unit("fact | CK1 family | has no | 13 members", 1),
        unit("fact | CK1 family | has | 13 members", 4, where=passage(4, 5)),
        unit("fact | CK1 family | has | 13 members | in plants", 3),
    ]
    assert merge_duplicates([one, *others]) == [one, *others]


def test_a_claim_within_another_of_its_sentence_goes() -> None:
    short = unit("fact | CK1 family | has | 13 members", 1)
    longer = unit("rel | CK1 family | has | 13 members | in plants", 1)
    middle = unit("fact | CK1 family | has | members", 1)
    assert merge_duplicates([short, middle, longer]) == [longer]
    elsewhere = unit("fact | CK1 family | has | 13 members", 4)
    assert merge_duplicates([elsewhere, longer]) == [elsewhere, longer]


def test_units_keep_their_order_and_ids_stay_unique() -> None:
    units = [
        unit("cause | silt | lowers | flow", 3),
        unit("rel | rivers | are | wet", 5),
        unit("cause | silt | lowers | flow", 3),
    ]
    merged = merge_duplicates(units)
    assert [u.subject for u in merged] == ["silt", "rivers"]
    assert merge_duplicates([]) == []


def test_sentences_of_the_fixture() -> None:
    assert len(SENTENCES) == 5
    assert all(isinstance(sentence, Sentence) for sentence in SENTENCES.values())
