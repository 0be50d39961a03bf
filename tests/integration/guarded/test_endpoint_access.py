"""Who is let in at which route, how often, and that neither keys nor what is asked stand in any log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from ray import serve

from deployments.app import bound
from resin_core.config import load_config
from tests.integration.endpoints import SMALL, Endpoint, until_ready
from tests.integration.guarded.application import KEYS, PER_MINUTE, QUESTION, Guarded, bearer, settings, sha256

pytestmark = pytest.mark.ray
OPEN = {"/", "/healthz", "/readyz", "/openapi.json", "/docs"}


def send(endpoint: Endpoint, method: str, path: str, **given: Any) -> httpx.Response:
    """One request."""
    return httpx.request(method, f"{endpoint.url}{path}", timeout=60, trust_env=False, **given)


def as_written(endpoint: Endpoint, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """Status and media type; other clients tidy a path up before they send it."""
    address = urlsplit(endpoint.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.headers["content-type"]
    finally:
        connection.close()


def guarded_routes(endpoint: Endpoint) -> Iterator[tuple[str, str, str]]:
    """Method, a path and the scope it wants, of each route that is not open."""
    for path, methods in endpoint.get("/openapi.json").json()["paths"].items():
        if path in OPEN:
            continue
        scope = next((name for name in ("traces", "admin") if path.startswith(f"/v1/{name}/")), "ask")
        for method in methods:
            yield method.upper(), path.replace("{", "").replace("}", ""), scope


def test_no_route_is_entered_without_its_key(guarded: Guarded) -> None:
    routes = list(guarded_routes(guarded.endpoint))
    assert {scope for _, _, scope in routes} == {"ask", "traces", "admin"}
    for method, path, scope in routes:
        for headers in ({}, bearer("stranger"), {"Authorization": f"Basic {KEYS['all']}"}, {"X-API-Key": KEYS["all"]}):
            response = send(guarded.endpoint, method, path, headers=headers)
            assert response.status_code == 401, f"{method} {path}"
            assert response.headers["www-authenticate"] == "Bearer"
            assert KEYS["stranger"] not in response.text and KEYS["all"] not in response.text
        for name in ("ask", "traces", "admin"):
            status = send(guarded.endpoint, method, path, headers=bearer(name)).status_code
            assert (status == 403) == (name != scope), f"{method} {path} with the key for {name}: {status}"
            assert status != 401
        assert send(guarded.endpoint, method, path, headers=bearer("all")).status_code not in (401, 403)


def test_a_key_in_the_address_is_none(guarded: Guarded) -> None:
    for name in ("key", "api_key", "access_token"):
        assert guarded.endpoint.get("/v1/models", params={name: KEYS["all"]}).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1", "/v1/", "/v1/answer/", "/v1/answer/x", "/v1/admin", "/v1/admin/none", "/v1/traces", "/v2/models",
        "/V1/models", "/none", "/healthz/", "/healthz/x", "//healthz", "/docs/", "/docs/oauth2-redirect/x", "/redoc",
        "/openapi.json/", "/v1/../healthz", "/healthz/../v1/models", "/healthz%2f..%2fv1/models", "/healthz;/v1/models",
    ],
)  # fmt: skip
def test_a_path_that_is_not_there_tells_strangers_nothing(guarded: Guarded, path: str) -> None:
    for method in ("GET", "POST"):
        assert as_written(guarded.endpoint, method, path)[0] == 401
        assert as_written(guarded.endpoint, method, path, bearer("all")) == (404, "application/problem+json")


def test_what_is_open_stays_so(guarded: Guarded) -> None:
    for path in OPEN - {"/"}:
        for headers in ({}, bearer("stranger")):
            assert guarded.endpoint.get(path, headers=headers).status_code == 200, path
    # And only these: whoever adds a route has to say so.
    schema = guarded.endpoint.get("/openapi.json").json()
    without = {path for path, methods in schema["paths"].items() for told in methods.values() if "security" not in told}
    assert without == {"/healthz", "/readyz"}


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "TRACE"])
def test_other_methods_are_refused_to_all_alike(guarded: Guarded, method: str) -> None:
    for path, allowed in (("/v1/answer", "POST"), ("/v1/models", "GET"), ("/v1/documents/d000", "GET")):
        preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": allowed}
        stranger = send(guarded.endpoint, method, path, headers=preflight)
        assert stranger.status_code == 401
        assert "access-control-allow-origin" not in stranger.headers
        response = send(guarded.endpoint, method, path, headers=bearer("all"))
        assert response.status_code == 405
        assert response.headers["allow"] == allowed
        assert (response.content == b"") == (method == "HEAD")


def test_a_strangers_body_is_not_looked_at(guarded: Guarded) -> None:
    response = send(guarded.endpoint, "POST", "/v1/answer", content=b"x" * 300_000)
    assert response.status_code == 401


def test_a_key_is_counted_over_all_replicas(guarded: Guarded) -> None:
    # Two ingress replicas answer: counted by each for itself, the key would have twice as many.
    answers = [guarded.endpoint.get("/v1/models", headers=bearer("limited")) for _ in range(4 * PER_MINUTE)]
    assert [answer.status_code for answer in answers].count(200) == PER_MINUTE
    response = answers[-1]
    assert response.status_code == 429
    assert 20 <= int(response.headers["retry-after"]) <= 60 / PER_MINUTE
    assert "limited" in response.json()["detail"]
    # A request that is refused for its scope is not counted, and other keys are not held up.
    assert send(guarded.endpoint, "POST", "/v1/admin/refresh", headers=bearer("limited")).status_code == 403
    assert guarded.endpoint.get("/v1/models", headers=bearer("ask")).status_code == 200


def test_a_missing_document_says_nothing_of_where_the_index_is(guarded: Guarded) -> None:
    response = guarded.endpoint.get("/v1/documents/none", headers=bearer("ask"))
    assert response.status_code == 404
    assert "'none'" in response.json()["detail"]
    assert str(guarded.index.parent) not in response.text


def test_below_a_prefix_the_same_is_open_and_the_same_is_not(guarded: Guarded) -> None:
    base = (f"llm.base_url={guarded.model.base_url}", "llm.model=scripted", f"index.uri={guarded.index}")
    config = load_config(None, [*base, *SMALL, *settings()], env={})
    serve.run(bound(config), name="second", route_prefix="/resin")
    try:
        second = Endpoint(f"{guarded.endpoint.url}/resin")
        until_ready(second)
        for path in OPEN - {"/"}:
            assert second.get(path).status_code == 200, path
        for method, path, scope in guarded_routes(second):
            assert send(second, method, path).status_code == 401
            wrong = "admin" if scope != "admin" else "ask"
            assert send(second, method, path, headers=bearer(wrong)).status_code == 403
        assert second.get("/v1/resin/healthz").status_code == 401
        assert second.get("/openapi.json").json()["servers"] == [{"url": "/resin"}]
        asked = {"model": "resin", "messages": [{"role": "user", "content": QUESTION}]}
        reply = second.post("/v1/chat/completions", asked, headers=bearer("ask")).json()
        link = reply["choices"][0]["message"]["annotations"][0]["url_citation"]["url"]
        assert link.startswith(f"{second.url}/v1/documents/")
        assert httpx.get(link, headers=bearer("ask"), timeout=60, trust_env=False).status_code == 200
    finally:
        serve.delete("second")
    assert guarded.endpoint.get("/readyz").status_code == 200


def test_no_log_holds_a_key_a_question_or_a_document(guarded: Guarded) -> None:
    question = "How heavy is the Quarry of the seventeen lanterns?"
    named = bearer("all") | {"X-Request-ID": "sought-in-the-logs"}
    for stream in (False, True):
        answer = guarded.endpoint.post("/v1/answer", {"question": question, "stream": stream}, headers=named)
        assert answer.status_code == 200
    body: dict[str, Any] = {"question": question, "top_k": "many"}
    assert guarded.endpoint.post("/v1/answer", body, headers=named).status_code == 422
    asked = {"model": "resin", "messages": [{"role": "user", "content": question}]}
    chat = guarded.endpoint.post("/v1/chat/completions", asked, headers=named).json()
    assert guarded.endpoint.post("/v1/search", {"query": question}, headers=named).status_code == 200
    trace = f"/v1/traces/{chat['resin']['trace_id']}"
    assert guarded.endpoint.get(trace, params={"expected": "d003"}, headers=named).status_code == 200
    document = guarded.endpoint.get("/v1/documents/d003", headers=named).json()
    assert guarded.endpoint.get("/v1/models", headers=bearer("stranger")).status_code == 401
    lines = until_logged(guarded.logs, "sought-in-the-logs", 7)
    assert {line["route"] for line in lines} >= {"/v1/answer", "/v1/traces/{trace_id}", "/v1/documents/{doc_id:path}"}
    assert {line["caller"] for line in lines} == {"all"}
    secrets = [question, "seventeen lanterns", document["text"][:40], "documents/d003", "expected=", *KEYS.values()]
    secrets += [sha256(key) for key in KEYS.values()]
    for file in sorted(guarded.logs.rglob("*")):
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            found = [secret for secret in secrets if secret in text]
            assert not found, f"{file} holds {found}"


def until_logged(logs: Path, request_id: str, count: int) -> list[dict[str, Any]]:
    """That many lines of the ingress about requests of this id, from where Ray keeps what workers say."""
    end = time.monotonic() + 20
    while True:
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in logs.glob("worker-*.err")]
        said = [line for text in texts for line in text.splitlines() if request_id in line and '"route"' in line]
        if len(said) >= count:
            return [json.loads(line) for line in said]
        assert time.monotonic() < end, f"{len(said)} of {count} lines"
        time.sleep(0.2)
