from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from resin_core.errors import LLMServerError
from resin_core.online.lost import Lost, Stage, lost
from resin_core.online.packing import tokens
from resin_core.prompts.compose import NO_ANSWER
from resin_core.records import Answer, EvidenceItem, PoolItem, SourcePassage, Trace, TraceEvent, Usage
from tests.asking import ALBA, BRIO, ROWS, SHOP, Asked, Found, asked, playing, start
from tests.evidence import candidate, raising, source
from tests.scripted_llm import FakeChatModel

LONG = source("long", *(f"Line {n} of the long passage says this and that at some length." for n in range(1, 30)))
TWO = source("two", "The lamp has two parts.", "One is the foot.", "The other is the shade.")


def pid(of: SourcePassage) -> str:
    return of.passage.passage_id


def ends(found: Asked, *expected: str) -> list[Lost]:
    return lost(found.recorder.trace(), found.answer, expected)


def end(found: Asked, expected: str) -> Lost:
    (one,) = ends(found, expected)
    assert one.id == expected
    # One plain sentence, whatever was put into it.
    assert re.fullmatch(r"[A-Z].*[^.]\.", one.reason)
    assert "  " not in one.reason and " ," not in one.reason and ". " not in one.reason
    return one


async def test_what_is_cited_is_found_by_each_of_its_names() -> None:
    found = await asked(instead={"answer": "The Alba costs $12 [1], the Brio $15 [2]."})
    for name in ("alba", "alba#s1", pid(ALBA)):
        one = end(found, name)
        assert one.stage == "cited"
        assert "found by hop 1 (rank 1, score 0.9)" in one.reason and "cites it as [1]" in one.reason
    assert [one.stage for one in ends(found, "brio", "alba", "brio")] == ["cited"] * 3
    assert end(found, "brio#s1").reason == (
        "It was found by hop 2 (rank 1, score 0.8), reached the composer, and the answer cites it as [2]."
    )


async def test_a_composition_that_ignores_evidence_is_told() -> None:
    found = await asked(instead={"answer": "The Alba costs $12 [1]."})
    one = end(found, "brio#s1")
    assert one.stage == "not cited"
    assert one.reason == (
        "It was found by hop 2 (rank 1, score 0.8) and reached the composer, but the answer cites only other documents."
    )
    assert end(found, "brio").reason == f"Its passage {pid(BRIO)}{one.reason.removeprefix('It')}"


async def test_other_sentences_and_other_passages_of_a_document_are_told_apart() -> None:
    near = source("two", "The lamp was made in May.")
    rows = [[candidate(TWO, 1, score=0.9), candidate(near, 1, rank=2, score=0.8)]]
    found = await asked(
        None, Found(*rows, sources=[TWO, near]), {"answer": "The lamp has two parts [1]."}, decompose=False
    )
    assert "only other sentences of its passage" in end(found, "two#s3").reason
    assert "found only through other sentences of its passage" in end(found, "two#s3").reason
    assert "only other passages of its document" in end(found, pid(near)).reason
    assert [one.stage for one in ends(found, "two#s1", "two", pid(TWO), pid(near))] == [
        "cited", "cited", "cited", "not cited",
    ]  # fmt: skip


async def test_an_answer_that_refuses_is_told_from_one_that_was_withdrawn() -> None:
    refused = await asked(instead={"answer": NO_ANSWER})
    assert end(refused, "alba").stage == "not cited"
    assert "the composer found no answer in the evidence" in end(refused, "alba").reason
    withdrawn = await asked(instead={"answer": "Mister Zebedee Quux said so [1]."})
    assert withdrawn.stage("compose")[0]["derivation"]["withdrawn"]
    assert end(withdrawn, "alba").stage == "not cited"
    assert "withdrawn" in end(withdrawn, "alba").reason


