"""What is read and not answered: traces, the index served, documents, health."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import JSONResponse, Response

from deployments.http.problems import RESPONSES, described
from deployments.http.requests import DocumentResponse, IndexResponse, TraceResponse
from deployments.service import Service
from resin_core.errors import NotReadyError
from resin_core.online.lost import lost
from resin_core.store.traces import TraceWriter

IndexName = Annotated[str, Query(max_length=100, description="Name of the index; empty: the default one.")]


def routes(service: Service, authorize: Any, traces: dict[str, TraceWriter]) -> APIRouter:
    """The routes over a service; `traces` are kept by the name of their index."""
    router = APIRouter(dependencies=[Depends(authorize)], responses=RESPONSES)

    @router.get("/v1/traces/{trace_id}", summary="The trace of an answer")
    async def trace(
        trace_id: Annotated[str, Path(max_length=64)],
        expected: Annotated[
            list[Annotated[str, Query(max_length=500)]] | None,
            Query(max_length=50, description="Ids of documents, passages or sentences: where was each lost?"),
        ] = None,
        index: IndexName = "",
    ) -> TraceResponse:
        """Every stage of one question, with prompts' ids, models, tokens, times and failures."""
        kept = await asyncio.to_thread(traces[service.name_of(index)].get, trace_id)
        found = lost(kept.trace, kept.answer, expected or ())
        return TraceResponse(
            index=kept.index,
            trace=kept.trace,
            answer=kept.answer,
            failure=kept.failure,
            lost=[item.model_dump(mode="json") for item in found],
        )

    @router.get("/v1/index", summary="The generation served")
    async def served(index: IndexName = "") -> IndexResponse:
        """What the index holds and what it was made with."""
        await service.until_ready()
        manifest = await service.manifest(index)
        return IndexResponse(
            index=service.name_of(index),
            indexes=list(service.indexes),
            generation=manifest.generation,
            created_at=manifest.created_at,
            counts=manifest.counts,
            units_by_kind=manifest.units_by_kind,
            encoder=manifest.stamp.encoder,
            models=list(manifest.stamp.models),
            prompts=manifest.stamp.prompts,
        )

    @router.get("/v1/documents/{doc_id:path}", summary="A document's text")
    async def document(doc_id: Annotated[str, Path(max_length=1000)], index: IndexName = "") -> DocumentResponse:
        """The text as it was indexed, with its passages; citations' offsets point into it."""
        await service.until_ready()
        generation = service.generation(index)
        found, passages = await service.document(doc_id, index)
        values = found.model_dump(exclude={"extraction"})
        return DocumentResponse(index=service.name_of(index), generation=generation, passages=passages, **values)

    @router.post("/v1/admin/refresh", summary="Look for a new generation now")
    async def refresh() -> dict[str, str]:
        """The generation of each index that this ingress replica serves now; others follow by themselves."""
        return await service.refresh()

    return router


def health(service: Service) -> APIRouter:
    """Liveness and readiness, without a key."""
    router = APIRouter(responses=described(405, 413, 500))

    @router.get("/healthz", summary="Alive")
    async def alive() -> dict[str, str]:
        """Answers as long as the process does."""
        return {"status": "alive"}

    @router.get("/readyz", summary="Ready", responses=described(503))
    async def ready() -> Response:
        """Ready once index, encoder and models have answered a question together."""
        if service.missing:
            raise NotReadyError(f"not ready: {service.missing}")
        return JSONResponse({"status": "ready"})

    return router
