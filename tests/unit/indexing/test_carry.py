from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resin_core.config.sections import IndexingSection
from resin_core.ids import content_hash
from resin_core.indexing.carry import Former
from resin_core.indexing.document import Indexed, index_document
from resin_core.indexing.passages import REMAINDER
from resin_core.records import Document, Reject, Usage
from tests.scripted_llm import FakeChatModel, Reply
from tests.scripted_llm.indexing_replies import claim

SHOWN = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
LAMPS = tuple(f"Lamp number {n} costs ${n}00." for n in range(1, 61))
LONG = " ".join(LAMPS)


def document(text: str, doc_id: str = "d", title: str = "Lamps") -> Document:
    return Document(doc_id=doc_id, title=title, text=text, uri=f"file:///{doc_id}", content_hash=content_hash(text))


def shown(request: Mapping[str, Any]) -> dict[int, str]:
    return {int(number): text for number, text in SHOWN.findall(request["messages"][-1]["content"])}


def said(sentence: str) -> str:
    return claim(sentence) if len(sentence.split()) > 2 else f"fact | thing | is | {sentence}"


def answers(claims: Mapping[str, list[str]] | None = None, size: int = 3) -> Callable[[dict[str, Any]], Reply]:
    """Passages of `size` sentences, and a claim in the words of every sentence, unless `claims` has its text."""

    def handler(request: dict[str, Any]) -> Reply:
        sentences = shown(request)
        schema = request["json_schema"]["properties"]
        value: dict[str, Any] = {}
        if "units" in schema:
            numbers = map(int, schema["units"]["properties"])
            value["units"] = {str(n): (claims or {}).get(sentences[n]) or [said(sentences[n])] for n in numbers}
        if "passages" in schema:
            rows = list(sentences)
            value["passages"] = [
                f"{rows[at]}-{rows[min(at + size, len(rows)) - 1]} | Lamp {rows[at]} | lamp | price | property"
                for at in range(0, len(rows), size)
            ]
        return Reply(json.dumps(value), usage=(40, 6))

    return handler


def fails_at(text: str, otherwise: Callable[[dict[str, Any]], Reply], schema: str = "") -> Callable[..., Reply]:
    """No JSON for a request that shows the text (and asks by the named schema); else the other's reply."""

    def handler(request: dict[str, Any]) -> Reply:
        if text in shown(request).values() and schema in request["schema_name"]:
            return Reply("no JSON", usage=(40, 6))
        return otherwise(request)

    return handler


async def indexed(
    new: Document | str, before: Indexed | Former | None = None, handler: Any = None, **values: Any
) -> tuple[Indexed, list[list[int]]]:
    """The result, and the numbers of the sentences shown in each call."""
    model = FakeChatModel(handler or answers())
    asked = IndexingSection(**{"repair_attempts": 0} | values)
    made = document(new) if isinstance(new, str) else new
    found = await index_document(made, model, asked, former(before) if isinstance(before, Indexed) else before)
    check_whole(found)
    return found, [list(shown(request.model_dump())) for request in model.requests]


def former(found: Indexed) -> Former:
    return Former(found.document, tuple(found.passages), tuple(found.units), tuple(found.rejects))


def check_whole(found: Indexed) -> None:
    """What holds for every document: nothing is lost, every span is exact, every id is its own."""
    text = found.document.text
    covered = Counter(at for p in found.passages for at in range(p.char_start, p.char_end))
    assert all(covered[at] == 1 for at, character in enumerate(text) if not character.isspace())
    assert all(text[p.char_start : p.char_end] == p.text for p in found.passages)
    assert [s for p in found.passages for s in p.sentence_ids] == [s.sentence_id for s in found.sentences]
    by_id = {passage.passage_id: passage for passage in found.passages}
    assert len(by_id) == len(found.passages)
    assert len({unit.unit_id for unit in found.units}) == len(found.units)
    by_sentence = {s.sentence_id: s for s in found.sentences}
    for unit in found.units:
        inside = [by_sentence[sentence_id] for sentence_id in unit.sentence_ids]
        assert text[unit.char_start : unit.char_end] == unit.evidence_quote
        assert (unit.char_start, unit.char_end) == (inside[0].char_start, inside[-1].char_end)
        assert set(unit.sentence_ids) <= set(by_id[unit.passage_id].sentence_ids)
    assert {record.doc_id for record in (*found.passages, *found.units)} <= {found.document.doc_id}


