from __future__ import annotations

import http.server
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from queue import Queue
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from deployments.spans import _EXPORTER, Spans
from resin_core.errors import ConfigError
from resin_core.records import Trace, TraceEvent
from tests.asking import HOPS, QUESTION, REPLIES, UNIT_TEXT, asked

AT = 1_800_000_000.25
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-2] + "00"
EMPTY = Trace(trace_id="t1", question="q", strategy="resin", generation="g1", events=())


class Made:
    """Spans that stay in memory."""

    def __init__(self) -> None:
        self.memory = InMemorySpanExporter()
        self.spans = Spans(SimpleSpanProcessor(self.memory))

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        return self.memory.get_finished_spans()

    @property
    def root(self) -> ReadableSpan:
        (found,) = self.named("answer")
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.finished if span.name == name]


@pytest.fixture
def made() -> Iterator[Made]:
    found = Made()
    yield found
    found.spans.close()


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_an_answer_is_a_tree_of_its_stages_and_their_calls(made: Made) -> None:
    question = await asked(hop_solvers=True, derivation="always")
    found = question.recorder.trace()
    made.spans.export(found, AT, "r-1")
    assert sorted(span.name for span in made.finished) == sorted(["answer", *(event.stage for event in found.events)])
    assert made.root.parent is None and made.root.kind is SpanKind.SERVER
    stages = {id_of(span): span.name for span in made.finished}
    for span in made.finished:
        if span.name.endswith(".call"):
            assert stages[parent_of(span) or 0] == span.name.removesuffix(".call") and span.kind is SpanKind.CLIENT
        elif span is not made.root:
            assert stages[parent_of(span) or 0] == "answer"
    # Two hops were answered, one call each: no call hangs below the other hop's span.
    assert len({parent_of(span) for span in made.named("solve.call")}) == 2
    assert len({span.context.trace_id for span in made.finished if span.context}) == 1


async def test_times_are_the_events_own(made: Made) -> None:
    events = (
        TraceEvent(stage="plan", started_s=0.0, seconds=0.5),
        TraceEvent(stage="retrieve", started_s=0.5, seconds=0.25),
    )
    made.spans.export(EMPTY.model_copy(update={"events": events}), AT)
    (retrieve,) = made.named("retrieve")
    assert (retrieve.start_time, retrieve.end_time) == (int((AT + 0.5) * 1e9), int((AT + 0.75) * 1e9))
    assert (made.root.start_time, made.root.end_time) == (int(AT * 1e9), int((AT + 0.75) * 1e9))


async def test_attributes_are_names_and_numbers(made: Made) -> None:
    question = await asked(select="always")
    found = question.recorder.trace()
    made.spans.export(found, AT, "r-1")
    usage = question.recorder.usage
    assert of(made.root) == {
        "resin.trace_id": found.trace_id,
        "resin.strategy": "resin",
        "resin.generation": "g1",
        "resin.request_id": "r-1",
        "resin.llm_calls": usage.llm_calls,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
    }
    (call,), (event,) = made.named("plan.call"), [event for event in found.events if event.stage == "plan.call"]
    assert of(call) == {
        "resin.stage": "plan.call",
        "resin.failed": False,
        "resin.prompt_id": event.prompt_id,
        "gen_ai.response.model": event.model,
        "gen_ai.usage.input_tokens": event.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": event.usage.completion_tokens,
    }
    (plan,), (select,) = made.named("plan"), made.named("select")
    assert of(plan)["resin.hops.count"] == 2 and of(select)["resin.kept.count"] == len(question.answer.evidence)


async def test_no_span_holds_a_text(made: Made) -> None:
    question = await asked(hop_solvers=True, select="always", derivation="always")
    made.spans.export(question.recorder.trace(), AT, "r-1")
    written = "".join(span.to_json() for span in made.finished)
    for text in (QUESTION, REPLIES["answer"], UNIT_TEXT, HOPS[0].partition(" |")[0], "a hop answer", "Alba", "alba"):
        assert text not in written


