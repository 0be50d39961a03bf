from __future__ import annotations

import io
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resin_core.ids import content_hash
from resin_core.indexing.passages import REMAINDER, build_passages, chunks, partition
from resin_core.prompts.extraction import Span
from resin_core.records import Document, Passage, Sentence
from resin_core.store.schema import records_of, to_table
from resin_core.text.sentences import split_sentences


def span(first: int, last: int, entity: str = "e") -> Span:
    return Span(first, last, entity, "", "", "result" if entity else REMAINDER)


def document(text: str, doc_id: str = "d") -> Document:
    return Document(doc_id=doc_id, title="T", text=text, uri="u", content_hash=content_hash(text))


def passages_of(text: str, *spans: Span) -> list[Passage]:
    sentences = split_sentences("d", text)
    return build_passages(document(text), sentences, partition(spans, 1, len(sentences)))


@pytest.mark.parametrize(
    ("spans", "headings", "expected"),
    [
        ([span(1, 5)], (), [span(1, 5)]),
        ([], (), [span(1, 5, "")]),
        ([span(2, 3)], (), [span(1, 1, ""), span(2, 3), span(4, 5, "")]),
        ([span(1, 3, "a"), span(2, 5, "b")], (), [span(1, 3, "a"), span(4, 5, "b")]),
        ([span(1, 5, "a"), span(2, 3, "b")], (), [span(1, 5, "a")]),
        ([span(3, 5, "b"), span(1, 2, "a")], (), [span(1, 2, "a"), span(3, 5, "b")]),
        ([span(-4, 2), span(4, 99)], (), [span(1, 2), span(3, 3, ""), span(4, 5)]),
        ([span(6, 9), span(-3, 0)], (), [span(1, 5, "")]),
        ([span(1, 1, "a"), span(1, 5, "b")], (), [span(1, 1, "a"), span(2, 5, "b")]),
        # A heading joins what is below it, the last one what is above.
        ([span(2, 5)], (1,), [span(1, 5)]),
        ([span(1, 1, "a"), span(2, 5, "b")], (1,), [span(1, 5, "b")]),
        ([span(1, 2, "a"), span(4, 5, "b")], (3,), [span(1, 2, "a"), span(3, 5, "b")]),
        ([span(1, 3)], (4, 5), [span(1, 5)]),
        ([span(3, 5)], (1, 2), [span(1, 5)]),
        ([span(1, 1, "a"), span(2, 2, "b"), span(3, 5, "c")], (1, 2), [span(1, 5, "c")]),
        ([span(1, 5)], (2,), [span(1, 5)]),
        ([], (1, 2, 3, 4, 5), [span(1, 5, "")]),
    ],
)
def test_partition(spans: list[Span], headings: tuple[int, ...], expected: list[Span]) -> None:
    assert partition(spans, 1, 5, frozenset(headings)) == expected


@given(
    st.integers(1, 12),
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 20)), max_size=10),
    st.frozensets(st.integers(1, 45), max_size=20),
)
def test_any_spans_become_a_partition(
    first: int, count: int, drawn: list[tuple[int, int]], headings: frozenset[int]
) -> None:
    last = first + count - 1
    found = partition([span(start, start + length) for start, length in drawn], first, last, headings)
    assert [n for one in found for n in range(one.first, one.last + 1)] == list(range(first, last + 1))
    if len(found) > 1:
        assert all(any(n not in headings for n in range(one.first, one.last + 1)) for one in found)
    # A second time changes nothing.
    assert partition(found, first, last, headings) == found


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 5), st.integers(20, 120))
def test_chunks_cover_every_sentence_and_keep_to_their_bounds(lengths: list[int], most: int, chars: int) -> None:
    sentences, at = [], 0
    for number, length in enumerate(lengths, start=4):
        sentences.append(Sentence(sentence_id=f"d#s{number}", number=number, char_start=at, char_end=at + length))
        at += length + 1
    found = chunks(sentences, most, chars)
    assert [n for one in found for n in range(one.first, one.last + 1)] == [s.number for s in sentences]
    for one in found:
        assert one.role == REMAINDER
        inside = sentences[one.first - 4 : one.last - 3]
        assert len(inside) <= most
        assert len(inside) == 1 or inside[-1].char_end - inside[0].char_start <= chars
    assert chunks([], most, chars) == []


