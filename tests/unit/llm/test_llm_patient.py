"""Calls that outlast an endpoint's bad hours: what is waited for, given up, and ended by `stop`."""

from __future__ import annotations

import asyncio

import pytest

from resin_core.errors import LLMReplyError, LLMRequestError, StoppedError
from resin_core.llm.patient import GAVE_UP, Health, PatientModel
from resin_core.llm.protocol import Message, Request
from resin_core.llm.structured import structured
from resin_core.records import Record
from tests.scripted_llm import Action, FakeChatModel, Hang, Reply, Reset, Status

REQUEST = Request(messages=(Message(role="user", content="q"),), max_tokens=10)


class Up:
    """Whether the endpoint answers, from a list; the last one again and again."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self) -> bool:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def patient(*actions: Action, up: Up | None = None, attempts: int = 2) -> tuple[PatientModel, FakeChatModel]:
    inner = FakeChatModel(*actions)
    return PatientModel(inner, up or Up(True), attempts, pause_s=0.01), inner


async def test_an_endpoint_that_is_down_is_waited_for_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up(False, False, True)
    model, inner = patient(Reset(), Reset(), Reset(), Reset(), Reply("there"), up=up, attempts=1)
    assert (await model.complete(REQUEST)).text == "there"
    assert (len(inner.requests), up.asked) == (5, 6)
    assert model.health.failing_s() == 0.0


async def test_all_that_wait_share_one_prober() -> None:
    up = Up(*[False] * 5, True)
    model, _ = patient(*[Reset()] * 8, Reply("there"), up=up)
    replies = await asyncio.gather(*(model.complete(REQUEST) for _ in range(8)))
    assert [reply.text for reply in replies] == ["there"] * 8
    assert up.asked == 6


async def test_a_refusing_endpoint_is_asked_again_later_and_no_attempt_is_counted() -> None:
    model, inner = patient(*[Status(429, headers={"Retry-After": "0.02"})] * 6, Reply("there"), attempts=1)
    assert (await model.complete(REQUEST)).text == "there"
    assert len(inner.requests) == 7


@pytest.mark.parametrize(
    ("action", "reason", "calls"),
    [(Status(500), "llm-http-500", 3), (Status(400), "llm-http-400", 1), (Status(422), "llm-http-422", 1)],
)
async def test_a_call_that_fails_on_its_own_is_given_up_as_a_bad_reply(action: Action, reason: str, calls: int) -> None:
    model, inner = patient(action, attempts=3)
    with pytest.raises(LLMReplyError) as caught:
        await model.complete(REQUEST)
    assert caught.value.reason == reason
    assert reason.startswith(GAVE_UP)
    assert (len(inner.requests), model.health.gave_up) == (calls, 1)


async def test_what_was_given_up_is_not_asked_for_repair() -> None:
    class Value(Record):
        a: int

    model, inner = patient(Status(400))
    with pytest.raises(LLMReplyError, match="the call was given up"):
        await structured(model, REQUEST, Value, attempts=3)
    assert len(inner.requests) == 1


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_what_is_wrong_with_the_key_or_the_model_is_fatal(status: int) -> None:
    model, _ = patient(Status(status))
    with pytest.raises(LLMRequestError):
        await model.complete(REQUEST)
    assert str(status) in model.health.fatal


@pytest.mark.parametrize("action", [Hang(), Reset(), Status(429), Status(500)])
async def test_stop_ends_calls_and_pauses_alike(action: Action) -> None:
    model, inner = patient(action, up=Up(False), attempts=1000)
    waiting = [asyncio.create_task(model.complete(REQUEST)) for _ in range(3)]
    await asyncio.sleep(0.05)
    model.stop()
    results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert [type(result) for result in results] == [StoppedError] * 3
    asked = len(inner.requests)
    with pytest.raises(StoppedError):
        await model.complete(REQUEST)
    assert len(inner.requests) == asked


async def test_a_waiting_call_can_be_cancelled() -> None:
    model, _ = patient(Hang())
    waiting = asyncio.create_task(model.complete(REQUEST))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_health_tells_an_outage_from_a_refusal() -> None:
    now = [0.0]
    health = Health(lambda: now[0])
    now[0] = 5.0
    health.bad("down")
    now[0] = 9.0
    health.bad("still down")
    assert (health.failing_s(), health.refused_s(), health.silent_s(), health.cause) == (4.0, 0.0, 9.0, "still down")
    health.refused("too many")
    assert (health.failing_s(), health.refused_s()) == (0.0, 0.0)
    now[0] = 12.0
    assert health.refused_s() == 3.0
    health.good()
    assert (health.failing_s(), health.refused_s(), health.silent_s()) == (0.0, 0.0, 0.0)


def test_a_look_that_failed_is_forgiven_by_the_next_one_but_a_failed_call_is_not() -> None:
    now = [0.0]
    health = Health(lambda: now[0])
    health.bad("no answer to a look")
    now[0] = 5.0
    health.better("no answer to a look")
    assert health.failing_s() == 0.0
    health.bad("HTTP 500")
    now[0] = 9.0
    health.better("no answer to a look")
    assert health.failing_s() == 4.0


async def test_a_call_that_fails_while_nothing_answers_there_is_not_given_up() -> None:
    model, inner = patient(*[Status(503)] * 5, Reply("there"), up=Up(*[False, True] * 5, True), attempts=1)
    assert (await model.complete(REQUEST)).text == "there"
    assert (len(inner.requests), model.health.gave_up) == (6, 0)
