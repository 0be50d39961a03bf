"""The ingress: HTTP in front of the strategies, which run here over the other deployments."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from deployments import collecting
from deployments.access import Access
from deployments.http.app import build_http
from deployments.http.edge import Seen, traceparent_var
from deployments.http.running import Running
from deployments.logs import access as access_log
from deployments.logs import configure, request_id_var
from deployments.metrics import AnswerMetrics
from deployments.service import Handles, Service
from deployments.spans import Spans
from resin_core.config import ResinConfig
from resin_core.records import Answer
from resin_core.store.traces import KeptTrace, TraceStore, TraceWriter
from resin_core.strategies.start import Asked

TRACES = "traces"


class Ingress:
    """One replica: it holds no index and no model, only questions under way and traces that wait to be written."""

    def __init__(
        self,
        config: ResinConfig,
        indexes: Mapping[str, str],
        planner: Any,
        retriever: Any,
        composer: Any,
        slots: Any,
        spare_calls: bool,
    ) -> None:
        configure()
        serving = config.serving
        self._slots = slots
        self._access = Access.of(serving, self._allow)
        self._traces = {
            name: TraceWriter(
                TraceStore.at(_traces_of(config, name, location), serving.traces.keep_days), serving.traces.max_queued
            )
            for name, location in indexes.items()
        }
        self._metrics = AnswerMetrics()
        handles = Handles(planner, retriever, composer, slots)
        self._service = Service(config, indexes, handles, spare_calls, self._metrics.serving)
        self._spans = Spans.of(serving.otlp_endpoint)
        collecting.freeze()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The application that Serve runs in this replica."""
        running, end = Running(self._finish), self._spans.close
        return build_http(self._service, self._access, running, self._traces, self._seen, end)

    async def _allow(self, name: str, per_minute: int) -> float:
        """One count of a key's requests over all ingress replicas."""
        wait_s: float = await self._slots.allow.remote(name, per_minute)
        return wait_s

    def _finish(self, asked: Asked, index: str, answer: Answer | None, failure: str) -> None:
        """After the last event of a question, however it ended."""
        recorder = asked.recorder
        trace = recorder.trace()
        self._traces[index].write(KeptTrace.now(index, trace, answer, failure))
        self._metrics.answered(trace, answer, index, failure)
        unkept = sum(writer.dropped + writer.failed for writer in self._traces.values())
        self._metrics.state(lost=self._service.calls.lost, dropped=unkept)
        started_s = time.time() - recorder.now_s()
        self._spans.export(trace, started_s, request_id_var.get(), traceparent_var.get() or None)

    def _seen(self, seen: Seen) -> None:
        self._metrics.seen(seen.route, seen.status, seen.seconds)
        access_log(seen.route, seen.method, seen.status, seen.seconds, seen.caller, seen.request_id)


def _traces_of(config: ResinConfig, name: str, location: str) -> str:
    """Beside the index's own files, unless a folder is configured for all of them."""
    own = config.serving.traces.uri
    base, sign, options = (own or location).partition("?")
    return f"{base.rstrip('/')}/{name if own else TRACES}{sign}{options}"
