from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resin_core.indexing.claims import Claim, parse_claim
from resin_core.indexing.grounding import Failure, Grounding, ground
from resin_core.indexing.matching import coverage, source
from resin_core.indexing.words import content, tokens
from resin_core.records import UnitKind

BUS = (
    (1, "# Bus 14 from Fern Street"),
    (2, "Bus 14 goes from Fern Street to the Harbour Works office park."),
    (3, "A single ticket for bus 14 costs $4."),
    (4, "The bus stop is a 10-minute walk from the Fern Street flats."),
    (5, "The ride on bus 14 takes 35 minutes on a weekday morning."),
)
PUMPS = (
    (1, "The Halden station lifts water from the river Eme."),
    (2, "It has three pumps, and each moves 1,400 litres a second."),
    (3, "Kessel built the pumps in 1987."),
    (4, "If the basin level falls below 2 m, the second pump starts."),
    (5, "In dry summers silt does not clog the inlet, but it lowers flow."),
    (6, "Heavy lorries are not allowed on it."),
)
GENES = (
    (1, "The CASEIN KINASE 1-LIKE (CKL) family has 13 members in <i>Arabidopsis thaliana</i>."),
    (2, "The <i>CKL12</i> promoter contains in vitro binding sites for brassinosteroid (BR) factors."),
    (3, "Knock-down reduces <i>CKL12</i> transcript at 8 °C &gt; 3 h and 10<sup>6</sup> cells, IC <sub>50</sub> of 5."),
)


def grounded(raw: str, sentences: tuple[tuple[int, str], ...], hint: int = 1, context: str = "") -> Grounding | Failure:
    claim = parse_claim(raw)
    assert claim is not None
    return ground(claim, sentences, hint, context)


@pytest.mark.parametrize(
    ("raw", "sentences", "hint", "span"),
    [
        ("fact | Bus 14 | ticket price | $4", BUS, 3, (3, 3)),
        ("fact | Bus 14 | ride time | 35 minutes | weekday morning", BUS, 1, (5, 5)),
        ("fact | bus stop | walk from Fern Street flats | 10 minutes", BUS, 5, (4, 4)),
        ("rel | Bus 14 | goes to | Harbour Works", BUS, 2, (2, 2)),
        ("rel | Kessel | built | pumps of Halden station | 1987", PUMPS, 3, (3, 3)),
        ("fact | Halden station | number of pumps | 3", PUMPS, 2, (1, 2)),
        ("fact | each pump of Halden station | moves | 1400 litres a second", PUMPS, 2, (1, 2)),
        ("rule | basin level falls below 2 m | then | second pump starts", PUMPS, 1, (4, 4)),
        ("cause | silt | lowers | flow | in dry summers", PUMPS, 5, (5, 5)),
        ("rel | heavy lorries | are not allowed on | Tamm Bridge", PUMPS, 6, (6, 6)),
        ("fact | Arabidopsis thaliana | number of CKL family members | thirteen", GENES, 1, (1, 1)),
        ("fact | CKL12 | promoter | binding sites for BR factors", GENES, 2, (2, 2)),
        ("fact | CKL 12 transcript | reduced by | knock-down | at 8°C", GENES, 3, (3, 3)),
        ("fact | knock-down | IC50 | 5", GENES, 3, (3, 3)),
        ("fact | knock-down | cells | 10^6", GENES, 3, (3, 3)),
    ],
)
def test_true_claims_find_their_sentence(
    raw: str, sentences: tuple[tuple[int, str], ...], hint: int, span: tuple[int, int]
) -> None:
    found = grounded(raw, sentences, hint, "Tamm Bridge, Halden station")
    assert isinstance(found, Grounding), found
    assert (found.start_sentence, found.end_sentence) == span
    assert 0.6 <= found.coverage <= 1


