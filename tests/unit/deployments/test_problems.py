"""What an error becomes for the client: which status, and what it says of the inside."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from deployments.access import AccessError
from deployments.http import problems
from deployments.http.edge import Edge
from deployments.http.requests import AnswerRequest
from resin_core.config.serving import ServingSection
from resin_core.errors import (
    BusyError,
    ConfigError,
    DeadlineError,
    IndexCorruptError,
    LLMRateLimitError,
    LLMServerError,
    NotReadyError,
    QuestionError,
    ReplicaError,
    StoreError,
    UnknownIdError,
)

ERRORS: list[tuple[Exception, int]] = [
    (QuestionError("x"), 400),
    (ConfigError("x"), 400),
    (AccessError(401, "x"), 401),
    (AccessError(403, "x"), 403),
    (UnknownIdError("x"), 404),
    (HTTPException(413, "x"), 413),
    (BusyError("x"), 429),
    (AccessError(429, "x", 30), 429),
    (LLMServerError("x", 500), 502),
    (NotReadyError("x"), 503),
    (ReplicaError("x"), 503),
    (LLMRateLimitError("x"), 503),
    (DeadlineError("x"), 504),
]


@pytest.mark.parametrize(("error", "status"), ERRORS)
def test_each_error_has_its_status_and_its_headers(error: Exception, status: int) -> None:
    response = problems.respond(error, "r-1", 2)
    assert response.status_code == status
    assert response.media_type == "application/problem+json"
    assert json.loads(bytes(response.body))["detail"] == "x"
    for name in problems.RESPONSES[status]["headers"]:
        assert name in response.headers
    assert ("retry-after" in response.headers) == (status in (429, 503))
    if "retry-after" in response.headers:
        assert response.headers["retry-after"] == ("30" if isinstance(error, AccessError) else "2")


@pytest.mark.parametrize(
    "error",
    [StoreError("/secret/place"), IndexCorruptError("/secret/place", "/secret/place"), KeyError("/secret/place")],
)
def test_what_nobody_foresaw_is_in_the_log_and_not_in_the_answer(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        problem = problems.problem_of(error, "r-1")
    assert problem.status == 500 and "secret" not in problem.model_dump_json()
    assert "r-1" in caplog.text and "/secret/place" in caplog.text


async def test_faults_of_a_body_are_named_within_bounds_and_without_their_values() -> None:
    app = FastAPI(redirect_slashes=False)

    @app.post("/v1/answer")
    async def answer(body: AnswerRequest) -> None: ...

    problems.install(app, 2)

    class Anybody:
        async def check(self, authorization: str | None, scope: Any) -> Any:
            return type("Caller", (), {"name": ""})

    edge: Any = Edge(app, ServingSection(), Anybody(), lambda seen: None)  # type: ignore[arg-type]
    body = {"question": 5, "stream": 0, "include_trace": "no", "top_k": "5", "max_hops": True, "x" * 999: 1, "y": 1}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://test") as client:
        detail = (await client.post("/v1/answer", json=body)).json()["detail"]
        assert (await client.post("/v1/answer/", json=body)).status_code == 404
    assert detail.startswith("body.question: ") and detail.endswith("; and 2 more")
    assert [part.partition(":")[0] for part in detail.split("; ")[:-1]] == [
        f"body.{name}" for name in ("question", "top_k", "max_hops", "stream", "include_trace")
    ]
