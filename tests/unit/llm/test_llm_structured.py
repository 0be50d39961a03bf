"""Replies into records: tolerant reading, further tries, and the reasons of failure."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from resin_core.errors import DeadlineError, LLMReplyError, LLMRequestError
from resin_core.llm.protocol import Deadline, Message, Request
from resin_core.llm.reading import candidates, is_looped, salvaged
from resin_core.llm.structured import structured
from tests.scripted_llm import FakeChatModel, Hang, Reply, Status

ASK = Request(
    messages=(Message(role="system", content="s"), Message(role="user", content="Extract.")),
    max_tokens=50,
    prompt_id="extract@1",
)


class Unit(BaseModel):
    model_config = ConfigDict(extra="forbid")
    s: str
    o: str


class Units(BaseModel):
    model_config = ConfigDict(extra="forbid")
    units: list[Unit]
    note: str = ""


class Loose(BaseModel):
    units: list[Unit] = Field(default_factory=list)


GOOD = '{"units": [{"s": "Acme", "o": "Beta"}]}'
UNIT = {"s": "Acme", "o": "Beta"}


async def read(text: str, finish: str = "stop", kind: type[BaseModel] = Units, **options: object):
    fake = FakeChatModel(Reply(text, finish_reason=finish))
    return await structured(fake, ASK, kind, **({"attempts": 0} | options))


async def test_strict_json_is_not_a_repair():
    found = await read(GOOD)
    assert found.value == Units(units=[Unit(**UNIT)])
    assert (found.repaired, found.truncated, found.calls, found.usage.llm_calls) == (False, False, 1, 1)
    assert found.reply.text == GOOD


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}```",
        f"Here it is:\n\n{GOOD}\n\nLet me know!",
        f"[{GOOD}]",
        f"```json\n[{GOOD}]\n```",
        f"As said in [1] and {{that}} place [see there]: {GOOD}",
        f"<think>maybe {{'units': 3}}?</think>{GOOD}",
        json.dumps(GOOD),
        "{'units': [{'s': 'Acme', 'o': 'Beta'}]}",
        '{"units": [{"s": "Acme", "o": "Beta",}],}',
        '{units: [{s: "Acme", o: "Beta"}]}',
        '{"units": [{"s": "Acme", "o": "Beta"}]',
        f"{GOOD}\n{GOOD}",
        "\ufeff" + GOOD,
    ],
)
async def test_variants_are_read_in_one_call(text):
    found = await read(text)
    assert found.value == Units(units=[Unit(**UNIT)]) and found.repaired and found.calls == 1


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        ("", "stop", "empty"),
        (" \n\t ", "stop", "empty"),
        ("I cannot do that.", "stop", "not-json"),
        ("42", "stop", "not-json"),
        ('"words"', "stop", "not-json"),
        ("__import__('os').system('true')", "stop", "not-json"),
        ("[" * 50_000, "stop", "not-json"),
        ('{"units": [{"s": "Acme"}]}', "stop", "wrong-schema"),
        ('{"unit": []}', "stop", "wrong-schema"),
        ('{"units": [{"s": "Acme", "o": "Beta"}, {"s": "Acm', "length", "truncated"),
        ('{"units": [' + '{"s": "Acme", "o": "Beta"}, ' * 9, "length", "looped"),
        ('{"units": [{"s": "' + "very " * 40, "length", "looped"),
        ('{"units": [' + "\n" * 300, "length", "looped"),
        ('{"unit": []}', "length", "wrong-schema"),
    ],
)
async def test_reasons(text, finish, reason):
    with pytest.raises(LLMReplyError) as caught:
        await read(text, finish)
    assert (caught.value.reason, caught.value.raw, caught.value.usage.llm_calls) == (reason, text, 1)
    assert "extract@1" in str(caught.value)


async def test_the_mark_of_a_thought_may_stand_in_the_text():
    found = await read('{"units": [{"s": "</think>", "o": "{"}]}')
    assert found.value.units[0].s == "</think>" and not found.repaired


async def test_nothing_inside_a_broken_object_stands_for_the_whole():
    """A model whose fields are all optional fits any inner object; a cut reply must not shrink to one."""
    with pytest.raises(LLMReplyError) as caught:
        await read('{"units": [{"s": "a", "o": "b"}], "more": {"units": []}, "x": "cut he', "length", Loose)
    assert caught.value.reason == "truncated"


async def test_a_cut_reply_that_is_complete_json_is_good():
    assert (await read(GOOD + "\n" * 50, "length")).value.units == [Unit(**UNIT)]


@pytest.mark.parametrize("cut", ['{"s": "Gam', '{"s": "Gamma", "o": "De', "", '{"s": "Gamma", "o": "Delta"'])
async def test_complete_items_of_a_cut_reply_are_kept_and_no_half_one(cut):
    text = '{"units": [{"s": "Acme", "o": "B, }] {"}, {"s": "C", "o": "D \\" e"}, ' + cut
    found = await read(text, "length", accept_truncated=True)
    assert [unit.s for unit in found.value.units] == ["Acme", "C"]
    assert found.truncated and found.repaired


async def test_a_cut_text_is_kept_as_it_stands_when_there_are_no_items():
    class Told(BaseModel):
        answer: str

    found = await read('{"answer": "Beta owns Ac', "length", Told, accept_truncated=True)
    assert (found.value.answer, found.truncated) == ("Beta owns Ac", True)


async def test_a_looped_reply_is_never_accepted():
    with pytest.raises(LLMReplyError) as caught:
        await read('{"units": [' + '{"s": "Acme", "o": "Beta"}, ' * 9, "length", accept_truncated=True)
    assert caught.value.reason == "looped"


def test_salvage_falls_back_to_outer_items():
    text = '{"passages": [{"u": [1, [2], [3]], "f": 1}, {"u": [[4], [5'
    values = list(salvaged(text))
    assert values[0] == {"passages": [{"u": [1, [2], [3]], "f": 1}, {"u": [[4]]}]}
    assert values[1] == {"passages": [{"u": [1, [2], [3]], "f": 1}]}


@pytest.mark.parametrize(
    "text",
    [
        '[{"n": 1, "t": "same words"}, {"n": 2, "t": "same words"}, {"n": 3, "t": "same words"},'
        ' {"n": 4, "t": "same words"}, {"n": 5',
        "line one\n" * 6,
        "0" * 40,
        "intro " + "a b c d e f g, " * 5 + "a b",
    ],
)
def test_loops_are_seen(text):
    assert is_looped(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17",
        '{"units": [{"s": "Acme", "o": "Beta"}, {"s": "Gamma", "o": "Delta"}, {"s": "Eps", "o": "Zeta"}, {"s": "Eta"',
        '[{"k": "relation", "s": "A"}, {"k": "relation", "s": "B"}, {"k": "relation", "s": "C"},'
        ' {"k": "relation", "s": "D"}',
        "no no no yes",
    ],
)
def test_what_is_no_loop(text):
    assert not is_looped(text)


# ---- further tries


async def test_a_further_try_has_a_note_and_other_sampling():
    fake = FakeChatModel(Reply('{"units": [{"s": "Acme"}]}', usage=(10, 5)), Reply(GOOD, usage=(12, 6)))
    found = await structured(fake, ASK, Units)
    assert found.value.units and found.repaired and found.calls == 2
    assert (found.usage.llm_calls, found.usage.prompt_tokens, found.usage.completion_tokens) == (2, 22, 11)
    first, second = fake.requests
    assert first == ASK
    assert (second.temperature, second.frequency_penalty) == (0.4, 0.2)
    assert [message.role for message in second.messages] == ["system", "user"], "templates may refuse two in a row"
    note = second.messages[1].content
    assert note.startswith("Extract.\n\nNote: ") and "units.0.o: Field required" in note
    assert second.max_tokens == ASK.max_tokens and second.messages[0] == ASK.messages[0]


async def test_the_note_echoes_no_content_and_stays_short():
    secret = "SECRET" * 100
    reply = json.dumps({"units": [{"s": secret, "p": secret}] * 30})
    fake = FakeChatModel(Reply(reply), Reply(GOOD))
    await structured(fake, ASK, Units)
    note = fake.requests[1].messages[-1].content
    assert "SECRET" not in note and len(note) < 450 and "and 57 more" in note


async def test_a_conversation_that_ends_with_the_assistant_gets_a_new_message():
    request = ASK.model_copy(update={"messages": (*ASK.messages, Message(role="assistant", content="{"))})
    fake = FakeChatModel(Reply("no"), Reply(GOOD))
    await structured(fake, request, Units)
    assert [message.role for message in fake.requests[1].messages] == ["system", "user", "assistant", "user"]


async def test_every_try_counts_when_all_fail_and_the_last_fault_is_told():
    fake = FakeChatModel(Reply("no", usage=(10, 1)), Reply("", usage=(10, 0)), Reply('{"unit": 1}', usage=(10, 3)))
    with pytest.raises(LLMReplyError, match="after 3 tries") as caught:
        await structured(fake, ASK, Units, attempts=2)
    assert (caught.value.reason, caught.value.raw) == ("wrong-schema", '{"unit": 1}')
    assert (caught.value.usage.llm_calls, caught.value.usage.prompt_tokens) == (3, 30)
    assert caught.value.usage.completion_tokens == 4
    assert "it is empty" in fake.requests[2].messages[-1].content


async def test_other_errors_pass_through():
    with pytest.raises(LLMRequestError):
        await structured(FakeChatModel(Reply("no"), Status(400)), ASK, Units)
    with pytest.raises(DeadlineError):
        await structured(FakeChatModel(Hang()), ASK, Units, Deadline.after(0.05))


# ---- any text


@given(st.text(alphabet='{}[]",:\\ab1 \n`', max_size=60))
def test_reading_never_raises(text):
    for candidate in candidates(text):
        assert isinstance(candidate.value, dict | list)
    for value in salvaged(text):
        assert isinstance(value, dict | list)
    assert is_looped(text) in (True, False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_strict_json_reads_back_first(value):
    found = list(candidates(json.dumps(value)))
    if isinstance(value, dict | list):
        assert found[0].value == value and found[0].strict


def test_reading_long_text_is_fast():
    started = time.monotonic()
    list(salvaged('{"units": [' + ", ".join(json.dumps({"s": str(n), "o": "x" * 50}) for n in range(2000))))
    is_looped("abcdefgh " * 3000 + "end")
    assert time.monotonic() - started < 5
