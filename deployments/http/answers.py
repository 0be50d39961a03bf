"""POST /v1/answer and POST /v1/search."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from deployments.http import sse
from deployments.http.problems import RESPONSES, problem_of
from deployments.http.requests import (
    AnswerRequest,
    AnswerResponse,
    FoundCandidate,
    FoundPassage,
    SearchRequest,
    SearchResponse,
)
from deployments.http.running import Running
from deployments.service import Service
from resin_core.llm.streams import closing
from resin_core.strategies.ports import Event
from resin_core.strategies.recorder import Recorder

_ALIVE_S = 15.0


def routes(service: Service, authorize: Any, running: Running) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(dependencies=[Depends(authorize)], responses=RESPONSES)

    @router.post("/v1/answer", response_model=AnswerResponse, responses=sse.RESPONSES, summary="Answer a question")
    async def answer(body: AnswerRequest, request: Request) -> Response:
        """One answer with its citations; with `stream` the events plan, candidates, evidence, token, answer, done."""
        await service.until_ready()
        asked = service.ask(body.question, body.options(), body.index, body.stream)
        index = service.name_of(body.index)
        if body.stream:
            events = running.events(asked, index)
            # What is wrong with the question itself, or with the planner, is still an ordinary HTTP error.
            first = await anext(events)
            stream = _streamed(first, events, body.include_trace, asked.recorder, index, request.state.request_id)
            return sse.EventStream(stream, events, _ALIVE_S)
        found = await running.whole(asked, index)
        # Written once, from the record itself: it was validated when it was made.
        return JSONResponse(_document(found.model_dump(mode="json"), index, asked.recorder, body.include_trace))

    @router.post("/v1/search", response_model=SearchResponse, summary="Search the units")
    async def search(body: SearchRequest) -> Response:
        """The best units for a query with their passages; no language model is asked."""
        await service.until_ready()
        generation = service.generation(body.index)
        found = await service.search(body.query, body.kinds, body.top_k, body.index)
        (row,) = found.candidates
        response = SearchResponse(
            query=body.query,
            index=service.name_of(body.index),
            generation=generation,
            candidates=[
                FoundCandidate(**dict(candidate), passage=FoundPassage.of(found.passages[candidate.unit.passage_id]))
                for candidate in row
            ],
        )
        return JSONResponse(response.model_dump(mode="json"))

    return router


def _document(answer: dict[str, Any], index: str, recorder: Recorder, include_trace: bool) -> dict[str, Any]:
    trace = recorder.trace().model_dump(mode="json") if include_trace else None
    return answer | {"index": index, "trace": trace}


async def _streamed(
    first: Event,
    events: AsyncIterator[Event],
    include_trace: bool,
    recorder: Recorder,
    index: str,
    request_id: str,
) -> AsyncIterator[bytes]:
    """One server-sent event for each of the strategy's; an error after the first is an event too."""
    async with closing(events) as rest:
        try:
            yield _event(first, include_trace, recorder, index)
            async for event in rest:
                yield _event(event, include_trace, recorder, index)
        except Exception as error:
            yield sse.event(problem_of(error, request_id).model_dump_json(), "error")


def _event(event: Event, include_trace: bool, recorder: Recorder, index: str) -> bytes:
    data: dict[str, Any] = event.data
    if event.kind == "token":
        data = {"text": event.text}
    elif event.answer is not None:
        data = event.answer.model_dump(mode="json") | {"index": index}
    elif event.kind == "done" and include_trace:
        data = event.data | {"trace": recorder.trace().model_dump(mode="json")}
    return sse.event(json.dumps(data, ensure_ascii=False), event.kind)
