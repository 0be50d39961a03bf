"""The endpoint over HTTP: answers, streams, errors, traces, and what the command line says of the same question."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from resin_core.engine import open_engine
from resin_core.records import Answer
from tests.integration.endpoints import Endpoint, endpoint, ray_for_serving
from tests.integration.indexing_runs import config_for, corpus, index
from tests.scripted_llm import Hang, Reply, ScriptedServer, Status
from tests.scripted_llm.indexing_replies import play

pytestmark = pytest.mark.ray
QUESTION = "What does Mill 0-1 weigh?"
# So that every stage makes a model call.
SELECTING = ("strategies.resin.select=always",)


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.script(play)
        yield server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, model: ScriptedServer) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("served")
    with ray_for_serving():
        index(model, corpus(folder / "c.jsonl", 4), folder / "index")
        yield folder / "index"


@pytest.fixture(scope="module")
def running(model: ScriptedServer, place: Path) -> Iterator[Endpoint]:
    with endpoint(model.base_url, place, (*SELECTING, "serving.max_top_k=20", "strategies.deadline_s=5")) as found:
        yield found


@pytest.fixture
def served(running: Endpoint, model: ScriptedServer) -> Iterator[Endpoint]:
    model.script(play)
    model.seen.clear()
    yield running
    model.script(play)


def local_answer(model: ScriptedServer, place: Path, question: str) -> Answer:
    """What `resin ask` says."""

    async def ask() -> Answer:
        config = config_for(model, "strategies.resin.hop_solvers=never", *SELECTING)
        with open_engine(config, str(place)) as engine:
            try:
                return await anext(event.answer async for event in engine.ask(question).events if event.answer)
            finally:
                await engine.aclose()

    return asyncio.run(ask())


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of each server-sent event."""
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_an_answer_is_that_of_the_command_line(served: Endpoint, model: ScriptedServer, place: Path) -> None:
    answer = served.post("/v1/answer", {"question": QUESTION}).json()
    local = local_answer(model, place, QUESTION).model_dump(mode="json")
    assert answer["evidence"] and answer["citations"]
    for field in ("answer", "citations", "evidence", "pool", "strategy", "generation", "usage"):
        assert answer[field] == local[field], field
    assert answer["trace"] is None


def test_a_stream_brings_all_stages_in_order(served: Endpoint) -> None:
    response = served.post("/v1/answer", {"question": QUESTION, "stream": True, "include_trace": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response.text)
    assert list(dict.fromkeys(name for name, _ in events)) == [
        "plan", "candidates", "evidence", "token", "answer", "done",
    ]  # fmt: skip
    data = dict(events)
    assert "".join(value["text"] for name, value in events if name == "token").strip() == data["answer"]["answer"]
    assert [event["stage"] for event in data["done"]["trace"]["events"]][:2] == ["plan", "plan.call"]


async def test_the_first_token_leaves_before_the_model_is_done(served: Endpoint, model: ScriptedServer) -> None:
    def slow(request: dict[str, Any]) -> Any:
        if "response_format" in request:
            return play(request)
        return Reply("The shown sentence says it all over and over again [1].", piece_s=0.3)

    model.script(slow)
    body = {"question": QUESTION, "stream": True}
    async with served.client() as client, client.stream("POST", "/v1/answer", json=body) as response:
        async for line in response.aiter_lines():
            if line == "event: token":
                break
        assert model.chats[-1].outcome == "open", "the token came while the model was still writing"


def test_the_trace_of_an_answer_is_kept_and_says_where_evidence_was_lost(served: Endpoint) -> None:
    answer = served.post("/v1/answer", {"question": QUESTION}).json()
    cited = answer["citations"][0]["sentence_ids"][0]
    found = served.get(f"/v1/traces/{answer['trace_id']}", params={"expected": [cited, "no-such-document"]}).json()
    assert {event["stage"] for event in found["trace"]["events"]} >= {"plan", "retrieve", "select", "compose"}
    assert [item["stage"] for item in found["lost"]] == ["cited", "not retrieved"]
    assert served.get("/v1/traces/t2026010100-0123456789abcdef").status_code == 404
    assert served.get("/v1/traces/..%2F..%2FCURRENT").status_code == 404


def test_search_documents_and_the_index(served: Endpoint, place: Path) -> None:
    found = served.post("/v1/search", {"query": "Mill 0-1", "top_k": 2}).json()
    assert len(found["candidates"]) == 2
    best = found["candidates"][0]
    document = served.get(f"/v1/documents/{best['unit']['doc_id']}").json()
    span = best["unit"]["char_start"], best["unit"]["char_end"]
    assert document["text"][slice(*span)] == best["unit"]["evidence_quote"]
    assert best["passage"]["passage_id"] in {passage["passage_id"] for passage in document["passages"]}
    served_index = served.get("/v1/index").json()
    assert served_index["generation"] == found["generation"] == (place / "CURRENT").read_text().strip()
    assert served_index["counts"]["documents"] == 4
    assert served.get("/v1/documents/none").status_code == 404
    assert served.get("/v1/index", params={"index": "none"}).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 422, "question"),
        ({"question": "  "}, 400, "empty"),
        ({"question": "x" * 9000}, 400, "max_question_chars"),
        ({"question": QUESTION, "strategy": "none"}, 400, "none"),
        ({"question": QUESTION, "top_k": 21}, 400, "from 1 to 20"),
        ({"question": QUESTION, "top_k": 0}, 422, "top_k"),
        ({"question": QUESTION, "hops": 2}, 422, "hops"),
        ({"question": QUESTION, "index": "none"}, 404, "default"),
    ],
)
def test_bad_requests_are_problem_documents(served: Endpoint, body: dict[str, Any], status: int, word: str) -> None:
    for stream in (False, True):
        response = served.post("/v1/answer", {**body, "stream": stream})
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert problem["status"] == status
        assert word in problem["detail"]
        assert problem["request_id"] == response.headers["x-request-id"]


