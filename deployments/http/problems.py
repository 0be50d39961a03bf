"""Every error as a problem document (RFC 9457), with a request id and without a stack trace."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from deployments.access import AccessError
from resin_core.errors import (
    BusyError,
    ConfigError,
    DeadlineError,
    InputError,
    LLMError,
    LLMRateLimitError,
    NotReadyError,
    ReplicaError,
    ResinError,
    UnknownIdError,
)

log = logging.getLogger("resin.http")
MEDIA_TYPE = "application/problem+json"

# The first that fits counts: subclasses stand before their bases.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NotReadyError, 503),
    (BusyError, 429),
    (LLMRateLimitError, 503),
    (DeadlineError, 504),
    (UnknownIdError, 404),
    (ConfigError, 400),
    (InputError, 400),
    (ReplicaError, 503),
    (LLMError, 502),
)
_RETRY = (429, 503)
# Of a body with many faults.
_SHOWN, _SHOWN_CHARS = 5, 200


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field("about:blank", description="A URI that names the kind of problem.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field("", description="What is wrong with this request, and how to mend it.")
    request_id: str = Field("", description="Names this request in the server's logs.")


def _header(description: str, kind: str = "string") -> dict[str, Any]:
    return {"description": description, "required": True, "schema": {"type": kind}}


REQUEST_ID = {"X-Request-ID": _header("Names this request; the one that was sent, if one was.")}
_LATER = {"Retry-After": _header("Seconds to wait before the next try.", "integer")}
_HEADERS = {
    401: {"WWW-Authenticate": _header("How to show a key.")},
    405: {"Allow": _header("The methods that there are.")},
    429: _LATER,
    503: _LATER,
}


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of these errors."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "headers": _HEADERS.get(status, {}),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


RESPONSES = described(400, 401, 403, 404, 405, 413, 422, 429, 500, 502, 503, 504)


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    if isinstance(error, AccessError | HTTPException):
        status: int = error.status if isinstance(error, AccessError) else error.status_code
        return status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_of(error: Exception, request_id: str) -> Problem:
    """The document of an error; one that nobody foresaw is logged and shows nothing of the inside."""
    status = status_of(error)
    if isinstance(error, HTTPException):
        detail = str(error.detail)
    elif isinstance(error, ResinError | AccessError) and status != 500:
        detail = str(error)
    else:
        log.error("request %s failed", request_id, exc_info=error)
        detail = "the server failed; its log has more under this request id"
    return Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, request_id=request_id)


def respond(error: Exception, request_id: str, retry_after_s: int) -> Response:
    """The response to an error."""
    problem = problem_of(error, request_id)
    headers = {}
    if problem.status in _RETRY:
        headers["Retry-After"] = str(getattr(error, "retry_after_s", None) or retry_after_s)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, HTTPException) and error.headers:
        headers.update(error.headers)
    return JSONResponse(problem.model_dump(), problem.status, headers, MEDIA_TYPE)


def install(app: FastAPI, retry_after_s: int) -> None:
    """Has the application answer every error this way."""

    async def handle(request: Request, error: Exception) -> Response:
        return respond(error, request.state.request_id, retry_after_s)

    async def invalid(request: Request, error: Exception) -> Response:
        found = error.errors() if isinstance(error, RequestValidationError) else ()
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        detail = "; ".join(_explain(item) for item in found[:_SHOWN]) + more
        return respond(HTTPException(422, detail), request.state.request_id, retry_after_s)

    for kind in (ResinError, AccessError, HTTPException):
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(RequestValidationError, invalid)


def _explain(item: Any) -> str:
    """Field and complaint; the value stays out: it may be a question or a document."""
    name = ".".join(str(part) for part in item["loc"])
    # The client may have named the field, at any length.
    return f"{name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + '...'}: {item['msg']}"
