"""What the endpoint answers is what its OpenAPI document says, whatever it is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.engine import events, from_schema

from deployments.http.problems import Problem
from tests.integration.guarded.application import QUESTION, Guarded, bearer

pytestmark = pytest.mark.ray
_EXAMPLES = 20


@schemathesis.check
def errors_are_problem_documents(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """Also where a method is sent that a path does not have, of which the document only says that it is refused."""
    if response.status_code >= 400:
        documented = case.operation.definition.raw["responses"]
        assert str(response.status_code) in documented, f"{response.status_code} is not documented"
        headers = {name: values[0] for name, values in response.headers.items()}
        said = response.content if response.request.method != "HEAD" else None
        check_problem(response.status_code, headers, said)


def check_problem(status: int, headers: dict[str, str], content: bytes | None) -> None:
    """Raises AssertionError."""
    assert headers["content-type"] == "application/problem+json"
    if content is not None:
        problem = Problem.model_validate_json(content)
        assert problem.status == status
        assert problem.detail
        assert problem.request_id == headers["x-request-id"]


@dataclass
class Tried:
    """What came of all generated requests; statuses by operation."""

    statuses: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    failures: set[str] = field(default_factory=set)
    requests: int = 0

    def note(self, event: object) -> None:
        """One event of the run."""
        if isinstance(event, events.NonFatalError):
            self.failures.add(f"{event.label}: {event.value!r}")
        elif isinstance(event, events.FatalError):
            self.failures.add(repr(event.exception))
        elif isinstance(event, events.ScenarioFinished):
            for sent in event.recorder.interactions.values():
                self.requests += 1
                self.statuses[event.recorder.label].add(sent.response.status_code if sent.response else 0)
            for check in (found for checks in event.recorder.checks.values() for found in checks):
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    sample = check.failure_info.code_sample
                    self.failures.add(f"{failure.operation}: {failure.title}: {failure.message}\n{sample}")


@pytest.fixture(scope="module")
def described(guarded: Guarded) -> schemathesis.BaseSchema:
    """The served document; what is generated from it is the same each time."""
    config = schemathesis.Config.from_dict(
        {
            "seed": 1,
            "workers": 1,
            "headers": bearer("all"),
            "generation": {"deterministic": True, "max-examples": _EXAMPLES, "database": "none"},
            # What was answered before, such as the ids of traces, is new in each run.
            "phases": {
                "examples": {"extra-data-sources": {"responses": False}},
                "coverage": {"extra-data-sources": {"responses": False}},
                "fuzzing": {"extra-data-sources": {"responses": False}, "error-feedback": {"enabled": False}},
                "stateful": {"enabled": False},
            },
            # Bounds that the configuration sets, such as the most hops, are not in the document.
            "checks": {"positive_data_acceptance": {"enabled": False}},
        }
    )
    return schemathesis.openapi.from_url(f"{guarded.endpoint.url}/openapi.json", config=config)


@pytest.fixture(scope="module")
def tried(described: schemathesis.BaseSchema) -> Tried:
    found = Tried()
    for event in from_schema(described).execute():
        found.note(event)
    return found


def operations(described: schemathesis.BaseSchema) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and what the document says of them."""
    for path, methods in described.raw_schema["paths"].items():
        for method, told in methods.items():
            yield path, method.upper(), told


def test_every_answer_is_as_it_is_documented(tried: Tried) -> None:
    assert not tried.failures, "\n\n".join(sorted(tried.failures))


def test_every_operation_was_tried_and_did_its_work(described: schemathesis.BaseSchema, tried: Tried) -> None:
    assert set(tried.statuses) == {f"{method} {path}" for path, method, _ in operations(described)}
    assert tried.requests > 300
    # Ids are not guessed: what is found under one is checked below.
    worked = {label for label, statuses in tried.statuses.items() if 200 in statuses}
    assert worked >= {label for label in tried.statuses if "{" not in label}


def test_what_is_found_under_an_id_is_as_it_is_documented(guarded: Guarded, described: schemathesis.BaseSchema) -> None:
    def found(path: str, method: str = "GET", **given: Any) -> Any:
        response = described[path][method].Case(**given).call_and_validate(headers=bearer("all"))
        assert response.status_code == 200
        return response.json()

    asked = {"question": QUESTION, "include_trace": True}
    answer = found("/v1/answer", "POST", body=asked, media_type="application/json")
    assert answer["citations"] and answer["trace"]
    query = {"expected": [answer["citations"][0]["passage_id"], "none"]}
    trace = found("/v1/traces/{trace_id}", path_parameters={"trace_id": answer["trace_id"]}, query=query)
    assert [item["stage"] for item in trace["lost"]] == ["cited", "not retrieved"]
    document = found("/v1/documents/{doc_id}", path_parameters={"doc_id": answer["citations"][0]["doc_id"]})
    assert document["passages"]
    found("/v1/models/{model}", path_parameters={"model": "resin"})
    candidates = found("/v1/search", "POST", body={"query": QUESTION}, media_type="application/json")["candidates"]
    assert candidates
    messages = {"model": "resin", "messages": [{"role": "user", "content": QUESTION}]}
    chat = found("/v1/chat/completions", "POST", body=messages, media_type="application/json")
    assert chat["choices"][0]["message"]["annotations"]


def test_every_refusal_is_as_it_is_documented(guarded: Guarded, described: schemathesis.BaseSchema) -> None:
    def refused(expected: int, method: str, path: str, told: dict[str, Any], **given: Any) -> httpx.Response:
        # No id: what is refused here is refused before one is looked for.
        url = f"{guarded.endpoint.url}{path.replace('{', '').replace('}', '')}"
        response = httpx.request(method, url, timeout=60, trust_env=False, **given)
        assert response.status_code == expected, f"{method} {path}"
        documented = told["responses"][str(expected)]
        assert list(documented["content"]) == ["application/problem+json"]
        assert documented["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
        missing = [name for name in documented["headers"] if name not in response.headers]
        assert not missing, f"{method} {path} {expected}"
        check_problem(expected, dict(response.headers), response.content)
        return response

    for path, method, told in operations(described):
        if "security" in told:
            assert refused(401, method, path, told).headers["www-authenticate"] == "Bearer"
            # Scopes are as they are listed: that for traces is not that for questions, nor the other way round.
            wrong = "ask" if path.startswith(("/v1/traces/", "/v1/admin/")) else "traces"
            refused(403, method, path, told, headers=bearer(wrong))
        other = refused(405, "DELETE", path, told, headers=bearer("all"))
        assert other.headers["allow"] == method
        refused(413, method, path, told, headers=bearer("all"), content=b"x" * 300_000)
        if method == "POST" and "requestBody" in told:
            refused(422, method, path, told, headers=bearer("all"), json={})


def test_a_body_with_many_faults_does_not_get_all_of_it_back(guarded: Guarded) -> None:
    body = {"question": QUESTION} | {f"{'x' * 1000}{at}": at for at in range(100)}
    response = guarded.endpoint.post("/v1/answer", body, headers=bearer("all"))
    assert response.status_code == 422
    assert "and 95 more" in response.json()["detail"]
    assert len(response.content) < 3000