def test_a_passage_is_the_text_of_its_sentences() -> None:
    text = "  One is here.  Two is\nhere. Three is {here}.\n"
    first, rest = passages_of(text, Span(1, 2, "one", "number", "place", "result"))
    assert (first.text, rest.text) == ("One is here.  Two is\nhere.", "Three is {here}.")
    assert (first.char_start, first.sentence_ids) == (2, ("d#s1", "d#s2"))
    assert (first.main_entity, first.entity_type, first.semantic_focus) == ("one", "number", "place")
    assert (first.evidence_role, first.semantic) == ("result", True)
    assert (rest.evidence_role, rest.semantic, rest.main_entity) == (REMAINDER, False, "")


def test_equal_texts_have_ids_of_their_own() -> None:
    found = passages_of("It rains.\n\nIt snows.\n\nIt rains.\n\nIt rains.", *(span(n, n) for n in range(1, 5)))
    assert len({passage.passage_id for passage in found}) == 4


@pytest.mark.parametrize("other", ["It hails and hails.", "It hails.\n\nIt storms."])
def test_an_edit_elsewhere_changes_no_id(other: str) -> None:
    before = "It rains.\n\nIt snows.\n\nIt rains.\n\nIt is dry."
    after = before.replace("It snows.", other)
    old = {p.passage_id: p.text for p in passages_of(before, *(span(n, n) for n in range(1, 5)))}
    new = {p.passage_id: p.text for p in passages_of(after, *(span(n, n) for n in range(1, 6)))}
    kept = {pid: text for pid, text in new.items() if pid in old}
    assert sorted(kept.values()) == ["It is dry.", "It rains.", "It rains."]
    assert all(old[pid] == text for pid, text in kept.items())


def test_ids_differ_between_documents() -> None:
    sentences = split_sentences("d", "It rains.")
    one, other = (build_passages(document("It rains.", doc), sentences, [span(1, 1)])[0] for doc in ("d", "e"))
    assert one.passage_id != other.passage_id


TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            ["It is so. ", "# Head\n", "- item\n", "\n\n", "\x00", "中。", "e\u0301 ", "\u2028", "😀! ", "a b"]
        )
    ).map("".join),
)


@settings(max_examples=60)
@given(TEXTS, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=5), st.integers(5, 100))
def test_every_character_is_in_exactly_one_passage_also_after_parquet(
    text: str, drawn: list[tuple[int, int]], max_chars: int
) -> None:
    whole = document(text)
    sentences = split_sentences("d", text, max_chars)
    spans = partition([span(first, first + more) for first, more in drawn], 1, len(sentences)) if sentences else []
    passages = build_passages(whole, sentences, spans)
    read = through_parquet("passages", passages)
    assert read == passages
    (read_document,) = through_parquet("documents", [whole])
    covered: Counter[int] = Counter()
    for passage in read:
        assert read_document.text[passage.char_start : passage.char_end] == passage.text
        covered.update(range(passage.char_start, passage.char_end))
    assert all(covered[at] == 1 for at, character in enumerate(text) if not character.isspace())
    assert max(covered.values(), default=1) == 1
    assert [s for passage in read for s in passage.sentence_ids] == [s.sentence_id for s in sentences]
    assert len({passage.passage_id for passage in read}) == len(read)


def through_parquet(name: str, records: list) -> list:
    buffer = io.BytesIO()
    pq.write_table(to_table(name, records), buffer)
    return list(records_of(name, pq.read_table(io.BytesIO(buffer.getvalue()))))
