"""What replicas write to standard error: one JSON object a line, with the request it belongs to.

No line of level info or below holds a question, an answer, a document's text, an id of a document or a key. Lines of
errors hold a stack trace, without the values that a failed validation would repeat. Knows nothing of HTTP: the edge
says what was asked for, by its route template.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

# Every module's logger is below one of these.
LOGGERS = ("resin", "resin_core", "deployments")
_ACCESS = logging.getLogger("resin.access")
_FIELDS = "resin_fields"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# How pydantic repeats what it was given, which may be a question or a model's reply.
_INPUT = re.compile(r"input_value=.*(?=, input_type=\w+\])")

request_id_var: ContextVar[str] = ContextVar("resin_request_id", default="")
"""The request that the current task works on; empty outside one. The ingress sets it."""


class Place(NamedTuple):
    """Which replica of which deployment writes; both empty outside one."""

    deployment: str = ""
    replica: str = ""

    @classmethod
    def here(cls) -> Place:
        """This process's place, as Ray Serve names it."""
        from ray import serve
        from ray.serve.exceptions import RayServeException

        try:
            context = serve.get_replica_context()
        except RayServeException:
            return cls()
        return cls(context.deployment, context.replica_tag)


class JsonLines(logging.Formatter):
    """A record as one line of JSON, in ASCII: a line break or a lone surrogate in a message cannot break the format."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = {name: value for name, value in place._asdict().items() if value}

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _without_inputs(record.getMessage()),
        }
        request_id = request_id_var.get() or _serve_request_id()
        if request_id:
            line["request_id"] = request_id
        line |= self._place | getattr(record, _FIELDS, {})
        if record.exc_info and record.exc_info[0] is not None:
            kind = record.exc_info[0]
            line["error"] = f"{kind.__module__}.{kind.__qualname__}"
            line["traceback"] = _without_inputs("".join(traceback.format_exception(*record.exc_info)))
        return json.dumps(line, default=str)


def configure(
    level: int | str = logging.INFO, stream: TextIO | None = None, place: Place | None = None
) -> logging.Handler:
    """Has this process's Resin loggers write JSON lines of `level` (such as "INFO") and above; returns the handler.

    By default to the process's own standard error, which Ray keeps in a file for each worker: Serve may put its own
    log in the place of `sys.stderr`, and would wrap each line in one of its. Called again, it takes the place of the
    call before. Nothing reaches the root logger, so that no other handler writes a line twice; Serve's own logger,
    `ray.serve`, is not touched.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.__stderr__)
    handler.setFormatter(JsonLines(Place.here() if place is None else place))
    for name in LOGGERS:
        logger = logging.getLogger(name)
        # Those of others, such as a test's, stay.
        for old in [one for one in logger.handlers if isinstance(one.formatter, JsonLines)]:
            logger.removeHandler(old)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
    return handler


def access(
    route: str, method: str, status: int, seconds: float, caller: str, request_id: str, trace_id: str = ""
) -> None:
    """One line of level info for one HTTP request. `route` is the template: a raw path may name a document.

    `caller` is the name of the key that was used, empty for none; `seconds` is the time to the response's end.
    """
    fields: dict[str, Any] = {
        "method": method,
        "route": route,
        "status": status,
        "seconds": round(seconds, 4),
        "caller": caller,
        "request_id": request_id,
    }
    if trace_id:
        fields["trace_id"] = trace_id
    _ACCESS.info("%s %s %d", method, route, status, extra={_FIELDS: fields})


def _without_inputs(text: str) -> str:
    return _INPUT.sub("input_value=...", text) if "input_value=" in text else text


def _serve_request_id() -> str:
    """The id of the HTTP request behind a call between replicas, which Serve hands on with it; else empty."""
    module = sys.modules.get("ray.serve.context")
    variable = getattr(module, "_serve_request_context", None)
    context = variable.get() if variable is not None else None
    request_id = getattr(context, "request_id", "")
    # It may be what a client sent, unchecked.
    return request_id if _REQUEST_ID.fullmatch(request_id) else ""
