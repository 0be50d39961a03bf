from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI

from deployments.http import chat, problems
from deployments.http.running import Running
from resin_core.errors import DeadlineError, LLMUnavailableError, QuestionError, UnknownIdError
from resin_core.strategies.start import Asked, Options
from tests.scripted_question import DONE, PLAN, Finished, Script, answered, cited, token

USER = {"role": "user", "content": "Which lamp is cheaper?"}
TEXT = "The Alba [1] is cheaper than the Brio [2], see [1]."
PAGE = cited(2, title="Brio\nlamp", uri="https://example.org/brio?a=1", text="The Brio  lamp\ncosts $15. " + "x" * 400)
FILE = cited(1, doc_id="lamps/ä b?#1", title="Alba lamp", text="The Alba lamp costs $12.")
SAID = answered(TEXT, FILE, PAGE)
SOURCES = (
    "\n\nSources:\n[1] Alba lamp: The Alba lamp costs $12.\n[2] Brio lamp: The Brio lamp costs $15. " + "x" * 174 + "…"
)


class FakeService:
    """Answers every question with its script, and notes what it was asked."""

    indexes = ("default", "further")

    def __init__(self) -> None:
        self.script: Script | Exception = Script(PLAN, SAID, DONE)
        self.asked: list[tuple[str, Options, str, bool]] = []

    def name_of(self, index: str) -> str:
        return index or self.indexes[0]

    async def until_ready(self) -> None:
        """It is."""

    def ask(self, question: str, options: Options, index: str = "", streaming: bool = False) -> Asked:
        self.asked.append((question, options, index, streaming))
        if isinstance(self.script, Exception):
            raise self.script
        return self.script.asked