def ids_of(found: Indexed) -> tuple[list[str], list[str]]:
    return [passage.passage_id for passage in found.passages], [unit.unit_id for unit in found.units]


async def test_the_same_text_costs_no_call_and_gives_the_same_records() -> None:
    before, calls = await indexed(LONG)
    assert len(calls) == 6
    assert len(before.units) == 60
    again, calls = await indexed(LONG, before)
    assert calls == []
    assert (again.passages, again.units, again.usage) == (before.passages, before.units, Usage())
    assert (before.carried, again.carried) == (0, len(before.passages))


async def test_a_moved_document_costs_no_call_and_gets_the_ids_of_a_fresh_extraction() -> None:
    extra = {
        "The seal raises the cost of the lamp fuse (LF).": ["cause | seal | raises | cost of the lamp fuse"],
        "If the lamp fuse is cracked, it must not be used.": ["rule | lamp fuse is cracked | then | must not be used"],
        "The lamp fuse may hold water.": ["fact | lamp fuse | holds | water"],
    }
    wrong = {LAMPS[4]: ["fact | Lamp number 5 | costs | $901", "nonsense"], LAMPS[7]: [claim(LAMPS[7])] * 2}
    text = " ".join((LONG, *extra))
    before, _ = await indexed(text, handler=answers(extra | wrong))
    assert {unit.kind for unit in before.units} >= {"rule", "causal-edge"}
    assert {unit.modality for unit in before.units} == {"", "necessary", "possible"}
    assert ("LF",) in {unit.aliases for unit in before.units}
    moved = document(text, "other", "Another title")
    carried, calls = await indexed(moved, before)
    fresh, _ = await indexed(document(text, "other"), handler=answers(extra | wrong))
    assert calls == []
    assert (carried.passages, carried.units) == (fresh.passages, fresh.units)
    assert len(carried.rejects) == 2
    assert carried.rejects == fresh.rejects
    assert not set(ids_of(carried)[1]) & set(ids_of(before)[1])


async def test_one_edited_sentence_costs_one_call_for_its_passage() -> None:
    before, _ = await indexed(LONG)
    lamps = [*LAMPS[:32], "Lamp number 33, a lamp that nobody buys, costs $5.", *LAMPS[33:]]
    after, calls = await indexed(" ".join(lamps), before)
    (passage,) = [p for p in before.passages if "number 33" in p.text]
    (changed,) = [p for p in after.passages if "number 33" in p.text]
    assert calls == [[int(s.partition("#s")[2]) for s in passage.sentence_ids]]
    assert changed.text != passage.text
    for ours, theirs in zip(ids_of(before), ids_of(after), strict=True):
        assert len(set(ours) ^ set(theirs)) in (2, 2 * len(passage.sentence_ids))
    untouched = {u.unit_id: u for u in before.units if u.passage_id != passage.passage_id}
    now = {u.unit_id: u for u in after.units}
    assert untouched.keys() <= now.keys()
    shift = len(" ".join(lamps)) - len(LONG)
    assert {now[key].char_start - u.char_start for key, u in untouched.items()} == {0, shift}
    assert {p.passage_id for p in before.passages} - {p.passage_id for p in after.passages} == {passage.passage_id}
    assert after.carried == len(before.passages) - 1
    assert after.usage.llm_calls == 1