@pytest.mark.parametrize(
    ("raw", "sentences", "reason", "detail"),
    [
        ("fact | Bus 14 | ticket price | $5", BUS, "number-not-in-source", "'5'"),
        ("fact | Bus 14 | ride time | 35 minutes | after 9 on a weekday morning", BUS, "number-not-in-source", "'9'"),
        ("fact | Bus 15 | ticket price | $4", BUS, "number-not-in-source", "subject: '15'"),
        ("rel | Bus 14 | goes to | Quay Works", BUS, "name-not-in-source", "'Quay'"),
        ("rel | Rover 14 | goes to | Harbour Works", BUS, "name-not-in-source", "subject: 'Rover'"),
        ("rel | Kessel | built | pumps | 1987 at Orrel", PUMPS, "name-not-in-source", "scope: 'Orrel'"),
        ("rel | Kessel | built | pumps | for the new mine", PUMPS, "not-in-source", "limit"),
        ("fact | Bus 14 | colour | dark green", BUS, "not-in-source", "0%"),
        ("fact | metro | ticket | $4", BUS, "not-in-source", "metro"),
        ("fact | it | has | three pumps", PUMPS, "not-in-source", "'it'"),
        ("rule | basin level falls below 3 m | then | second pump starts", PUMPS, "number-not-in-source", "'3'"),
        ("rule | power fails | then | second pump starts", PUMPS, "not-in-source", "subject"),
        ("cause | silt | raises | flow of inlet", PUMPS[:5], "not-in-source", "goes up"),
        ("rel | Kessel | never built | pumps", PUMPS, "not-in-source", "negated"),
        ("fact | knock-down | cells | 106", GENES, "number-not-in-source", "'106'"),
        ("fact | CKL12 | transcript reduced | at -8 °C", GENES, "number-not-in-source", "'-8'"),
        ("rel | CKL12 | promoter binds | WRKY", GENES, "name-not-in-source", "'WRKY'"),
    ],
)
def test_invented_claims_are_refused(
    raw: str, sentences: tuple[tuple[int, str], ...], reason: str, detail: str
) -> None:
    failure = grounded(raw, sentences)
    assert isinstance(failure, Failure), failure
    assert failure.reason == reason
    assert detail in failure.detail


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        ("fact | Bus 14 | overall tariff level | $4", 3),
        ("fact | bus 14 ride | average commuting duration | 35 minutes", 5),
        ("fact | ride on bus 14 | average commuting duration | thirty-five minutes", 5),
    ],
)
def test_a_property_in_other_words_costs_confidence_only_where_the_rest_is_verbatim(raw: str, number: int) -> None:
    found = grounded(raw, BUS, number)
    assert isinstance(found, Grounding), found
    assert (found.start_sentence, found.end_sentence) == (number, number)
    assert 0 < found.coverage < 0.6


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        # Subject or value not word for word, or not in one sentence.
        ("fact | Bus 14 metro line | average commuting duration | 35 minutes", "not-in-source"),
        ("fact | Bus 14 | average commuting duration | 35 minutes each afternoon", "not-in-source"),
        ("fact | Fern Street flats | average commuting duration | 35 minutes", "not-in-source"),
        # Numbers and names of the property are no wording, and a negation turns it round.
        ("fact | Bus 14 | tariff 7 | $4", "number-not-in-source"),
        ("fact | Bus 14 | Quay tariff | $4", "name-not-in-source"),
        ("fact | Bus 14 | overall tariff never | $4", "not-in-source"),
    ],
)
def test_a_property_in_other_words_is_refused_where_the_rest_is_not_verbatim(raw: str, reason: str) -> None:
    failure = grounded(raw, BUS)
    assert isinstance(failure, Failure), failure
    assert failure.reason == reason


def test_no_sentences() -> None:
    assert isinstance(grounded("fact | Bus 14 | price | $4", ()), Failure)


def test_the_hint_decides_between_equal_sentences() -> None:
    twice = ((1, "A ticket costs $4."), (2, "The ride is long."), (3, "A ticket costs $4."))
    for hint, number in ((1, 1), (3, 3), (9, 3)):
        found = grounded("fact | ticket | costs | $4", twice, hint)
        assert isinstance(found, Grounding)
        assert found.start_sentence == number