class Setting:
    """The application with the routes, and both ways to reach it."""

    def __init__(self, alive_s: float = 60.0) -> None:
        self.service, self.finished = FakeService(), Finished()
        self.authorized = 0
        app = FastAPI()
        service: Any = self.service
        app.include_router(chat.routes(service, self._authorize, Running(self.finished), alive_s))
        problems.install(app, 2)
        self.app = app
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://resin.test")
        self.client = self._official("http://resin.test/v1", self.http)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # As the edge does.
        scope.setdefault("state", {})["request_id"] = "r1"
        await self.app(scope, receive, send)

    async def _authorize(self) -> None:
        self.authorized += 1

    async def post(self, **body: Any) -> httpx.Response:
        return await self.http.post("/v1/chat/completions", json={"model": "resin", "messages": [USER], **body})

    async def ask(self, **arguments: Any) -> Any:
        create: Any = self.client.chat.completions.create
        return await create(**{"model": "resin", "messages": [USER], **arguments})

    async def chunks(self, **arguments: Any) -> list[Any]:
        return [chunk async for chunk in await self.ask(stream=True, **arguments)]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[openai.AsyncOpenAI]:
        """Over a real server and real connections."""
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            app: Any = self
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
            task = asyncio.create_task(server.serve(sockets=[listening]))
            async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
                yield self._official(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", http)
            server.should_exit = True
            await task

    def _official(self, base_url: str, http: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(api_key="k", base_url=base_url, http_client=http, max_retries=0)


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    made = Setting()
    yield made
    await made.http.aclose()


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def references(content: str, annotations: list[dict[str, Any]]) -> list[str]:
    places = [annotation["url_citation"] for annotation in annotations]
    return [content[place["start_index"] : place["end_index"]] for place in places]


async def test_the_models_are_the_strategies_over_each_index(setting: Setting) -> None:
    listed = [model async for model in setting.client.models.list()]
    assert [(model.id, model.object, model.owned_by) for model in listed] == [
        ("resin", "model", "resin"),
        ("resin@further", "model", "resin"),
    ]
    assert (await setting.client.models.retrieve("resin@further")).id == "resin@further"
    assert setting.authorized == 2
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'; there are: resin, resin@further"):
        await setting.client.models.retrieve("gpt-4")


async def test_a_whole_answer_reaches_the_official_client(setting: Setting) -> None:
    reply = await setting.ask()
    assert (reply.object, reply.model, reply.id[:10]) == ("chat.completion", "resin", "chatcmpl-t")
    (choice,) = reply.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.refusal) == ("assistant", None)
    assert choice.message.content == TEXT + SOURCES
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (100, 11, 111)
    assert setting.service.asked == [(USER["content"], Options("resin"), "default", False)]
    assert setting.authorized == 1
    await setting.finished.told.wait()
    assert [(index, failure) for _, index, _, failure in setting.finished.calls] == [("default", "")]


async def test_annotations_hold_place_and_link_of_each_reference(setting: Setting) -> None:
    message = (await setting.ask()).choices[0].message
    annotations = [annotation.model_dump() for annotation in message.annotations]
    assert references(message.content, annotations) == ["[1]", "[2]", "[1]"]
    assert [annotation["url_citation"]["start_index"] for annotation in annotations] == [9, 38, 47]
    assert annotations[0]["type"] == "url_citation"
    assert [(a["url_citation"]["title"], a["url_citation"]["url"]) for a in annotations[:2]] == [
        ("Alba lamp", "http://resin.test/v1/documents/lamps%2F%C3%A4%20b%3F%231?index=default#char=10,15"),
        ("Brio lamp", "https://example.org/brio?a=1"),
    ]


async def test_what_the_dialect_has_no_place_for_comes_as_resin(setting: Setting) -> None:
    body = (await setting.post(model="resin@further")).json()
    assert {key: body["resin"][key] for key in ("trace_id", "generation", "index")} == {
        "trace_id": "t1",
        "generation": "g7",
        "index": "further",
    }
    assert body["resin"]["citations"] == [FILE.model_dump(mode="json"), PAGE.model_dump(mode="json")]
    assert "index=further" in body["choices"][0]["message"]["annotations"][0]["url_citation"]["url"]
    assert body["choices"][0]["message"]["refusal"] is None
    assert body["choices"][0]["logprobs"] is None
    assert setting.service.asked[0][2] == "further"


async def test_an_answer_without_sources_has_none_below_it(setting: Setting) -> None:
    setting.service.script = Script(answered("Unknown, see [3]."), DONE)
    message = (await setting.ask()).choices[0].message
    assert (message.content, message.annotations) == ("Unknown, see [3].", [])


async def test_the_last_user_turn_is_the_question(setting: Setting) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]},
        {"role": "user", "content": [{"type": "text", "text": "First"}, {"type": "text", "text": "second?"}]},
        {"role": "assistant", "content": "Well,"},
    ]
    assert (await setting.post(messages=turns)).status_code == 200
    assert setting.service.asked[0][0] == "First\nsecond?"


async def test_what_front_ends_send_besides_changes_nothing(setting: Setting) -> None:
    response = await setting.post(
        stream=None,
        stream_options=None,
        n=1,
        user="u",
        temperature=0.3,
        top_p=1,
        max_tokens=5,
        max_completion_tokens=5,
        seed=1,
        stop=["x"],
        tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice="auto",
        functions=[],
        response_format={"type": "text"},
        logit_bias={},
        chat_id="c",
        metadata={"a": "b"},
    )
    assert response.status_code == 200
    assert setting.service.asked == [(USER["content"], Options("resin"), "default", False)]


