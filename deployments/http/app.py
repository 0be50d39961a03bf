"""The FastAPI application of one ingress replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer

from deployments.access import Access
from deployments.http import answers, chat, problems, reading
from deployments.http.edge import Edge, Seen
from deployments.http.running import Running
from deployments.service import Service
from resin_core import __version__
from resin_core.store.traces import TraceWriter

# How long audits of answers that were given may still take when the replica goes.
_AUDITS_S = 10.0


def build_http(
    service: Service,
    access: Access,
    running: Running,
    traces: dict[str, TraceWriter],
    seen: Callable[[Seen], None],
    end: Callable[[], None],
) -> FastAPI:
    """Routes, errors and the edge around them; the service begins and ends with the application, `end` comes last."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.begin()
        yield
        service.end()
        await running.end(_AUDITS_S)
        for writer in traces.values():
            await asyncio.to_thread(writer.close, _AUDITS_S)
        await asyncio.to_thread(end)

    app = FastAPI(
        title="Resin",
        version=__version__,
        summary="Answers from your documents, every statement cited to its exact sentence.",
        lifespan=lifespan,
        redoc_url=None,
        # A path with a slash too many is not there: no answer that the document does not name.
        redirect_slashes=False,
    )
    # For the document only: the edge has checked the key before a route is looked for.
    bearer = HTTPBearer(auto_error=False, description="A key of serving.keys; none where anonymous use is allowed.")
    app.include_router(answers.routes(service, bearer, running))
    app.include_router(chat.routes(service, bearer, running))
    app.include_router(reading.routes(service, bearer, traces))
    app.include_router(reading.health(service))
    problems.install(app, service.config.serving.retry_after_s)
    app.add_middleware(Edge, serving=service.config.serving, access=access, seen=seen)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document with problem documents in place of its validation errors, and the header of all answers."""
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = problems.Problem.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for operation in (found for path in document["paths"].values() for found in path.values()):
        for response in operation["responses"].values():
            response["headers"] = response.get("headers", {}) | problems.REQUEST_ID
    return document
