"""Ids come from content alone, and different contents do not share one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.ids import content_hash, digest, normalise_claim, passage_id, sentence_id, unit_id

text = st.text(st.characters(), max_size=20)  # lone surrogates too: they reach ids from badly decoded sources


def test_ids_keep_their_values() -> None:
    """An index made by an earlier version holds these: a change here means a new index format."""
    assert digest(("a", "b")) == "023b8059a924f728"
    assert content_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sentence_id("d", 12) == "d#s12"
    assert passage_id("d", "text", 0) == "p945b54b974a4c62e"
    assert unit_id("rule", "claim", "p1") == "u35218fc7570b1258"


def test_ids_do_not_hang_on_the_hash_seed_of_the_process() -> None:
    code = "from resin_core.ids import passage_id; print(passage_id('d', 'text', 0))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert outputs == {passage_id("d", "text", 0)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("a",), ("a", "")),
        ((), ("",)),
        (("a", "b"), ("b", "a")),
        (("é",), ("e\u0301",)),
    ],
)
def test_other_parts_give_another_digest(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert digest(one) != digest(other)


@given(st.lists(text.filter(lambda part: "\x1f" not in part), max_size=4), st.integers(1, 64))
def test_a_digest_is_stable_hex_of_the_asked_length(parts: list[str], length: int) -> None:
    made = digest(parts, length)
    assert made == digest(iter(parts), length)
    assert len(made) == length and set(made) <= set("0123456789abcdef")
    assert digest([*parts, "more"], 64) != digest(parts, 64)


@given(text)
def test_every_text_has_a_content_hash(content: str) -> None:
    assert len(content_hash(content)) == 64
    assert content_hash(content) != content_hash(content + " ")


def test_repeats_of_a_text_and_equal_texts_of_two_documents_are_told_apart() -> None:
    made = [passage_id("d", "same", 0), passage_id("d", "same", 1), passage_id("e", "same", 0)]
    assert len(set(made)) == 3


def test_a_unit_is_told_apart_by_kind_claim_and_passage() -> None:
    made = {unit_id(*parts) for parts in (("k", "c", "p"), ("k2", "c", "p"), ("k", "c2", "p"), ("k", "c", "p2"))}
    assert len(made) == 4


@pytest.mark.parametrize(
    ("spelling", "claim"),
    [
        ("  The  Dam\nholds\tthe river ", "the dam holds the river"),
        ("ＲＥＳＩＮ", "resin"),
        ("Straße", "strasse"),
        ("ﬁre", "fire"),
        ("Cafe\u0301", "café"),
        ("a\u00a0b", "a b"),
        ("", ""),
    ],
)
def test_spellings_of_a_claim_are_folded(spelling: str, claim: str) -> None:
    assert normalise_claim(spelling) == claim


@pytest.mark.parametrize(("one", "other"), [("10 km", "1.0 km"), ("not open", "open"), ("résumé", "resume")])
def test_claims_that_say_something_else_are_not_folded(one: str, other: str) -> None:
    assert normalise_claim(one) != normalise_claim(other)


@given(st.text(max_size=40))
def test_normalising_ignores_case_and_space(claim: str) -> None:
    once = normalise_claim(claim)
    assert normalise_claim(f"  {claim}\n") == once
    assert once == once.strip() and "  " not in once
