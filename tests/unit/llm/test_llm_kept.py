"""Replies that are kept, over the fake model and a store in a dictionary."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from resin_core.errors import LLMReplyError, LLMRequestError, StoreError
from resin_core.llm import protocol
from resin_core.llm.kept import KeptModel, call_key
from resin_core.llm.protocol import Deadline, Message, Request
from resin_core.records import Usage
from tests.scripted_llm import FakeChatModel, Hang, Reply, Status
from tests.scripted_llm.reply_store import DictStore

ASK = Request(messages=(Message(role="user", content="q"),), max_tokens=5, prompt_id="plan@1")
SEED = 7


@pytest.fixture
def store() -> DictStore:
    return DictStore()


def asking(**values: Any) -> Request:
    return Request.model_validate(ASK.model_dump() | values)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# ---- keys


@pytest.mark.parametrize(
    "other",
    [
        asking(prompt_id="plan@2"),
        asking(messages=[{"role": "user", "content": "r"}]),
        asking(messages=[{"role": "system", "content": "q"}]),
        asking(messages=[{"role": "user", "content": ""}, {"role": "user", "content": "q"}]),
        asking(max_tokens=6),
        asking(json_schema={}),
        asking(json_schema={"type": "object"}),
        asking(temperature=0.4),
        asking(frequency_penalty=0.4),
        asking(stop=["x"]),
    ],
)
def test_all_that_shapes_the_reply_is_in_the_key(other):
    assert call_key("m", SEED, other) != call_key("m", SEED, ASK)


def test_model_and_seed_are_in_the_key_and_equal_calls_have_one():
    keys = {call_key("m", 7, ASK), call_key("n", 7, ASK), call_key("m", 8, ASK)}
    assert len(keys) == 3 and all(len(key) == 32 and int(key, 16) >= 0 for key in keys)
    assert call_key("m", 7, asking(temperature=0, schema_name="unused")) == call_key("m", 7, ASK)
    # A key that changes from one version to the next pays for everything again.
    assert call_key("m", 7, ASK) == "683291f93c60888cdca1dfc811e17dd3"


def test_the_order_of_a_schemas_keys_and_its_name_count():
    first = {"properties": {"a": {}, "b": {}}}
    second = {"properties": {"b": {}, "a": {}}}
    keys = {call_key("m", 7, asking(json_schema=schema)) for schema in (first, second)}
    keys.add(call_key("m", 7, asking(json_schema=first, schema_name="units")))
    assert len(keys) == 3


def test_parts_do_not_run_into_each_other_and_any_text_has_a_key():
    one = asking(messages=[{"role": "user", "content": "a\x1fb\ud800\x00"}])
    two = asking(messages=[{"role": "user", "content": "a"}, {"role": "user", "content": "b\ud800\x00"}])
    three = asking(messages=[{"role": "user", "content": 'a","b'}])
    assert len({call_key("m", 7, request) for request in (one, two, three)}) == 3
    assert call_key("m\x1f7", 7, ASK) != call_key("m", 7, ASK)


# ---- kept and given again


async def test_a_second_run_makes_no_call_and_pays_nothing(store):
    paid = await KeptModel(FakeChatModel(Reply("ok", usage=(10, 2))), store, SEED).complete(ASK)
    assert paid.usage == Usage(llm_calls=1, prompt_tokens=10, completion_tokens=2)
    fake = FakeChatModel(Reply("never"))
    again = KeptModel(fake, store, SEED)
    assert await again.complete(ASK) == paid.model_copy(update={"usage": Usage(), "seconds": 0.0})
    assert (fake.requests, again.hits, again.model_name) == ([], 1, "scripted")
    assert [kept.usage.prompt_tokens for kept in store.kept.values()] == [10], "what it cost stays on record"


async def test_another_request_model_or_seed_is_no_hit(store):
    fake = FakeChatModel(Reply("one"), Reply("two"), Reply("three"), Reply("four"), model_name="m")
    model = KeptModel(fake, store, SEED)
    texts = [(await model.complete(ASK)).text, (await model.complete(asking(max_tokens=6))).text]
    texts.append((await KeptModel(fake, store, 8).complete(ASK)).text)
    fake.model_name = "n"
    texts.append((await model.complete(ASK)).text)
    assert texts == ["one", "two", "three", "four"] and model.hits == 0 and len(store.kept) == 4


async def test_a_reply_is_put_before_it_is_given(store):
    store.gate.clear()
    task = asyncio.create_task(KeptModel(FakeChatModel(Reply("ok")), store, SEED).complete(ASK))
    await settle()
    assert store.puts == 1 and not task.done()
    store.gate.set()
    assert (await task).text == "ok" and len(store.kept) == 1


async def test_an_empty_reply_was_paid_for_and_is_kept(store):
    fake = FakeChatModel(Reply("", usage=(10, 0)), Reply("never"))
    model = KeptModel(fake, store, SEED)
    costs = []
    for _ in range(2):
        with pytest.raises(LLMReplyError, match="has no text") as caught:
            await model.complete(ASK)
        assert (caught.value.reason, caught.value.raw) == ("empty", "")
        costs.append(caught.value.usage)
    assert costs == [Usage(llm_calls=1, prompt_tokens=10), Usage()]
    assert len(fake.requests) == 1 and model.hits == 1
    (kept,) = store.kept.values()
    assert kept.text == "" and kept.usage.prompt_tokens == 10


async def test_other_errors_are_not_kept(store):
    class Odd(FakeChatModel):
        async def complete(self, request: Request, deadline: Deadline | None = None) -> protocol.Reply:
            self.requests.append(request)
            raise LLMReplyError("not-json", "no JSON", "raw")

    for fake, kind in ((FakeChatModel(Status(400)), LLMRequestError), (Odd(), LLMReplyError)):
        model = KeptModel(fake, store, SEED)
        for _ in range(2):
            with pytest.raises(kind):
                await model.complete(ASK)
        assert len(fake.requests) == 2
    assert store.puts == 0


async def test_streams_pass_through_and_are_not_kept(store):
    fake = FakeChatModel(Reply("ok"), Hang(pieces=1))
    model = KeptModel(fake, store, SEED)
    pieces = [piece async for piece in model.stream(ASK)]
    assert pieces[0] == "ok" and pieces[1].usage.llm_calls == 1 and store.puts == 0
    stream = model.stream(ASK)
    await anext(stream)
    await stream.aclose()
    assert len(fake.requests) == 2


# ---- a store that fails


async def test_a_store_that_cannot_be_read_is_a_miss_and_says_so_once(store, caplog):
    store.get_error = StoreError("the ledger's file is cut off")
    fake = FakeChatModel(Reply("ok"))
    model = KeptModel(fake, store, SEED)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert (await model.complete(ASK)).usage.llm_calls == 1
    assert len(fake.requests) == 2 and store.puts == 2 and model.hits == 0
    assert [record.getMessage() for record in caplog.records] == [
        "kept replies cannot be read, so their calls are made again: the ledger's file is cut off"
    ]


async def test_a_store_that_cannot_be_written_fails_the_call(store):
    store.put_error = StoreError("the disk is full")
    model = KeptModel(FakeChatModel(Reply("ok")), store, SEED)
    with pytest.raises(StoreError, match="the disk is full"):
        await model.complete(ASK)
    store.put_error = None
    assert (await model.complete(ASK)).text == "ok"