async def test_resins_own_options_are_passed_on(setting: Setting) -> None:
    await setting.ask(extra_body={"resin": {"top_k": 3, "max_hops": 2, "passage_budget": 7}})
    assert setting.service.asked[0][1] == Options("resin", 3, 2, 7)


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"messages": []}, 422, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "none of the role user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "'image_url'"),
        ({"messages": [{"role": "user", "content": 7}]}, 422, "messages.0.content"),
        ({"messages": [USER] * 2001}, 422, "2000"),
        ({"messages": [{"role": "assistant", "content": "x" * 1_000_000}, USER]}, 422, "1,000,022 characters"),
        ({"n": 2}, 400, "n is 2"),
        ({"response_format": {"type": "json_object"}}, 400, "'json_object'"),
        ({"resin": {"top_p": 1}}, 422, "resin.top_p"),
        ({"resin": {"top_k": 0}}, 422, "resin.top_k"),
        ({"model": "gpt-4"}, 404, "there are: resin, resin@further"),
        ({"model": "resin@default"}, 404, "there are: resin, resin@further"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_answered_is_a_clear_problem(
    setting: Setting, body: dict[str, Any], status: int, detail: str, stream: bool
) -> None:
    response = await setting.post(**body, stream=stream)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert detail in response.json()["detail"]
    assert not setting.service.asked
    assert not setting.finished.calls


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "raised", "told"),
    [
        (QuestionError("too long"), openai.BadRequestError, []),
        (UnknownIdError("no index"), openai.NotFoundError, []),
        (Script(LLMUnavailableError("no model")), openai.InternalServerError, ["LLMUnavailableError: no model"]),
        (Script(DeadlineError("too late")), openai.APIStatusError, ["DeadlineError: too late"]),
    ],
)
async def test_an_error_before_anything_was_sent_is_typed_by_its_status(
    setting: Setting, script: Any, raised: type[Exception], told: list[str], stream: bool
) -> None:
    # A script runs once.
    setting.service.script = Script(*script._steps) if isinstance(script, Script) else script
    with pytest.raises(raised) as caught:
        await setting.ask(stream=stream)
    error: Any = caught.value
    assert error.response.headers["content-type"] == "application/problem+json"
    assert setting.finished.failures == told


async def test_a_stream_reaches_the_official_client(setting: Setting) -> None:
    setting.service.script = Script(PLAN, token("The Alba [1] is cheaper "), token("than the Brio [2],"), SAID, DONE)
    chunks = await setting.chunks()
    first, *_, last = chunks
    assert {(chunk.object, chunk.id, chunk.model) for chunk in chunks} == {
        ("chat.completion.chunk", first.id, "resin"),
    }
    assert first.id.startswith("chatcmpl-t")
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert [chunk.choices[0].delta.content for chunk in chunks[1:-1]] == [
        "The Alba [1] is cheaper",
        " than the Brio [2],",
        " see [1].",
        SOURCES,
    ]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 5 + ["stop"]
    assert references(text_of(chunks), last.choices[0].delta.annotations) == ["[1]", "[2]", "[1]"]
    assert (last.resin["trace_id"], len(last.resin["citations"])) == ("t1", 2)
    assert setting.service.asked[0][3] is True
    await setting.finished.told.wait()
    assert setting.finished.failures == [""]


async def test_a_stream_ends_with_its_usage_when_that_is_wanted(setting: Setting) -> None:
    *_, last, used = await setting.chunks(stream_options={"include_usage": True})
    assert last.choices[0].finish_reason == "stop"
    assert (used.choices, used.usage.total_tokens) == ([], 111)


async def test_a_stream_is_what_front_ends_expect(setting: Setting) -> None:
    response = await setting.post(stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-cache", "no")
    *events, rest = response.text.split("\n\n")
    assert rest == ""
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in events[:-1]]
    assert [list(delta) for delta in deltas] == [["role", "content"], ["content"], ["content"], ["annotations"]]


