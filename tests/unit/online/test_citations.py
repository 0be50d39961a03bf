from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.online.citations import CitationStream, attribute
from resin_core.prompts.compose import labelled
from tests.evidence import source

ALBA = source("alba.md", "The Alba costs <b>$12</b>.", "It weighs 900 g.", title="Alba lamp")
BRIO = source("brio.md", "The Brio lamp costs $15.", "The Brio weighs one kilo.", title="Brio lamp")
LABELS = labelled([ALBA, BRIO])


def streamed(pieces: Sequence[str]) -> tuple[str, CitationStream]:
    stream = CitationStream(LABELS)
    text = "".join([*(stream.feed(piece) for piece in pieces), stream.finish()])
    return text, stream


@pytest.mark.parametrize(
    ("text", "shown", "used", "removed"),
    [
        ("It costs $12 [1].", "It costs $12 [1].", [1], []),
        ("A [3], B [1], again [3].", "A [1], B [2], again [1].", [3, 1], []),
        ("[4][2]", "[1][2]", [4, 2], []),
        ("both [1, 3]", "both [1][2]", [1, 3], []),
        ("both [ 2;4 ]", "both [1][2]", [2, 4], []),
        ("both [2 and 4]", "both [1][2]", [2, 4], []),
        ("all [1, 2, and 4]", "all [1][2][3]", [1, 2, 4], []),
        ("both [2 & 4]", "both [1][2]", [2, 4], []),
        ("range [2-4]", "range [1][2][3]", [2, 3, 4], []),
        ("range [2–3]", "range [1][2]", [2, 3], []),
        ("twice [2, 2]", "twice [1]", [2], []),
        ("some [2, 9]", "some [1]", [2], ["9"]),
        ("none [0] [5] [99]", "none", [], ["0", "5", "99"]),
        ("or $1 [8].", "or $1.", [], ["8"]),
        ("or $1 \t\u00a0[8], so", "or $1, so", [], ["8"]),
        ("sixty [9][10]; more", "sixty; more", [], ["9", "10"]),
        ("又说 [9]。", "又说。", [], ["9"]),
        ("a [9] b", "a b", [], ["9"]),
        ("a [9]b", "a b", [], ["9"]),
        ("a [9][1].", "a [1].", [1], ["9"]),
        ("a [1] [9][9] [3].", "a [1] [2].", [1, 3], ["9", "9"]),
        ("a [9][see 1]", "a [see 1]", [], ["9"]),
        ("a\n\n[9] b", "a\n\n b", [], ["9"]),
        ("a [9]\nb", "a\nb", [], ["9"]),
        ("a . [1] .", "a . [1] .", [1], []),
        ("too wide [1-400]", "too wide [1]", [1], ["400"]),
        ("backwards [4-2]", "backwards [1][2]", [4, 2], []),
        ("one number [1000001]", "one number", [], ["1000001"]),
        ("nested [[1]]", "nested [[1]]", [1], []),
        ("no label [a] [] [1a] [see 1]", "no label [a] [] [1a] [see 1]", [], []),
        ("open [1", "open [1", [], []),
        ("shut 1] ]", "shut 1] ]", [], []),
        ("braces {0} %s \\1 [1]", "braces {0} %s \\1 [1]", [1], []),
        ("", "", [], []),
    ],
)
def test_labels(text: str, shown: str, used: list[int], removed: list[str]) -> None:
    for pieces in ([text], list(text)):
        found, stream = streamed(pieces)
        assert (found, stream.used, stream.removed) == (shown, used, removed)


def test_a_citation_is_the_exact_span_of_its_sentence() -> None:
    _, stream = streamed(["It is lighter [2], and costs $12 [1]."])
    first, second = stream.citations()
    assert (first.number, first.text, first.sentence_ids) == (1, "It weighs 900 g.", ("alba.md#s2",))
    assert (second.number, second.text) == (2, "The Alba costs <b>$12</b>.")
    assert (second.doc_id, second.title, second.uri) == ("alba.md", "Alba lamp", "file:///alba.md")
    assert second.passage_id == ALBA.passage.passage_id
    start = ALBA.passage.char_start
    for citation in (first, second):
        assert ALBA.passage.text[citation.char_start - start : citation.char_end - start] == citation.text


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["It costs ", "$12 [", "1", "], yes"], ["It costs", " $12", "", " [1], yes"]),
        (["a [2] b [", "3] c"], ["a [1] b", " [2] c"]),
        (["a [" + "x" * 70, "] b"], ["a [" + "x" * 70, "] b"]),
        (["a ", " ", "[9]", ".\n", "[1] b"], ["a", "", "", ".\n", "[1] b"]),
        (["a [9]", "b"], ["a", " b"]),
    ],
)
def test_text_is_held_back_only_while_a_bracket_is_open_or_after_a_blank(pieces: list[str], shown: list[str]) -> None:
    stream = CitationStream(LABELS)
    assert [stream.feed(piece) for piece in pieces] == shown
    assert stream.finish() == ""


GROUPS = ("[1]", "[3, 1]", "[2-4]", "[9]", "[1 and 2]", "[[4]]", f"[{'7' * 61}]", f"[{'8' * 59}]")
PARTS = st.sampled_from(
    (*GROUPS, "[", "]", "[x", "word ", "$12. ", ". ", "  ", "\n", "{0}", "-", "1", "\\g<1>", "y" * 40)
)


@given(st.lists(PARTS, max_size=12).map("".join), st.lists(st.integers(0, 200), max_size=8))
def test_pieces_of_any_size_give_the_same_text_and_citations(text: str, cuts: list[int]) -> None:
    whole, stream = streamed([text])
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(ends)]
    for split in (pieces, list(text)):
        found, other = streamed(split)
        assert found == whole
        assert other.citations() == stream.citations()
        assert other.removed == stream.removed
    # Nothing but labels and the blanks before them is changed, and every label left has its citation.
    label = re.compile(r"\[[\d\s,;&and–-]*\d[\d\s,;&and–-]*\]")
    assert label.sub("", whole).replace(" ", "") == label.sub("", text).replace(" ", "")
    assert whole.count(" .") <= text.count(" .")
    assert [word for word in ("wordword", "word$", "wordx") if word in whole and word not in label.sub("", text)] == []
    assert {int(n) for n in re.findall(r"\[(\d{1,3})\]", whole)} == {c.number for c in stream.citations()}


def test_an_answer_without_references_gets_those_it_plainly_repeats() -> None:
    stream = CitationStream(LABELS)
    text = attribute("The Brio lamp costs $15. Nobody has said why. The Alba costs $12.", LABELS, stream)
    assert text == "The Brio lamp costs $15. [1] Nobody has said why. The Alba costs $12. [2]"
    assert [citation.text for citation in stream.citations()] == [
        "The Brio lamp costs $15.",
        "The Alba costs <b>$12</b>.",
    ]


@pytest.mark.parametrize("text", ["", " \n", "Quite different words altogether."])
def test_what_repeats_no_source_stays_as_it_is(text: str) -> None:
    stream = CitationStream(LABELS)
    assert attribute(text, LABELS, stream) == text
    assert stream.citations() == ()
    assert attribute("The Brio lamp costs $15.", {}, CitationStream({})) == "The Brio lamp costs $15."
