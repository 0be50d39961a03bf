from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from ray.serve.context import _RequestContext, _serve_request_context

from deployments import logs
from deployments.logs import LOGGERS, JsonLines, Place, access, configure, request_id_var

GIVEN = ("Who sold\nthe lamp?", "ab, input_type=a secret")
PLACE = Place("retriever", "retriever#ab12")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The loggers as they were, for the other tests of this process."""
    before = [
        (logger, logger.level, logger.propagate, list(logger.handlers)) for logger in map(logging.getLogger, LOGGERS)
    ]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_where_and_what(stream: io.StringIO) -> None:
    configure(stream=stream, place=PLACE)
    logging.getLogger("resin.service").info("index %s: ready", "default")
    (line,) = lines(stream)
    at = datetime.fromisoformat(line.pop("time"))
    assert at.tzinfo is not None and abs((datetime.now(UTC) - at).total_seconds()) < 60
    assert line == {
        "level": "info",
        "logger": "resin.service",
        "message": "index default: ready",
        "deployment": "retriever",
        "replica": "retriever#ab12",
    }


@pytest.mark.parametrize("name", ["resin.http", "resin_core.store.traces", "deployments.anything"])
def test_every_module_of_the_project_is_heard(stream: io.StringIO, name: str) -> None:
    configure(stream=stream, place=PLACE)
    logging.getLogger(name).warning("heard")
    assert [line["logger"] for line in lines(stream)] == [name]


@pytest.mark.parametrize("level", ["WARNING", logging.WARNING])
def test_what_is_below_the_level_is_left_out(stream: io.StringIO, level: int | str) -> None:
    configure(level, stream, PLACE)
    logging.getLogger("resin.service").info("no")
    logging.getLogger("resin.service").warning("yes")
    assert [line["message"] for line in lines(stream)] == ["yes"]


def test_no_line_is_written_twice(stream: io.StringIO) -> None:
    """Neither by the root logger's handlers, as Ray's logging may set them, nor after a second call."""
    others = io.StringIO()
    root = logging.StreamHandler(others)
    logging.getLogger().addHandler(root)
    try:
        configure(stream=io.StringIO(), place=PLACE)
        configure(stream=stream, place=PLACE)
        logging.getLogger("resin.service").warning("once")
    finally:
        logging.getLogger().removeHandler(root)
    assert len(lines(stream)) == 1 and others.getvalue() == ""


def test_handlers_of_others_stay(stream: io.StringIO) -> None:
    others = io.StringIO()
    own = logging.StreamHandler(others)
    logging.getLogger("resin").addHandler(own)
    configure(stream=stream, place=PLACE)
    logging.getLogger("resin.service").warning("both")
    assert others.getvalue() == "both\n" and len(lines(stream)) == 1


def test_the_default_is_the_process_itself_and_not_what_took_the_place_of_stderr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    handler = configure(place=PLACE)
    assert isinstance(handler, logging.StreamHandler) and handler.stream is sys.__stderr__


def test_outside_a_replica_no_place_is_named(stream: io.StringIO) -> None:
    configure(stream=stream)
    logging.getLogger("resin").warning("here")
    assert not {"deployment", "replica"} & lines(stream)[0].keys()


def test_lines_of_a_request_carry_its_id(stream: io.StringIO) -> None:
    configure(stream=stream, place=PLACE)
    log = logging.getLogger("resin.service")

    def work(request_id: str) -> None:
        request_id_var.set(request_id)
        log.info("working")

    copy_context().run(work, "r-1")
    copy_context().run(work, "r-2")
    log.info("idle")
    assert [line.get("request_id") for line in lines(stream)] == ["r-1", "r-2", None]


@pytest.mark.parametrize(("sent", "logged"), [("r-3", "r-3"), ("Who\nwas it?", None), ("x" * 65, None), ("", None)])
def test_a_call_between_replicas_carries_the_id_that_serve_hands_on(
    stream: io.StringIO, sent: str, logged: str | None
) -> None:
    configure(stream=stream, place=PLACE)

    def called() -> None:
        _serve_request_context.set(_RequestContext(request_id=sent))
        logging.getLogger("resin.model").info("called")

    copy_context().run(called)
    assert lines(stream)[0].get("request_id") == logged


def test_an_access_line_holds_the_template_and_no_path(stream: io.StringIO) -> None:
    configure(stream=stream, place=Place())
    access("/v1/documents/{doc_id:path}", "GET", 404, 0.012345, "lab", "r-1", "t2026120103-0123456789abcdef")
    (line,) = lines(stream)
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "resin.access",
        "message": "GET /v1/documents/{doc_id:path} 404",
        "method": "GET",
        "route": "/v1/documents/{doc_id:path}",
        "status": 404,
        "seconds": 0.0123,
        "caller": "lab",
        "request_id": "r-1",
        "trace_id": "t2026120103-0123456789abcdef",
    }


def test_an_error_holds_its_class_and_stack_trace_on_one_line(stream: io.StringIO) -> None:
    configure(stream=stream, place=PLACE)
    try:
        raise KeyError("missing")
    except KeyError as error:
        logging.getLogger("resin.http").error("request failed", exc_info=error)
    (line,) = lines(stream)
    assert stream.getvalue().count("\n") == 1
    assert (line["level"], line["error"]) == ("error", "builtins.KeyError")
    assert "Traceback" in line["traceback"] and "test_logs.py" in line["traceback"]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    question: int


def test_a_failed_validation_repeats_nothing_of_what_it_was_given(stream: io.StringIO) -> None:
    configure(stream=stream, place=PLACE)
    log = logging.getLogger("resin.http")
    # By name, as a stack trace shows lines of code; the second would end the pattern early.
    given = {"question": GIVEN[0], "also": GIVEN[1]}
    try:
        Body.model_validate(given)
    except ValueError as error:
        assert "Who sold" in str(error) and "secret" in str(error)
        log.error("request failed: %s", error, exc_info=error)
    assert "Who sold" not in stream.getvalue() and "secret" not in stream.getvalue()
    (line,) = lines(stream)
    assert line["traceback"].count("input_value=...") == line["message"].count("input_value=...") == 2
    assert "Extra inputs" in line["traceback"]


@pytest.mark.parametrize("text", ['forged"}\n{"level": "info"', "\ud800 alone", "\x00\x1b[2J"])
def test_no_message_breaks_the_format(text: str) -> None:
    raw = io.BytesIO()
    configure(stream=io.TextIOWrapper(raw, "ascii", write_through=True), place=PLACE)
    logging.getLogger("resin").warning("%s", text)
    (written,) = raw.getvalue().splitlines()
    assert json.loads(written)["message"] == text


def test_nothing_is_configured_by_the_import() -> None:
    assert not [h for name in LOGGERS for h in logging.getLogger(name).handlers if isinstance(h.formatter, JsonLines)]
    assert logs.request_id_var.get() == ""