async def test_a_miss_of_retrieval_is_told_and_says_what_came_nearest() -> None:
    found = await asked()
    one = end(found, "moon#s4")
    assert one.stage == "not retrieved"
    assert one.reason == (
        "None of the 2 hops found it: either no unit states it or the queries did not reach it; "
        "no passage of its document was found."
    )
    assert end(found, "moon").reason == (
        "None of the 2 hops found it: either the index holds no unit of it or the queries did not reach it."
    )
    assert end(found, "p0123456789abcdef").stage == "not retrieved"
    near = end(found, "shop#s9")
    assert near.stage == "not retrieved"
    # All of that passage was seen, and the sentence is not in it.
    assert near.reason.endswith(f"nearest came hop 1 (rank 2, score 0.6) with passage {pid(SHOP)} of its document.")


async def test_of_two_near_passages_the_better_is_named() -> None:
    other = source("shop", "It closes at five.", "It has a door.")
    rows = [[candidate(SHOP, 1, score=0.4)], [candidate(other, 1, rank=3, score=0.7)]]
    found = await asked(None, Found(*rows, sources=[SHOP, other]), {"select": '{"keep": [1]}'}, select="always")
    kept = {item.passage_id for item in found.answer.evidence}
    assert len(kept) == 1 and pid(other) not in kept
    reason = end(found, "shop#s7").reason
    assert f"nearest came hop 2 (rank 3, score 0.7) with passage {pid(other)} of its document." in reason


async def test_a_plan_that_failed_is_named_where_it_left_the_question_as_the_only_query() -> None:
    found = await asked(instead={"plan": "no plan at all"})
    reason = end(found, "moon#s1").reason
    assert reason.startswith("The only hop did not find it: ")
    assert "which was the question itself as no plan could be made, did not reach it" in reason
    assert "plan" not in end(await asked(decompose=False), "moon#s1").reason


async def test_too_weak_passages_are_told_with_what_they_are_beside() -> None:
    found = await asked(min_share=0.9)
    one = end(found, "shop")
    assert (one.stage, one.reason) == (
        "too weak",
        f"Its passage {pid(SHOP)} was found by hop 1 (rank 2, score 0.6), too weak beside the best that was found "
        "there, hop 1 (rank 1, score 0.9).",
    )
    assert end(found, "shop#s1").stage == end(found, pid(SHOP)).stage == "too weak"


async def test_no_room_is_told() -> None:
    found = await asked(passage_budget=2)
    assert len(found.answer.evidence) == 2
    assert end(found, "shop#s1").stage == "no room"
    assert "hop 1 (rank 2, score 0.6)" in end(found, "shop").reason
    assert end(found, "alba#s1").stage == "cited"


async def test_a_sentence_that_shortening_took_is_told_from_those_it_left() -> None:
    rows = [[candidate(LONG, 2, score=0.9, text="a"), candidate(LONG, 9, rank=2, score=0.7, text="b")]]
    found = await asked(
        None, Found(*rows, sources=[LONG]), {"answer": "Line 2 says this [1]."},
        decompose=False, evidence_tokens=tokens(LONG) // 3,
    )  # fmt: skip
    assert found.stage("select")[0]["shortened"] == [pid(LONG)]
    assert end(found, "long#s2").stage == "cited"
    one = end(found, "long#s5")
    assert one.stage == "shortened away"
    assert "found only through other sentences of its passage, by hop 1 (rank 1, score 0.9)" in one.reason
    assert end(found, "long#s9").stage == "not cited"
    unused = lost(found.recorder.trace(), found.answer.model_copy(update={"citations": ()}), ["long"])
    assert "reached the composer in a shortened form, but" in unused[0].reason
    assert end(found, "long#s20").stage == "shortened away", "no unit states it, but its passage was found"