def test_a_subject_may_come_from_the_title_but_counts_less() -> None:
    alone = ((7, "Opened in 1911, it still stands."),)
    found = grounded("fact | Osk Bridge | opened in | 1911", alone, 7, "Osk Bridge")
    assert isinstance(found, Grounding)
    assert found.coverage < 1
    failure = grounded("fact | Osk Bridge | opened in | 1911", alone, 7)
    assert isinstance(failure, Failure)
    assert failure.reason == "name-not-in-source"


def test_no_pair_across_the_start_of_a_passage() -> None:
    claim = parse_claim("fact | Halden station | number of pumps | 3")
    assert claim is not None
    found = ground(claim, PUMPS, 2, starts={2})
    assert isinstance(found, Grounding)
    assert (found.start_sentence, found.end_sentence) == (2, 2)


def test_no_pair_of_sentences_that_are_not_neighbours() -> None:
    found = grounded("fact | Halden station | number of pumps | 3", (PUMPS[0], (4, PUMPS[1][1])), 4)
    assert isinstance(found, Grounding)
    assert (found.start_sentence, found.end_sentence) == (4, 4)


def test_scope_from_the_sentence_before() -> None:
    story = ((1, "A flood came in May 2003."), (2, "The yield of rye fell by 5%."))
    found = grounded("fact | yield of rye | fell by | 5% | in May 2003", story, 2)
    assert isinstance(found, Grounding)
    assert (found.start_sentence, found.end_sentence) == (1, 2)


@pytest.mark.parametrize(
    ("sentence", "good", "bad"),
    [
        ("大桥于1911年建成，横跨奥斯克河。", "fact | 大桥 | 横跨 | 奥斯克河", "fact | 大桥 | 横跨 | 塔姆山谷"),
        (
            "Мост построен в Москве в 1911 году.",
            "fact | мост | построен в | Москва",
            "fact | мост | построен в | Казань",
        ),
        ("Die Brücke wurde 1911 eröffnet.", "fact | Brücke | eröffnet | 1911", "fact | Brücke | eröffnet | 1912"),
    ],
)
def test_other_scripts(sentence: str, good: str, bad: str) -> None:
    assert isinstance(grounded(good, ((1, sentence),)), Grounding)
    assert isinstance(grounded(bad, ((1, sentence),)), Failure)


_WORDS = st.sampled_from(
    [
        *("pump", "water", "flow", "rises", "costs", "it", "the", "of", "in", "not", "lowers", "水泵"),
        *("Halden", "Osk", "CKL12", "WRKY", "3", "14", "1,400", "two", "2.5", "-7", "35%", "8°C"),
    ]
)
_PHRASES = st.lists(_WORDS, min_size=1, max_size=5).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(
    st.builds(
        Claim,
        kind=st.sampled_from(UnitKind),
        subject=_PHRASES,
        predicate=_PHRASES,
        object=_PHRASES,
        scope=_PHRASES | st.just(""),
    ),
    st.lists(st.lists(_WORDS, min_size=1, max_size=12).map(" ".join), max_size=5),
    st.integers(-3, 9),
)
def test_the_span_exists_and_holds_every_number_of_the_object(claim: Claim, texts: list[str], hint: int) -> None:
    sentences = list(enumerate(texts, start=4))
    found = ground(claim, sentences, hint, "Halden pump 14")
    if isinstance(found, Failure):
        assert found.reason in ("number-not-in-source", "name-not-in-source", "not-in-source")
        assert found.detail
        return
    numbers = [number for number, _ in sentences]
    assert found.start_sentence in numbers and found.end_sentence in numbers
    assert 0 <= found.end_sentence - found.start_sentence <= 1
    span = " ".join(text for number, text in sentences if found.start_sentence <= number <= found.end_sentence)
    # Less only where subject and value are both there word for word.
    verbatim = content(tokens(claim.subject)) + content(tokens(claim.object))
    assert 0.5 <= found.coverage <= 1 or (found.coverage > 0 and coverage(verbatim, source(span)) == 1)
    for number in re.findall(r"-?\d[\d.,]*", claim.object):
        assert number in span
    for name in ("WRKY", "CKL12"):
        if name in claim.predicate or name in claim.scope:
            assert name in span
