"""The outer edge of the HTTP application, before any route: request ids, keys, bounds, and the line in the log.

A pure ASGI middleware, so that a client's leaving reaches the route as cancellation.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from deployments.access import Access, Caller
from deployments.http.problems import respond, status_of
from deployments.logs import request_id_var
from resin_core.config.serving import Scope, ServingSection
from resin_core.errors import BusyError

log = logging.getLogger("resin.http")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# The W3C traceparent header of the request under way, for the spans of its answer.
traceparent_var: ContextVar[str] = ContextVar("traceparent", default="")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Those that make replicas and models work; the rest is cheap.
_COSTLY = frozenset({"/v1/answer", "/v1/search", "/v1/chat/completions"})
# Everything else wants a key: a path that is not listed here cannot be left open by mistake.
_OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/docs"})
_SCOPES = (("/v1/traces/", Scope.TRACES), ("/v1/admin/", Scope.ADMIN))
_NOBODY = Caller("", frozenset())


class Seen(NamedTuple):
    """One request after its end, for log and metrics; `route` is the template, never the raw path."""

    route: str
    method: str
    status: int
    seconds: float
    caller: str
    request_id: str


class Edge:
    """Wraps the application. `seen` is told of every request at its end; a client that left has status 499."""

    def __init__(self, app: Asgi, serving: ServingSection, access: Access, seen: Callable[[Seen], None]) -> None:
        self._app, self._serving, self._access, self._seen = app, serving, access, seen
        self.in_flight = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        # Serve gives every request an id, the client's if it sent one, and names it in the response.
        given = headers.get(b"x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        tokens = request_id_var.set(request_id), traceparent_var.set(headers.get(b"traceparent", ""))
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path = _below(scope)
        costly = path in _COSTLY
        caller = _NOBODY
        try:
            try:
                caller = await self._admitted(path, headers.get(b"authorization"))
                if costly and self.in_flight >= self._serving.max_requests:
                    raise BusyError(
                        f"{self.in_flight} questions are being answered already (serving.max_requests); try again later"
                    )
                body = await self._body(headers, receive)
                self.in_flight += costly
                try:
                    await self._app(scope, _replayed(body, receive), answer)
                finally:
                    self.in_flight -= costly
            except Exception as error:
                if status:
                    raise
                await respond(error, request_id, self._serving.retry_after_s)(scope, receive, answer)
        except BaseException as error:
            status = status_of(error) if isinstance(error, Exception) else 499
            raise
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            self._seen(Seen(route, scope["method"], status or 499, time.monotonic() - started, caller.name, request_id))
            request_id_var.reset(tokens[0])
            traceparent_var.reset(tokens[1])

    async def _admitted(self, path: str, authorization: str | None) -> Caller:
        """Before anything else is looked at. Raises AccessError."""
        if path in _OPEN:
            return _NOBODY
        wanted = next((scope for prefix, scope in _SCOPES if path.startswith(prefix)), Scope.ASK)
        return await self._access.check(authorization, wanted)

    async def _body(self, headers: MutableMapping[bytes, str], receive: Receive) -> bytes:
        """The whole body, within its bound. Raises HTTPException 413."""
        most = self._serving.max_body_bytes
        length = headers.get(b"content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > most:
            raise _too_long(most)
        chunks, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise HTTPException(400, "the client left before its request was whole")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > most:
                raise _too_long(most)
            more = message.get("more_body", False)
        return b"".join(chunks)


def _below(scope: MutableMapping[str, Any]) -> str:
    """The path as routes see it: Serve leaves the prefix of the application in, and names it apart."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    below = path.removeprefix(prefix)
    # As routing does it: /resinous is not below /resin.
    return below or "/" if path.startswith(prefix) and below[:1] in ("", "/") else path


def _too_long(most: int) -> HTTPException:
    return HTTPException(413, f"the request body is longer than {most:,} bytes (serving.max_body_bytes); shorten it")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then what the client does after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
