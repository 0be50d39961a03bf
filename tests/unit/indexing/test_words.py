from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.indexing.matching import abbreviations, coverage, missing, source
from resin_core.indexing.words import canonical_number, content, fold, strip_markup, tokens


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Sheue &amp; al", "Sheue & al"),
        ("<i> <b>Arabidopsis</b> </i>\nx", "Arabidopsis x"),
        ("<title>Abstract</title>Background", "Abstract Background"),
        ("CO<sub>2</sub> at 10<sup>6</sup> m<sup>2</sup>", "CO2 at 10^6 m2"),
        ("p < 0.05 and x > 3", "p < 0.05 and x > 3"),
    ],
)
def test_markup(text: str, plain: str) -> None:
    assert strip_markup(text) == plain


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8°C", [("8", "number"), ("c", "unit")]),
        ("12 000 kg", [("12000", "number"), ("kg", "unit")]),
        ("twenty-six and two", [("26", "number"), ("and", "word"), ("2", "number")]),
        ("TCR-CD1c", [("tcr", "name"), ("cd1c", "name")]),
        ("The Osk can't", [("the", "word"), ("osk", "name"), ("ca", "word"), ("not", "word")]),
        ("10-15", [("10", "number"), ("15", "number")]),
        ("at −5", [("at", "word"), ("-5", "number")]),
        ("水が流", [("水が", "word"), ("が流", "word")]),
        ("भाषा", [("भाषा", "word")]),
    ],
)
def test_tokens(text: str, found: list[tuple[str, str]]) -> None:
    assert [(token.key, token.kind) for token in tokens(text)] == found


@pytest.mark.parametrize(
    "same", [("1,000", "1000"), ("3.50", "3,5", "3.5"), ("007", "7"), ("٣", "3"), ("1.234.567", "1,234,567")]
)
def test_numbers_agree(same: tuple[str, ...]) -> None:
    assert len(set(map(canonical_number, same))) == 1


def test_numbers_differ() -> None:
    assert len(set(map(canonical_number, ["5", "-5", "50", "0.5", "1.2.3", "1,2,3", "9" * 50]))) == 7


@pytest.mark.parametrize(
    "same",
    [("stops", "stopped", "stopping"), ("close", "closes", "closed", "closing"), ("study", "studies", "studied"),
     ("build", "built"), ("Müller", "muller"), ("cross", "crosses", "crossed"), ("bus", "BUS")],
)  # fmt: skip
def test_folding(same: tuple[str, ...]) -> None:
    assert len(set(map(fold, same))) == 1


def test_abbreviations() -> None:
    text = (
        "Differentially expressed genes (DEGs) of the CASEIN KINASE 1-LIKE (CKL) family; BR (brassinosteroid) (Fig 2)"
    )
    assert abbreviations(text) == (
        ("Differentially expressed genes", "DEGs"),
        ("CASEIN KINASE 1-LIKE", "CKL"),
        ("brassinosteroid", "BR"),
    )
    assert abbreviations("see below (XYZ), a nut (NOT)") == ()


def test_a_short_form_stands_for_its_full_form() -> None:
    pairs = (("ovarian cancer", "OC"),)
    assert coverage(tokens("ovarian cancer"), source("OC is lethal", pairs)) == 1
    assert not missing(tokens("OC"), source("Ovarian cancer is lethal", pairs))
    assert missing(tokens("OC"), source("Cancer is lethal", pairs))


def test_wording_is_loose_and_names_are_not() -> None:
    place = source("The fare rises in Lindmar, located near CKL12")
    assert coverage(tokens("price increases location"), place) == 1
    assert [t.text for t in missing(tokens("Lindmer CKL13 Lindmar CKL 12"), place)] == ["Lindmer", "CKL13"]
    assert coverage((), place) == 0


def test_content_is_never_empty_for_words() -> None:
    assert [t.text for t in content(tokens("number of pumps"))] == ["pumps"]
    assert [t.text for t in content(tokens("of the"))] == ["of", "the"]


@given(st.text(max_size=80), st.text(max_size=30))
def test_any_text_can_be_read(text: str, claim: str) -> None:
    assert all(token.key and token.text for token in tokens(text))
    assert all(a in strip_markup(text) for pair in abbreviations(text) for a in pair)
    assert 0 <= coverage(tokens(claim), source(text)) <= 1
    assert coverage(tokens(text), source(text)) in (0, 1)


def test_time_grows_with_length_only() -> None:
    for hostile in (
        "<a" * 50_000,
        "(A" * 50_000,
        "1 000" * 20_000,
        "twenty-" * 20_000,
        "A (" + "b " * 50_000,
        "1," * 50_000,
    ):
        start = time.perf_counter()
        tokens(hostile)
        abbreviations(hostile)
        assert time.perf_counter() - start < 5, hostile[:10]