async def test_what_is_inserted_at_the_front_is_all_that_is_read() -> None:
    before, _ = await indexed(LONG, handler=answers({LAMPS[9]: [claim(LAMPS[9]), "nonsense"]}))
    after, calls = await indexed("A lamp is a thing. Lamps give light.\n\n" + LONG, before)
    assert calls == [[1, 2]]
    # Its detail names sentence 10, which is now another.
    assert (len(before.rejects), after.rejects) == (1, [])
    assert ids_of(after)[0][1:] == ids_of(before)[0]
    assert set(ids_of(before)[1]) < set(ids_of(after)[1])
    assert after.units[-1].sentence_ids == ("d#s62",)


async def test_a_deleted_passage_costs_nothing() -> None:
    before, _ = await indexed(LONG, handler=answers({LAMPS[40]: ["nonsense"]}))
    assert len(before.rejects) == 1
    gone = before.passages[3]
    after, calls = await indexed(LONG.replace(gone.text + " ", ""), before)
    assert calls == []
    assert [p.passage_id for p in before.passages if p != gone] == ids_of(after)[0]
    assert [u.unit_id for u in before.units if u.passage_id != gone.passage_id] == ids_of(after)[1]
    # Which passage a reject belongs to is not known.
    assert after.rejects == []


async def test_a_deleted_passage_that_begins_as_the_next_does_costs_nothing() -> None:
    text = "Lamps are sold here. One lamp costs $1. Lamps are sold here. Two lamps cost $2."
    before, _ = await indexed(text, handler=answers(size=2))
    assert len(before.passages) == 2
    after, calls = await indexed("Lamps are sold here. Two lamps cost $2.", before)
    assert calls == []
    assert ids_of(after)[0] == ids_of(before)[0][1:]


REPEATED = "The bus costs $4."


@pytest.mark.parametrize(
    ("new", "shown_numbers"),
    [
        ([REPEATED] * 4, []),
        ([REPEATED] * 6, [[6]]),
        ([REPEATED, "The tram costs $9.", *[REPEATED] * 4], [[2]]),
        (["The tram costs $9.", *[REPEATED] * 5, "The tram costs $8."], [[1], [7]]),
        (["The tram costs $9.", *[REPEATED] * 3, "The tram costs $8."], [[1], [5]]),
    ],
)
async def test_repeated_passages_are_each_used_once(new: list[str], shown_numbers: list[list[int]]) -> None:
    handler = answers(size=1)
    before, _ = await indexed("\n\n".join([REPEATED] * 5), handler=handler)
    after, calls = await indexed("\n\n".join(new), before, handler)
    fresh, _ = await indexed("\n\n".join(new), handler=handler)
    assert calls == shown_numbers
    assert ids_of(after) == ids_of(fresh)
    assert after.carried == min(5, new.count(REPEATED))


async def test_of_two_swapped_paragraphs_the_longer_stays() -> None:
    one, two = " ".join(LAMPS[:3]), " ".join(LAMPS[3:5])
    ends = ("Lamps are sold here.", "Lamps are bought here.")
    handler = answers()

    def by_paragraph(request: dict[str, Any]) -> Reply:
        reply = json.loads(handler(request).text)
        texts = shown(request)
        cuts = [n for n, text in texts.items() if text in (LAMPS[0], LAMPS[3], *ends)]
        lasts = [*(n - 1 for n in cuts[1:]), max(texts)]
        reply["passages"] = [f"{a}-{b} | lamp" for a, b in zip(cuts, lasts, strict=True)]
        return Reply(json.dumps(reply))

    before, _ = await indexed("\n\n".join((ends[0], one, two, ends[1])), handler=by_paragraph)
    after, calls = await indexed("\n\n".join((ends[0], two, one, ends[1])), before, by_paragraph)
    assert calls == [[2, 3]]
    assert [p.text for p in after.passages] == [ends[0], two, one, ends[1]]
    assert [set(ids) for ids in ids_of(after)] == [set(ids) for ids in ids_of(before)]