async def test_a_failed_call_marks_itself_and_a_failed_stage_the_answer(made: Made) -> None:
    call = TraceEvent(stage="plan.call", started_s=0, seconds=1, prompt_id="p", model="m", failure="the reply: Alba")
    stage = TraceEvent(stage="compose", started_s=1, seconds=1, failure="DeadlineError: Alba")
    made.spans.export(EMPTY.model_copy(update={"events": (call,)}), AT)
    assert [span.name for span in made.finished if span.status.status_code is StatusCode.ERROR] == ["plan.call"]
    made.memory.clear()
    made.spans.export(EMPTY.model_copy(update={"events": (call, stage)}), AT)
    failed = [span for span in made.finished if span.status.status_code is StatusCode.ERROR]
    assert {span.name for span in failed} == {"plan.call", "compose", "answer"}
    assert all(not span.status.description and "Alba" not in span.to_json() for span in failed)
    assert of(made.named("compose")[0])["resin.failed"] is True


def test_the_request_s_own_span_is_the_parent(made: Made) -> None:
    made.spans.export(EMPTY, AT, parent=PARENT)
    assert made.root.context is not None and made.root.parent is not None
    assert f"{made.root.context.trace_id:032x}" == PARENT[3:35]
    assert f"{made.root.parent.span_id:016x}" == PARENT[36:52] and made.root.parent.is_remote


def test_a_request_that_is_not_sampled_gets_no_spans(made: Made) -> None:
    made.spans.export(EMPTY, AT, parent=UNSAMPLED)
    assert not made.finished


@pytest.mark.parametrize(
    "header", [None, "", "garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", PARENT[:-5], "\x00ü"]
)
def test_without_a_usable_header_the_answer_is_the_root(made: Made, header: str | None) -> None:
    made.spans.export(EMPTY, AT, parent=header)
    assert made.root.parent is None


def test_a_span_around_the_caller_is_no_parent(made: Made) -> None:
    around = TracerProvider(shutdown_on_exit=False).get_tracer("other").start_span("other")
    token = context.attach(trace.set_span_in_context(around))
    try:
        made.spans.export(EMPTY, AT)
    finally:
        context.detach(token)
    assert made.root.parent is None


def test_without_an_endpoint_none_are_made() -> None:
    spans = Spans.of(None)
    spans.export(EMPTY, AT)
    spans.close()


@pytest.mark.parametrize("endpoint", ["localhost:4318", "grpc://localhost:4317", "http://", "collector"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"serving\.otlp_endpoint"):
        Spans.of(endpoint)


def test_a_missing_exporter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, _EXPORTER, None)
    with pytest.raises(ConfigError, match=r"opentelemetry-exporter-otlp-proto-http.*resin\[otel\]"):
        Spans.of("http://localhost:4318")


class Stuck(SpanExporter):
    """An endpoint that does not answer until it is let go."""

    def __init__(self) -> None:
        self.entered, self.gate = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.gate.wait(30)
        return SpanExportResult.SUCCESS


def test_an_endpoint_that_hangs_holds_no_answer_up() -> None:
    stuck = Stuck()
    spans = Spans(BatchSpanProcessor(stuck, max_queue_size=8, max_export_batch_size=4, schedule_delay_millis=1))
    try:
        spans.export(EMPTY, AT)
        assert stuck.entered.wait(10)
        started = time.monotonic()
        for _ in range(50):
            spans.export(EMPTY, AT)
        assert time.monotonic() - started < 5
    finally:
        stuck.gate.set()
        spans.close()


def test_a_failing_processor_fails_no_answer_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SimpleSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("Alba")

    spans = Spans(Broken(InMemorySpanExporter()))
    spans.export(EMPTY, AT)
    spans.export(EMPTY, AT)
    assert [record.message for record in caplog.records if record.name == "resin.spans"] == [
        "spans cannot be made: RuntimeError"
    ]


@pytest.mark.parametrize(
    ("path", "wanted"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/otlp/traces", "/otlp/traces")]
)
def test_spans_reach_an_otlp_endpoint(path: str, wanted: str) -> None:
    pytest.importorskip(_EXPORTER, reason="needs the extra otel")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    requests: Queue[tuple[str, bytes]] = Queue()

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.put((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            spans = Spans.of(f"http://127.0.0.1:{server.server_port}{path}")
            events = (TraceEvent(stage="plan", started_s=0.0, seconds=0.5),)
            spans.export(EMPTY.model_copy(update={"events": events}), AT)
            spans.close()
            found, body = requests.get(timeout=10)
        finally:
            server.shutdown()
            thread.join()
    (group,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert found == wanted
    assert {span.name for scope in group.scope_spans for span in scope.spans} == {"answer", "plan"}
    assert {item.key: item.value.string_value for item in group.resource.attributes}["service.name"] == "resin"
