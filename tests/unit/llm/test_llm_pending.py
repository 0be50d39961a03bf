"""The model that only answers from stored replies: one pass notes all that can be asked, rounds end where calls do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from resin_core.config.sections import IndexingSection
from resin_core.errors import ContextLengthError, DeadlineError, LLMError, LLMReplyError
from resin_core.ids import content_hash
from resin_core.indexing.document import Indexed, index_document
from resin_core.llm import pending
from resin_core.llm.kept import call_key
from resin_core.llm.pending import AnsweredModel, NotYetError, PendingModel, answered, refusal
from resin_core.llm.protocol import Deadline, Message, Reply, Request
from resin_core.records import Document, Usage
from tests.scripted_llm import FakeChatModel
from tests.scripted_llm.indexing_replies import play

SEED = 7
TEXT = " ".join(f"Lamp number {n} costs ${n}00." for n in range(1, 13))
ASK = Request(messages=(Message(role="user", content="hi"),), max_tokens=5, prompt_id="p@1")


def document(text: str = TEXT) -> Document:
    return Document(doc_id="d", title="Lamps", text=text, uri="u", content_hash=content_hash(text))


def reply(text: str, finish: str = "stop") -> Reply:
    usage = Usage(llm_calls=1, prompt_tokens=9, completion_tokens=3)
    return Reply(text=text, finish_reason=finish, model="m", usage=usage, seconds=0.5)


def played(request: Request) -> Reply:
    """What the scripted indexing model says."""
    asked = request.model_dump(mode="json")
    schema = {"json_schema": {"schema": request.json_schema}}
    if request.schema_name == "passages":
        return reply(json.dumps({"passages": ["1-99 | Lamps | lamps | prices | property"]}))
    action: Any = play({**asked, "response_format": schema})
    value = json.loads(action.text)
    return reply(json.dumps(value if request.schema_name == "index_document" else {"units": value["units"]}))


async def one_pass(replies: dict[str, Reply], settings: IndexingSection) -> tuple[Indexed | None, dict[str, Request]]:
    model = PendingModel("m", SEED, replies)
    try:
        return await index_document(document(), model, settings), model.open
    except NotYetError:
        return None, model.open


async def rounds(settings: IndexingSection, answer: Any = played) -> tuple[Indexed, list[list[Request]]]:
    """Passes until nothing is open, and what each asked."""
    replies: dict[str, Reply] = {}
    asked: list[list[Request]] = []
    for _ in range(8):
        found, still = await one_pass(replies, settings)
        if found is not None:
            return found, asked
        assert still, "a pass that is not done must ask something"
        assert not still.keys() & replies.keys(), "nothing is asked twice"
        asked.append(list(still.values()))
        replies.update({key: answer(request) for key, request in still.items()})
    raise AssertionError("the rounds do not end")


async def test_a_stored_reply_is_given_and_a_missing_one_noted_under_its_key() -> None:
    key = call_key("m", SEED, ASK)
    model = PendingModel("m", SEED, {key: reply("hello")})
    assert (await model.complete(ASK)).text == "hello"
    assert model.open == {}
    other = ASK.model_copy(update={"max_tokens": 6})
    with pytest.raises(NotYetError, match="p@1") as caught:
        await model.complete(other)
    assert model.open == {call_key("m", SEED, other): other}
    assert isinstance(caught.value, LLMError) and not caught.value.retryable


async def test_model_and_seed_are_part_of_the_key() -> None:
    stored = {call_key("m", SEED, ASK): reply("hello")}
    for model in (PendingModel("other", SEED, stored), PendingModel("m", SEED + 1, stored)):
        with pytest.raises(NotYetError):
            await model.complete(ASK)


async def test_one_pass_notes_every_window_of_a_document_not_only_the_first() -> None:
    settings = IndexingSection(window_sentences=2, repair_attempts=0)
    model = FakeChatModel()
    await index_document(document(), model, settings)
    found, still = await one_pass({}, settings)
    assert found is None
    assert len(model.requests) == 6
    assert {call_key("m", SEED, request) for request in model.requests} == still.keys()


async def test_two_call_form_asks_passages_in_the_first_round_and_all_units_in_the_second() -> None:
    settings = IndexingSection(window_sentences=4, single_call=False)
    found, asked = await rounds(settings)
    assert [[request.schema_name for request in each] for each in asked] == [["passages"] * 3, ["units"] * 3]
    assert len(found.units) == 12


async def test_second_calls_are_noted_beside_a_window_whose_first_call_is_still_missing() -> None:
    settings = IndexingSection(window_sentences=4, single_call=False)
    _, first = await one_pass({}, settings)
    late = next(iter(first))  # the window whose failure comes first, before the others have begun their second calls
    replies = {key: played(request) for key, request in first.items() if key != late}
    _, still = await one_pass(replies, settings)
    assert sorted(request.schema_name for request in still.values()) == ["passages", "units", "units"]
    assert late in still


async def test_a_bad_reply_is_asked_again_with_its_note_in_the_next_round() -> None:
    def bad_first(request: Request) -> Reply:
        return reply("no JSON") if request.temperature == 0 else played(request)

    found, asked = await rounds(IndexingSection(window_sentences=4), bad_first)
    assert [len(each) for each in asked] == [3, 3]
    assert all("could not be used" in request.messages[-1].content for request in asked[1])
    assert (found.rejects, len(found.units), found.usage.llm_calls) == ([], 12, 6)


async def test_an_empty_reply_is_an_empty_reply_and_ends_as_a_reject_with_what_it_cost() -> None:
    found, asked = await rounds(IndexingSection(window_sentences=12), lambda request: reply("", "stop"))
    assert [len(each) for each in asked] == [1, 1]
    assert [(reject.stage, reject.reason) for reject in found.rejects] == [("index_document", "empty")]
    assert found.usage == Usage(llm_calls=2, prompt_tokens=18, completion_tokens=6)


async def test_a_window_too_long_for_the_engine_is_halved_over_rounds() -> None:
    def short_only(request: Request) -> Reply:
        if request.messages[-1].content.count("Lamp number") > 6:
            return refusal(pending.TOO_LONG, "99 tokens too many", "m")
        return played(request)

    found, asked = await rounds(IndexingSection(window_sentences=12), short_only)
    assert [len(each) for each in asked] == [1, 1, 1]
    assert (found.rejects, len(found.units), found.usage.llm_calls) == ([], 12, 2)


async def test_a_refused_call_ends_as_a_reject_that_says_why_and_cost_nothing() -> None:
    refused = refusal(pending.FAILED, "ValueError: no grammar for it", "m")
    found, asked = await rounds(IndexingSection(window_sentences=12, repair_attempts=0), lambda request: refused)
    (reject,) = found.rejects
    assert (reject.stage, reject.reason) == ("index_document", "llm-engine")
    assert "no grammar for it" in reject.detail
    assert (found.usage, found.units, len(asked)) == (Usage(), [], 1)


@pytest.mark.parametrize(
    ("stored", "kind", "reason"),
    [
        (reply(""), LLMReplyError, "empty"),
        (reply("", "empty"), LLMReplyError, "empty"),
        (refusal(pending.FAILED, "broken", "m"), LLMReplyError, "llm-engine"),
        (refusal(pending.TOO_LONG, "too long", "m"), ContextLengthError, None),
    ],
)
async def test_what_is_stored_in_place_of_a_reply_is_raised(stored: Reply, kind: type[LLMError], reason: str) -> None:
    with pytest.raises(kind) as caught:
        answered(stored)
    assert getattr(caught.value, "reason", None) == reason

    class Kept(FakeChatModel):
        async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
            return stored

    with pytest.raises(kind):
        await AnsweredModel(Kept()).complete(ASK)


async def test_a_reply_that_was_cut_is_no_refusal() -> None:
    assert answered(reply("cut", "length")).text == "cut"


async def test_a_stream_is_the_whole_reply_at_once() -> None:
    stored = reply("hello")
    stream: AsyncIterator[str | Reply] = PendingModel("m", SEED, {call_key("m", SEED, ASK): stored}).stream(ASK)
    assert [piece async for piece in stream] == ["hello", stored]


async def test_a_passed_deadline_asks_nothing() -> None:
    model = PendingModel("m", SEED, {})
    with pytest.raises(DeadlineError):
        await model.complete(ASK, Deadline.after(-1))
    assert model.open == {}