async def test_a_wholly_new_text_is_indexed_as_without_a_former() -> None:
    before, _ = await indexed(LONG)
    text = " ".join(f"Pump {n} moves {n} litres." for n in range(30))
    fresh, asked = await indexed(text)
    after, calls = await indexed(text, before)
    assert (after, calls) == (fresh, asked)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Lamp number 60 costs $6000.", "Lamp number 60 costs $6000.5 now."),
        ("$5900.", "$1234."),
        ("number 59", "no. 59"),
    ],
)
async def test_any_change_within_a_passage_is_read(old: str, new: str) -> None:
    before, _ = await indexed(LONG, handler=answers({LAMPS[n]: ["nonsense"] for n in (57, 58, 59)}, size=10))
    without = Former(before.document, tuple(before.passages), tuple(before.units))
    _, calls = await indexed(LONG.replace(old, new), without)
    assert calls == [list(range(51, 61))]


async def test_a_former_passage_given_twice_is_used_once() -> None:
    before, _ = await indexed(LONG)
    twice = Former(before.document, tuple(before.passages) * 2, tuple(before.units))
    after, calls = await indexed(LONG, twice)
    assert (calls, after.passages, after.units) == ([], before.passages, before.units)


async def test_white_space_within_a_passage_is_part_of_its_text() -> None:
    before, _ = await indexed(LONG)
    _, calls = await indexed(LONG.replace(LAMPS[0] + " ", LAMPS[0] + "  "), before)
    assert calls == [[1, 2, 3]]


async def test_white_space_between_passages_is_not() -> None:
    before, _ = await indexed(LONG)
    after, calls = await indexed("\n\n".join(p.text for p in before.passages) + "\n", before)
    assert calls == []
    assert ids_of(after) == ids_of(before)


async def test_no_window_spans_a_carried_passage_and_long_runs_are_cut() -> None:
    before, _ = await indexed(LONG)
    edited = list(LAMPS)
    for n in (*range(3, 30), 50):
        edited[n] = edited[n].replace("costs", "has a price of")
    after, calls = await indexed(" ".join(edited), before)
    carried = {p.passage_id for p in before.passages} & set(ids_of(after)[0])
    kept = {int(s.partition("#s")[2]) for p in after.passages if p.passage_id in carried for s in p.sentence_ids}
    assert sorted(n for call in calls for n in call) == sorted(set(range(1, 61)) - kept)
    assert all(call == list(range(call[0], call[-1] + 1)) for call in calls)
    assert [len(call) for call in calls] == [9, 9, 9, 3]


async def test_units_carried_and_new_stand_in_the_order_of_the_text() -> None:
    before, _ = await indexed(LONG)
    after, _ = await indexed(LONG.replace("$100.", "$150."), before)
    assert [unit.char_start for unit in after.units] == sorted(unit.char_start for unit in after.units)


@pytest.mark.parametrize("single", [True, False])
async def test_the_part_of_a_failed_call_is_read_again(single: bool) -> None:
    schema = "" if single else "passages"
    before, calls = await indexed(LONG, handler=fails_at(LAMPS[12], answers(), schema), single_call=single)
    assert [r.reason for r in before.rejects] == ["not-json"]
    assert [p.evidence_role for p in before.passages].count(REMAINDER) == 1
    after, calls = await indexed(LONG, before, single_call=single)
    fresh, _ = await indexed(LONG, single_call=single)
    assert sorted({n for call in calls for n in call}) == list(range(11, 21))
    assert (after.passages, after.units, after.rejects) == (fresh.passages, fresh.units, [])


async def test_a_passage_whose_units_call_failed_is_read_again() -> None:
    before, _ = await indexed(LONG, handler=fails_at(LAMPS[12], answers(), "units"), single_call=False)
    assert len(before.units) == 57
    assert all(passage.semantic for passage in before.passages)
    after, calls = await indexed(LONG, before, single_call=False)
    assert {n for call in calls for n in call} == {11, 12, 13}
    assert len(after.units) == 60


