"""The edge around a bare application: what is open and what is not, at the root and below a prefix."""

from __future__ import annotations

import hashlib
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from deployments.access import Access
from deployments.http.edge import Edge, Message, Receive, Seen, Send
from resin_core.config.serving import KeySection, Scope, ServingSection

KEY = "resin-key-of-alice-0123456789-abcdefghijklmnop"
SERVING = ServingSection(
    keys=(KeySection(name="alice", sha256=hashlib.sha256(KEY.encode()).hexdigest(), scopes=(Scope.ASK,)),),
    max_body_bytes=1000,
    max_requests=1,
)


async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answers everything, with the body that came."""
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


class Sender:
    """Sends requests to an edge and keeps what it told of them."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.edge = Edge(application, SERVING, Access.of(SERVING), self.seen.append)

    async def send(
        self, path: str, key: str = "", root: str = "", body: bytes = b""
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of the answer."""
        sent: list[Message] = []
        headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
        scope = {"type": "http", "method": "GET", "path": path, "root_path": root, "headers": headers}

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.edge(scope, receive, send)
        start, end = sent
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], told, end["body"]


@pytest.fixture
def sender() -> Sender:
    return Sender()


async def status(sender: Sender, path: str, key: str = "", root: str = "") -> int:
    return (await sender.send(path, key, root))[0]


@pytest.mark.parametrize("root", ["", "/resin", "/v1", "/a/b"])
async def test_a_prefix_changes_nothing(sender: Sender, root: str) -> None:
    for path in ("/", "/healthz", "/readyz", "/openapi.json", "/docs"):
        assert await status(sender, root + path, root=root) == 200
    for path in ("/v1/answer", "/v1/healthz", "/healthz/", "//healthz", "/none", "/healthz/../v1/answer"):
        assert await status(sender, root + path, root=root) == 401
        assert await status(sender, root + path, KEY, root) == 200
    for path in ("/v1/traces/x", "/v1/admin/refresh"):
        assert await status(sender, root + path, root=root) == 401
        assert await status(sender, root + path, KEY, root) == 403


@pytest.mark.parametrize("path", ["/resinhealthz", "/resinous/healthz", "/other/healthz", "/resin/resin/healthz"])
async def test_a_prefix_ends_at_a_slash(sender: Sender, path: str) -> None:
    assert await status(sender, path, root="/resin") == 401


async def test_the_prefix_itself_is_the_page(sender: Sender) -> None:
    assert await status(sender, "/resin", root="/resin") == 200


async def test_a_strangers_body_is_not_measured(sender: Sender) -> None:
    assert (await sender.send("/v1/index", body=b"x" * 2000))[0] == 401
    assert (await sender.send("/v1/index", KEY, body=b"x" * 2000))[0] == 413
    assert (await sender.send("/v1/index", KEY, body=b"x" * 1000))[2] == b"x" * 1000


async def test_a_full_replica_refuses_what_is_costly_and_nothing_else(sender: Sender) -> None:
    sender.edge.in_flight = 1
    code, headers, body = await sender.send("/resin/v1/answer", KEY, "/resin")
    assert code == 429 and headers["retry-after"] == str(SERVING.retry_after_s)
    assert "serving.max_requests" in json.loads(body)["detail"]
    assert await status(sender, "/resin/v1/models", KEY, "/resin") == 200
    assert sender.edge.in_flight == 1


async def test_what_is_told_names_the_key_and_never_the_path(sender: Sender) -> None:
    await sender.send("/v1/documents/secret", KEY)
    await sender.send("/v1/documents/secret", "none")
    assert [(seen.route, seen.status, seen.caller) for seen in sender.seen] == [
        ("unknown", 200, "alice"),
        ("unknown", 401, ""),
    ]
