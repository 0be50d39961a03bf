"""Finished traces as OpenTelemetry spans: one for the answer, below it one for each stage and model call.

Spans carry names, times, counts and tokens, never a question, a reply or a document's text. Nothing here can delay or
fail an answer: spans are sent by a thread of their own, and what it cannot send is lost.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any
from urllib.parse import urlsplit

from resin_core import __version__
from resin_core.errors import ConfigError
from resin_core.records import Trace, TraceEvent, Usage

log = logging.getLogger("resin.spans")
_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_PATH = "/v1/traces"
_MAX_QUEUED = 4096
_EVERY_MS = 2000.0
_SEND_S = 10
_NS = 1_000_000_000
Attributes = dict[str, str | int | float | bool]


class Spans:
    """Makes spans of traces and hands them to a span processor of the OpenTelemetry SDK; None: makes none."""

    def __init__(self, processor: Any = None) -> None:
        self._provider: Any = None
        self._tracer: Any = None
        self._failed = False
        if processor is None:
            return
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

        # A provider of our own: Ray's, and an application's around us, stay as they are. A caller that does not
        # sample its request gets no spans of ours for it.
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON),
            resource=Resource.create({"service.name": "resin", "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("resin", __version__)

    @classmethod
    def of(cls, endpoint: str | None) -> Spans:
        """Spans for an OTLP/HTTP endpoint, which is not asked yet; None: none are made.

        An address without a path gets the usual one, /v1/traces. Headers, such as a key, come from the exporter's own
        OTEL_EXPORTER_OTLP_HEADERS. Raises ConfigError for an address that is none, and without the exporter's package.
        """
        if not endpoint:
            return cls()
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                f"serving.otlp_endpoint is {endpoint!r}; it must be an http or https address, as http://localhost:4318"
            )
        try:
            exporter = importlib.import_module(_EXPORTER)
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise ConfigError(
                "serving.otlp_endpoint is set, and opentelemetry-exporter-otlp-proto-http is not installed; "
                "install resin[otel], or leave the setting out"
            ) from None
        url = parts._replace(path=_PATH).geturl() if parts.path in ("", "/") else endpoint
        sender = exporter.OTLPSpanExporter(endpoint=url, timeout=_SEND_S)
        return cls(BatchSpanProcessor(sender, max_queue_size=_MAX_QUEUED, schedule_delay_millis=_EVERY_MS))

    def export(self, trace: Trace, started_at_epoch_s: float, request_id: str = "", parent: str | None = None) -> None:
        """Hands the spans of a finished trace over; never raises and never waits for the network.

        `started_at_epoch_s` is when the question came, in seconds since the epoch; events count from there. `parent`
        is the request's W3C traceparent header; one that cannot be read is as none.
        """
        if self._tracer is None:
            return
        try:
            self._make(trace, started_at_epoch_s, request_id, parent)
        except Exception as error:
            # The first says what is wrong; an answer each would only fill the log.
            if not self._failed:
                self._failed = True
                log.warning("spans cannot be made: %s", type(error).__name__)

    def close(self) -> None:
        """Sends what waits and ends; takes as long as the endpoint does, at most some 30 s."""
        if self._provider is not None:
            self._provider.shutdown()

    def _make(self, trace: Trace, started_at_epoch_s: float, request_id: str, parent: str | None) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # An empty context, so that nothing around the caller becomes the parent by chance.
        outer = TraceContextTextMapPropagator().extract({"traceparent": parent} if parent else {}, Context())
        error = Status(StatusCode.ERROR)

        def at(seconds: float) -> int:
            return int((started_at_epoch_s + seconds) * _NS)

        attributes = _of_trace(trace) | ({"resin.request_id": request_id} if request_id else {})
        root = self._tracer.start_span(
            "answer", outer, SpanKind.SERVER, attributes=attributes, start_time=at(0.0), record_exception=False
        )
        # Where the calls of a stage belong: the recorder adds them right behind it.
        stages: dict[str, Any] = {}
        inner = set_span_in_context(root, Context())
        for event in trace.events:
            stage, is_call, _ = event.stage.partition(".call")
            span = self._tracer.start_span(
                event.stage,
                stages.get(stage, inner) if is_call else inner,
                SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
                attributes=_of_event(event),
                start_time=at(event.started_s),
                record_exception=False,
            )
            if event.failure:
                span.set_status(error)
                # A failed call is mended or fallen back from; a failed stage is the end of the answer.
                if not is_call:
                    root.set_status(error)
            if not is_call:
                stages[stage] = set_span_in_context(span, Context())
            span.end(at(event.started_s + event.seconds))
        root.end(at(max((event.started_s + event.seconds for event in trace.events), default=0.0)))


def _of_trace(trace: Trace) -> Attributes:
    usage = sum((event.usage for event in trace.events), Usage())
    return {
        "resin.trace_id": trace.trace_id,
        "resin.strategy": trace.strategy,
        "resin.generation": trace.generation,
        "resin.llm_calls": usage.llm_calls,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
    }


def _of_event(event: TraceEvent) -> Attributes:
    """Names and numbers of an event. Of its data only how long its lists are: what is in them is content."""
    attributes: Attributes = {"resin.stage": event.stage, "resin.failed": bool(event.failure)}
    for name, value in event.data.items():
        if isinstance(value, list):
            attributes[f"resin.{name}.count"] = len(value)
    if event.model:
        attributes["gen_ai.response.model"] = event.model
        attributes["resin.prompt_id"] = event.prompt_id
        attributes["gen_ai.usage.input_tokens"] = event.usage.prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = event.usage.completion_tokens
    return attributes
