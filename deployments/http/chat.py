"""POST /v1/chat/completions and GET /v1/models: the OpenAI dialect, strategies being the models."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from deployments.http import sse
from deployments.http.chat_records import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    ChatUsage,
    ChunkChoice,
    Delta,
    ModelEntry,
    ModelList,
    ResinPart,
)
from deployments.http.chat_text import Written, annotations_of, sources_of, text_of
from deployments.http.problems import RESPONSES, problem_of
from deployments.http.running import Running
from resin_core.errors import UnknownIdError
from resin_core.records import Answer
from resin_core.strategies.ports import Event
from resin_core.strategies.start import STRATEGIES

if TYPE_CHECKING:
    # It brings Ray with it, which this module has no use for.
    from deployments.service import Service

_ALIVE_S = 15.0
_AT = "@"


def routes(service: Service, authorize: Any, running: Running, alive_s: float = _ALIVE_S) -> APIRouter:
    """The routes over a service. A stream that is silent for `alive_s` seconds is kept open by a comment."""
    router = APIRouter(dependencies=[Depends(authorize)], responses=RESPONSES)
    models = _models(service)

    @router.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses=sse.RESPONSES,
        summary="Answer a question, in the OpenAI dialect",
    )
    async def complete(body: ChatRequest, request: Request) -> Response:
        """The last user message is the question; earlier turns and system messages are not used.

        The content is the answer with numbered references, then its sources; annotations hold a link for each
        reference. Sampling options, tools and other keys of the dialect are accepted and change nothing.
        """
        await service.until_ready()
        strategy, name = _named(models, body.model)
        index = service.name_of(name)
        asked = service.ask(body.question(), body.options(strategy), index, bool(body.stream))
        base_url = str(request.base_url).rstrip("/")
        reply = _Reply(f"chatcmpl-{asked.recorder.trace_id}", int(time.time()), body.model, index, base_url)
        if not body.stream:
            answer = await running.whole(asked, index)
            return Response(reply.whole(answer).model_dump_json(), media_type="application/json")
        events = running.until_answer(asked, index)
        # Up to here, what is wrong with the question or the planner is an ordinary HTTP error.
        first = await anext(events)
        chunks = _streamed(first, events, reply, body.include_usage, request.state.request_id)
        return sse.EventStream(chunks, events, alive_s)

    @router.get("/v1/models", summary="The models: strategies, each over an index")
    async def list_models() -> ModelList:
        """`STRATEGY` answers from the default index, `STRATEGY@INDEX` from a further one."""
        return ModelList(data=list(models.values()))

    @router.get("/v1/models/{model:path}", summary="One model")
    async def model(model: Annotated[str, Path(max_length=200)]) -> ModelEntry:
        """As in the list."""
        _named(models, model)
        return models[model]

    return router


def _models(service: Service) -> dict[str, ModelEntry]:
    created = int(time.time())
    ids = [
        strategy if index == service.indexes[0] else f"{strategy}{_AT}{index}"
        for index in service.indexes
        for strategy in STRATEGIES
    ]
    return {name: ModelEntry(id=name, created=created) for name in ids}


def _named(models: dict[str, ModelEntry], name: str) -> tuple[str, str]:
    """Strategy and index of a model, empty for the default index. Raises UnknownIdError."""
    if name not in models:
        raise UnknownIdError(f"there is no model {name[:100]!r}; there are: {', '.join(models)}")
    strategy, _, index = name.partition(_AT)
    return strategy, index


@dataclass(frozen=True)
class _Reply:
    """What all parts of a reply say of it."""

    id: str
    created: int
    model: str
    index: str
    base_url: str

    def whole(self, answer: Answer) -> ChatCompletion:
        """The reply in one piece."""
        message = ChatMessage(
            content=text_of(answer) + sources_of(answer), annotations=annotations_of(answer, self.base_url, self.index)
        )
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[ChatChoice(message=message)],
            usage=_usage(answer),
            resin=self._part(answer),
        )

    def chunk(self, delta: Delta) -> bytes:
        """A step of the reply."""
        return self._sent([ChunkChoice(delta=delta)])

    def last(self, answer: Answer, start: int) -> bytes:
        """The step that ends the choice; the answer's text begins at `start` of its content."""
        delta = Delta(annotations=annotations_of(answer, self.base_url, self.index, start))
        return self._sent([ChunkChoice(delta=delta, finish_reason="stop")], resin=self._part(answer))

    def used(self, answer: Answer) -> bytes:
        """The chunk that only tells the tokens."""
        return self._sent([], usage=_usage(answer))

    def _sent(self, choices: list[ChunkChoice], **more: Any) -> bytes:
        chunk = ChatChunk(id=self.id, created=self.created, model=self.model, choices=choices, **more)
        return sse.event(chunk.model_dump_json())

    def _part(self, answer: Answer) -> ResinPart:
        return ResinPart(
            trace_id=answer.trace_id, generation=answer.generation, index=self.index, citations=answer.citations
        )


async def _streamed(
    first: Event, events: AsyncIterator[Event], reply: _Reply, include_usage: bool, request_id: str
) -> AsyncIterator[bytes]:
    """The reply in chunks; an error after the first is an event, as the dialect's clients know it.

    The response closes `events`.
    """
    try:
        yield reply.chunk(Delta(role="assistant", content=""))
        written = Written()
        async for event in _with_first(first, events):
            if event.answer is not None:
                for chunk in _ending(event.answer, written, reply, include_usage):
                    yield chunk
            elif event.kind == "token" and (text := written.take(event.text)):
                yield reply.chunk(Delta(content=text))
        yield sse.event("[DONE]")
    except Exception as error:
        problem = problem_of(error, request_id)
        told = {"message": problem.detail, "type": problem.title, "code": str(problem.status)}
        yield sse.event(json.dumps({"error": {**told, "request_id": request_id}}))


def _ending(answer: Answer, written: Written, reply: _Reply, include_usage: bool) -> list[bytes]:
    missing, start = written.made_good(text_of(answer))
    chunks = [reply.chunk(Delta(content=text)) for text in (missing, sources_of(answer)) if text]
    chunks.append(reply.last(answer, start))
    return [*chunks, reply.used(answer)] if include_usage else chunks


async def _with_first(first: Event, rest: AsyncIterator[Event]) -> AsyncIterator[Event]:
    yield first
    async for event in rest:
        yield event


def _usage(answer: Answer) -> ChatUsage:
    prompt, completion = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return ChatUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