def test_a_body_that_is_too_long_is_refused(served: Endpoint) -> None:
    assert served.post("/v1/answer", {"question": "x" * 300_000}).status_code == 413


def test_a_model_that_fails_or_is_slow_is_told_apart(served: Endpoint, model: ScriptedServer) -> None:
    model.script(Status(400))
    assert served.post("/v1/answer", {"question": QUESTION}).status_code == 502
    model.script(Hang())
    assert served.post("/v1/answer", {"question": QUESTION}).status_code == 504


async def test_a_client_that_leaves_ends_the_model_call_of_each_stage(served: Endpoint, model: ScriptedServer) -> None:
    def hanging(stage: str) -> Any:
        def handler(request: dict[str, Any]) -> Any:
            if stage_of(request) != stage:
                return play(request)
            return Hang(pieces=1 if stage == "compose" else 0)

        return handler

    for calls, stage in enumerate(("plan", "select", "compose"), start=1):
        for stream in (False, True):
            model.seen.clear()
            model.script(hanging(stage))
            async with served.client() as client:
                asking = asyncio.create_task(client.post("/v1/answer", json={"question": QUESTION, "stream": stream}))
                await model.until(lambda expected=calls: len(model.chats) == expected)
                asking.cancel()
                await model.until(lambda: model.chats[-1].outcome == "cancelled", 1.0)
            await asyncio.sleep(0.3)
            assert len(model.chats) == calls, "nothing was asked after the client had left"
            assert model.in_flight == 0


def stage_of(request: dict[str, Any]) -> str:
    """Of which stage a model call is."""
    if "response_format" not in request:
        return "compose"
    properties = request["response_format"]["json_schema"]["schema"]["properties"]
    return "plan" if "hops" in properties else "select"


async def test_the_official_client_works_unchanged(served: Endpoint) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        assert [entry.id async for entry in client.models.list()] == ["resin"]
        asked: Any = [{"role": "user", "content": QUESTION}]
        whole = await client.chat.completions.create(model="resin", messages=asked)
        message = whole.choices[0].message
        assert message.content and message.content.startswith("The shown sentence says it [1].")
        assert message.annotations and message.annotations[0].url_citation.title
        pieces = []
        stream: Any = await client.chat.completions.create(
            model="resin", messages=asked, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            pieces += [choice.delta.content or "" for choice in chunk.choices]
            usage = chunk.usage
        assert "".join(pieces) == message.content
        assert usage.prompt_tokens == whole.usage.prompt_tokens > 0
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="none", messages=asked)