async def test_a_call_that_fails_again_leaves_the_rest_carried() -> None:
    failing = fails_at(LAMPS[12], answers())
    before, _ = await indexed(LONG, handler=failing)
    after, calls = await indexed(LONG, before, failing)
    assert calls == [list(range(11, 21))]
    assert after.passages == before.passages
    assert [r.reason for r in after.rejects] == ["not-json"]


async def test_sentences_the_model_left_out_are_carried_when_no_call_failed() -> None:
    def handler(request: dict[str, Any]) -> Reply:
        reply = json.loads(answers()(request).text)
        return Reply(json.dumps(reply | {"passages": reply["passages"][1:]}))

    before, _ = await indexed(LONG, handler=handler)
    assert {passage.semantic for passage in before.passages} == {True, False}
    after, calls = await indexed(LONG, before, handler)
    assert calls == []
    assert after.passages == before.passages
    foreign = reject("e", "index_document")
    once_more, calls = await indexed(LONG, Former(before.document, tuple(before.passages), (), (foreign,)), handler)
    assert (once_more.rejects, calls) == ([], [])


def reject(doc_id: str, stage: str) -> Reject:
    return Reject(reject_id=f"r{stage}", doc_id=doc_id, uri="u", stage=stage, reason="x", detail="d", raw="raw")


async def test_rejects_of_other_stages_are_not_taken_over() -> None:
    before, _ = await indexed(LONG)
    known = Former(before.document, tuple(before.passages), tuple(before.units), (reject("d", "read"),))
    after, calls = await indexed(LONG, known)
    assert (after.rejects, calls) == ([], [])


STATION = "The Halden station is on the river."
PUMPS = "It has three pumps."
OF_PUMPS = "fact | {} station | number of pumps | three"


async def test_a_claim_about_a_name_that_is_no_longer_said_is_read_again() -> None:
    def naming(name: str) -> Any:
        return answers({PUMPS: [OF_PUMPS.replace("{}", name)]}, size=1)

    before, _ = await indexed(f"{STATION} {PUMPS}", handler=naming("Halden"))
    assert [unit.subject for unit in before.units] == ["The Halden station", "Halden station"]
    kept, calls = await indexed(f"{STATION.replace('river', 'lake')} {PUMPS}", before, naming("Halden"))
    assert calls == [[1]]
    assert kept.units[1] == before.units[1].model_copy(
        update={"char_start": kept.units[1].char_start, "char_end": kept.units[1].char_end}
    )
    changed, calls = await indexed(f"{STATION.replace('Halden', 'Kessel')} {PUMPS}", before, naming("Kessel"))
    assert calls == [[1, 2]]
    assert [unit.subject for unit in changed.units] == ["The Kessel station", "Kessel station"]


async def test_a_claim_about_a_name_of_the_title_is_carried_to_another_title() -> None:
    handler = answers({PUMPS: [OF_PUMPS.replace("{}", "Halden")]}, size=1)
    before, _ = await indexed(document(PUMPS, title="Halden station"), handler=handler)
    assert len(before.units) == 1
    _, calls = await indexed(document(PUMPS, title="Another"), before, handler)
    assert calls == []
    after, calls = await indexed(document(f"{PUMPS} Lamp 1 is off.", title="Another"), before, handler)
    assert calls == [[2]]
    assert len(after.units) == 2


async def test_a_passage_whose_quote_is_not_in_its_place_is_read_again() -> None:
    before, _ = await indexed(LONG)
    for wrong in ({"evidence_quote": "Lamp"}, {"char_start": 0}, {"sentence_ids": ("d#s1",)}, {"char_end": 9999}):
        units = [*before.units]
        units[30] = units[30].model_copy(update=wrong)
        after, calls = await indexed(LONG, Former(before.document, tuple(before.passages), tuple(units)))
        assert calls == [[31, 32, 33]]
        assert after.units == before.units