async def test_a_sentence_that_a_unit_states_can_be_shortened_away_too() -> None:
    rows = [[candidate(LONG, n, rank=n, score=1 - n / 50, text=str(n)) for n in range(1, 30)]]
    found = await asked(None, Found(*rows, sources=[LONG]), decompose=False, evidence_tokens=tokens(LONG) // 3)
    one = end(found, "long#s29")
    assert one.stage == "shortened away"
    assert "found by hop 1 (rank 29, score 0.42)" in one.reason


async def test_a_selection_that_leaves_evidence_out_is_told() -> None:
    found = await asked(instead={"select": '{"keep": [1]}'}, select="always")
    (kept,) = found.answer.evidence
    out = next(of for of in (BRIO, SHOP) if of.passage.doc_id != kept.doc_id)
    one = end(found, out.passage.doc_id)
    assert one.stage == "not chosen"
    assert "packed, but the model's selection left it out" in one.reason
    assert end(found, f"{out.passage.doc_id}#s1").stage == "not chosen"


async def test_a_passage_that_several_hops_found_names_them_all_and_a_document_goes_as_far_as_its_best() -> None:
    weak = source("alba", "Alba means dawn.")
    rows = [
        [candidate(ALBA, 1, score=0.9), candidate(weak, 1, rank=2, score=0.1)],
        [candidate(BRIO, 1, score=0.8), candidate(ALBA, 1, rank=2, score=0.75)],
    ]
    found = await asked(
        None, Found(*rows, sources=[ALBA, BRIO, weak]), {"answer": "The Alba costs $12 [1]."}, min_share=0.5
    )
    assert end(found, pid(weak)).stage == "too weak"
    assert end(found, "alba").stage == "cited"
    assert "hop 1 (rank 1, score 0.9), hop 2 (rank 2, score 0.75)" in end(found, "alba").reason


async def test_a_passage_that_the_index_could_not_give_is_told() -> None:
    found = await asked(None, Found(*ROWS, sources=[ALBA, BRIO]))
    assert end(found, "shop").stage == "not retrieved"
    assert "could not be read from the index" in end(found, "shop").reason


async def run_out(**run: Any) -> Trace:
    """The trace of a question that failed."""
    events, recorder = start(run.pop("model"), run.pop("retriever", None) or Found(*ROWS), **run)
    with pytest.raises(LLMServerError):
        async for _ in events:
            pass
    trace: Trace = recorder.trace()
    return trace


def failing(task: str) -> FakeChatModel:
    return FakeChatModel(playing(**{task: raising(LLMServerError("it broke.", 500))}))


async def test_a_question_that_failed_says_how_far_it_came() -> None:
    composing = await run_out(model=failing("answer"))
    (one,) = lost(composing, None, ["alba#s1"])
    assert one.stage == "not cited"
    assert one.reason.endswith("but the composition ended early (LLMServerError: it broke).")
    selecting = await run_out(model=failing("select"), select="always")
    (one,) = lost(selecting, None, ["alba#s1"])
    assert one.stage == "not chosen"
    assert one.reason.endswith("but the question ended before evidence was selected.")
    planning = await run_out(model=failing("plan"))
    (one,) = lost(planning, None, ["alba#s1"])
    assert (one.stage, one.reason) == ("not retrieved", "The question ended before anything was retrieved.")


async def test_without_the_answer_nothing_counts_as_cited() -> None:
    found = await asked()
    (one,) = lost(found.recorder.trace(), None, ["alba#s1"])
    assert one.stage == "not cited"
    assert "the answer is not at hand" in one.reason
    cut = found.recorder.trace()
    cut = cut.model_copy(update={"events": tuple(e for e in cut.events if not e.stage.startswith("compose"))})
    (one,) = lost(cut, None, ["alba#s1"])
    assert "the question ended before it was answered" in one.reason


def trace_of(events: Sequence[TraceEvent]) -> Trace:
    return Trace(trace_id="t", question="q", strategy="other", generation="g", events=tuple(events))


def answer_of(pool: Sequence[SourcePassage], evidence: Sequence[SourcePassage]) -> Answer:
    return Answer(
        question="q", answer="So it is.", citations=(), strategy="other", generation="g", trace_id="t",
        evidence=tuple(
            EvidenceItem(passage_id=pid(of), doc_id=of.passage.doc_id, sentence_ids=of.passage.sentence_ids, hops=())
            for of in evidence
        ),
        pool=tuple(PoolItem(passage_id=pid(of), doc_id=of.passage.doc_id, score=0.5) for of in pool),
        usage=Usage(), timings_s={},
    )  # fmt: skip


def test_of_a_strategy_without_stages_the_answer_alone_says_what_it_can() -> None:
    answer = answer_of([ALBA, BRIO], [ALBA])
    found = lost(trace_of([]), answer, ["alba#s1", "brio", "brio#s1", "moon"])
    assert [one.stage for one in found] == ["not cited", "not chosen", "not retrieved", "not retrieved"]
    assert "the answer cites nothing" in found[0].reason
    assert "by which hop the trace does not say" in found[1].reason and "does not say why" in found[1].reason
    assert found[3].reason == "It is not among what the answer was made from, and the trace tells of no retrieval."


def test_a_retrieval_without_hops_pool_scores_or_sentences_is_read_as_far_as_it_goes() -> None:
    row = {"candidates": [{"unit_id": "u", "passage_id": pid(ALBA), "doc_id": "alba"}]}
    event = TraceEvent(stage="retrieve", started_s=0, seconds=0, data={"hops": [{"candidates": []}, row]})
    found = lost(trace_of([event]), None, ["alba", "alba#s1", "moon"])
    assert [one.stage for one in found] == ["not chosen", "not retrieved", "not retrieved"]
    assert "was found by hop 2, but the question ended" in found[0].reason
    assert f"nearest came hop 2 with passage {pid(ALBA)} of its document, which may hold it" in found[1].reason
    bare = trace_of([TraceEvent(stage="retrieve", started_s=0, seconds=0)])
    assert "No query found it" in lost(bare, None, ["moon"])[0].reason


def test_of_several_selections_the_last_is_what_the_composer_saw() -> None:
    def selection(*kept: SourcePassage, **left: Any) -> TraceEvent:
        evidence = [item.model_dump() for item in answer_of([], kept).evidence]
        return TraceEvent(stage="select", started_s=0, seconds=0, data={"reason": "selected", "kept": evidence, **left})

    trace = trace_of([selection(BRIO, weak=[pid(ALBA)]), selection(ALBA, not_chosen=[pid(BRIO)])])
    assert [one.stage for one in lost(trace, None, ["alba", "brio"])] == ["not cited", "not retrieved"]
    pool = [PoolItem(passage_id=pid(of), doc_id=of.passage.doc_id, score=0.5).model_dump() for of in (ALBA, BRIO)]
    found = TraceEvent(stage="retrieve", started_s=0, seconds=0, data={"pool": pool})
    trace = trace_of([found, *trace.events])
    assert [one.stage for one in lost(trace, None, ["alba", "brio"])] == ["not cited", "not chosen"]


@pytest.mark.parametrize("name", ["", "#s1", "a#s", "a#s" + "9" * 5000, "x" * 500, "a\n#s1", "#s#s1"])
def test_no_id_breaks_it(name: str) -> None:
    (one,) = lost(trace_of([]), answer_of([ALBA], [ALBA]), [name])
    assert (one.id, one.stage) == (name, "not retrieved")


async def test_a_document_whose_id_looks_like_a_sentence_is_a_document() -> None:
    odd = source("notes#s2", "The odd note says so.", "And more.")
    rows = [[candidate(odd, 1, score=0.9)]]
    found = await asked(None, Found(*rows, sources=[odd]), {"answer": "It says so [1]."}, decompose=False)
    assert [one.stage for one in ends(found, "notes#s2", "notes#s2#s1", "notes#s2#s2")] == [
        "cited", "cited", "not cited",
    ]  # fmt: skip


def test_the_stages_are_those_of_the_report() -> None:
    assert get_args(Stage) == (
        "not retrieved", "too weak", "no room", "shortened away", "not chosen", "not cited", "cited",
    )  # fmt: skip