@pytest.mark.parametrize(
    ("tokens", "final", "content"),
    [
        ([], "It is [1].", "It is [1]."),
        (["\n It ", " is", " \n"], "It  is", "It  is"),
        (["It is."], "It is. [1]", "It is. [1]"),
        (["It is. So."], "It is [1]. So.", "It is. So.\n\nIt is [1]. So."),
        (["It costs $3 [1]."], "Unknown [1].", "It costs $3 [1].\n\nCorrection: Unknown [1]."),
        (["Of A [1]: 3"], "Of A: 3 [1]", "Of A [1]: 3\n\nOf A: 3 [1]"),
        (["a\ud83d", "\u2028b"], "a\ud83d\u2028b [1]", "a\ufffd\u2028b [1]"),
    ],
)
async def test_the_final_text_stands_whole_in_what_was_streamed(
    setting: Setting, tokens: list[str], final: str, content: str
) -> None:
    setting.service.script = Script(PLAN, *map(token, tokens), answered(final, FILE), DONE)
    chunks = await setting.chunks()
    whole = text_of(chunks)
    shown = whole.partition("\n\nSources:")[0]
    assert shown == content
    # The references that are marked are those of the final text, which ends what is shown.
    annotations = chunks[-1].choices[0].delta.annotations
    places = [annotation["url_citation"]["start_index"] for annotation in annotations]
    assert places == ([len(content) - len(final) + final.index("[1]")] if "[1]" in final else [])
    assert references(whole, annotations) == ["[1]"] * len(places)


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (DeadlineError("the deadline passed"), "the deadline passed", "504"),
        (ValueError("secret"), "the server failed; its log has more under this request id", "500"),
    ],
)
async def test_an_error_amid_a_stream_is_raised_by_the_official_client(
    setting: Setting, error: Exception, message: str, code: str
) -> None:
    setting.service.script = Script(PLAN, token("The"), error)
    seen = []
    with pytest.raises(openai.APIError) as caught:
        async for chunk in await setting.ask(stream=True):
            seen.append(chunk)
    assert text_of(seen) == "The"
    assert (caught.value.message, caught.value.code) == (message, code)
    assert setting.finished.failures == [f"{type(error).__name__}: {error}"]


async def test_a_failed_stream_does_not_pretend_to_be_done(setting: Setting) -> None:
    setting.service.script = Script(PLAN, DeadlineError("late"))
    text = (await setting.post(stream=True)).text
    assert "[DONE]" not in text
    assert json.loads(text.split("\n\n")[-2][6:])["error"]["request_id"] == "r1"


async def test_tokens_arrive_as_they_come_and_the_end_does_not_wait_for_the_audit() -> None:
    setting = Setting()
    to_answer, to_audit = asyncio.Event(), asyncio.Event()
    script = setting.service.script = Script(PLAN, token("The"), to_answer, SAID, to_audit, DONE)
    async with setting.served() as client:
        create: Any = client.chat.completions.create
        stream = await create(model="resin", messages=[USER], stream=True)
        assert (await anext(stream)).choices[0].delta.role == "assistant"
        assert (await anext(stream)).choices[0].delta.content == "The"
        to_answer.set()
        rest = [chunk async for chunk in stream]
        assert rest[-1].choices[0].finish_reason == "stop"
        await stream.close()
        # The client has left by now, as it does after [DONE].
        assert not setting.finished.calls
        to_audit.set()
        await setting.finished.told.wait()
    assert setting.finished.failures == [""]
    assert not script.cut


async def test_a_client_that_leaves_a_stream_stops_the_question() -> None:
    setting = Setting()
    script = setting.service.script = Script(PLAN, token("The"), asyncio.Event(), SAID, DONE)
    async with setting.served() as client:
        create: Any = client.chat.completions.create
        stream = await create(model="resin", messages=[USER], stream=True)
        await anext(stream)
        await script.waits.wait()
        await stream.close()
        await script.closed.wait()
    assert script.cut
    assert (setting.finished.failures, setting.finished.answers) == (["cancelled"], [None])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_cancelled_before_its_reply_stops_the_question(stream: bool) -> None:
    setting = Setting()
    script = setting.service.script = Script(asyncio.Event(), PLAN, SAID, DONE)
    task = asyncio.create_task(setting.post(stream=stream))
    await script.waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert script.cut
    assert (setting.finished.failures, setting.finished.answers) == (["cancelled"], [None])


async def test_a_silent_stream_is_kept_open() -> None:
    setting = Setting(alive_s=0.02)
    gate = asyncio.Event()
    setting.service.script = Script(PLAN, gate, SAID, DONE)
    asyncio.get_running_loop().call_later(0.2, gate.set)
    response = await setting.post(stream=True)
    assert response.text.count(": waiting\n\n") >= 2
    setting.service.script = Script(PLAN, gate, SAID, DONE)
    assert text_of(await setting.chunks()) == TEXT + SOURCES