async def test_a_former_split_in_another_way_is_read_again_where_it_differs() -> None:
    long = "A lamp that " + "shines and " * 12 + "costs $7."
    text = f"{LAMPS[0]} {LAMPS[1]} {LAMPS[2]} {long} {LAMPS[3]} {LAMPS[4]}"
    before, _ = await indexed(text)
    after, calls = await indexed(text, before, max_sentence_chars=80)
    assert len(after.sentences) > len(before.sentences)
    assert after.passages[0] == before.passages[0]
    assert {n for call in calls for n in call} == set(range(4, len(after.sentences) + 1))


async def test_blank_texts() -> None:
    blank, calls = await indexed(" \n")
    assert (blank.passages, calls) == ([], [])
    for text, before in (("", blank), (LONG, blank), ("", (await indexed(LONG))[0])):
        after, calls = await indexed(text, before)
        assert (after.carried, len(calls)) == (0, 6 if text else 0)
        assert after.rejects == []


async def test_thousands_of_equal_and_unlike_passages() -> None:
    paragraphs = [REPEATED if n % 2 else f"Lamp number {n} costs ${n}00." for n in range(4000)]
    handler = answers(size=1)
    before, _ = await indexed("\n\n".join(paragraphs), handler=handler)
    order = random.Random(5)
    changed = order.sample(range(0, 4000, 2), 40)
    for n in changed:
        paragraphs[n] = f"Lamp number {n} is sold."
    after, calls = await indexed("\n\n".join(paragraphs), before, handler)
    assert sorted(n for call in calls for n in call) == sorted(n + 1 for n in changed)
    assert after.carried == 4000 - 40


PIECES = (
    "The bus costs $4.", "The bus costs $4.", "The tram takes 9 minutes.", "# Times", "It is late.", "中文。", "\x00",
    "Kessel built the bus.", "Yes.", "{0} is {x}.", "Lamp 3 holds water (LW). ",
)  # fmt: skip
JOINS = (" ", "\n\n", "\n", "  ")
TEXT = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(JOINS)), max_size=25)


@st.composite
def edits(draw: st.DrawFn) -> list[list[tuple[str, str]]]:
    """A text and some later versions of it."""
    versions = [draw(TEXT)]
    for _ in range(draw(st.integers(1, 3))):
        text = list(versions[-1])
        for _ in range(draw(st.integers(0, 3))):
            at, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
            what = draw(st.sampled_from(("replace", "delete", "insert", "move")))
            taken = text[at:end] if what == "move" else []
            if what != "insert":
                text[at:end] = []
            put = draw(st.integers(0, len(text))) if what == "move" else at
            text[put:put] = taken or (draw(TEXT)[:4] if what in ("replace", "insert") else [])
        versions.append(text)
    return versions


def bad_sometimes(size: int, every: int) -> Callable[[dict[str, Any]], Reply]:
    def handler(request: dict[str, Any]) -> Reply:
        if every and sum(map(ord, "".join(shown(request).values()))) % every == 0:
            return Reply("no JSON")
        return answers({"Yes.": ["nonsense"]}, size)(request)

    return handler


@settings(deadline=None, max_examples=80)
@given(edits(), st.integers(1, 4), st.sampled_from((0, 0, 3)), st.booleans())
async def test_any_edits_keep_what_holds_for_every_document(
    versions: list[list[tuple[str, str]]], size: int, every: int, renamed: bool
) -> None:
    handler = bad_sometimes(size, every)
    before: Indexed | None = None
    for number, version in enumerate(versions):
        text = "".join(piece + join for piece, join in version)
        doc_id = f"d{number}" if renamed else "d"
        found, calls = await indexed(document(text, doc_id), before, handler, window_sentences=4)
        asked = [n for call in calls for n in call]
        assert len(asked) == len(set(asked)), "no sentence is paid for twice"
        assert 0 <= found.carried <= len(found.passages)
        again, calls = await indexed(document(text, doc_id), found, handler, window_sentences=4)
        assert [p.passage_id for p in again.passages] == [p.passage_id for p in found.passages] or every
        if not any(reject.stage == "index_document" for reject in found.rejects):
            assert calls == []
            assert (again.passages, again.units, again.rejects) == (found.passages, found.units, found.rejects)
        before = found
