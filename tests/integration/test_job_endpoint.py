"""The indexing job against endpoints that fail: what is waited for, given up, stopped, and kept."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resin_core.errors import BudgetError, LLMUnavailableError
from resin_core.store.reader import IndexReader
from tests.integration.indexing_runs import corpus, index, local_ray, sound
from tests.scripted_llm import Action, Reply, ScriptedServer, Status
from tests.scripted_llm.indexing_replies import play, title_of

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with local_ray():
        yield


def titles(server: ScriptedServer) -> list[str]:
    return [title_of(seen.body) for seen in server.chats]


def failing(*names: str, action: Action) -> Any:
    return lambda request: action if title_of(request) in names else play(request)


def test_a_poisoned_document_is_rejected_and_tried_again_by_the_same_command(
    tmp_path: Path, scripted_llm: ScriptedServer
) -> None:
    source, place = corpus(tmp_path / "c.jsonl", 6), tmp_path / "index"
    scripted_llm.script(failing("d003", action=Status(500)))
    done = index(scripted_llm, source, place)
    assert (done.documents, done.failed, done.rejects) == (6, 1, {"index_document:llm-http-500": 1})
    assert titles(scripted_llm).count("d003") == 2, "two rounds, as indexing.call_attempts says"
    reader = IndexReader.open(place)
    assert [reject.doc_id for reject in reader.iter_rejects()] == ["d003"]
    assert "d003" in {passage.doc_id for passage in reader.iter_passages()}, "its text stays reachable"
    assert "d003" not in {unit.doc_id for unit in reader.iter_units()}
    scripted_llm.seen.clear()
    scripted_llm.script(play)
    again = index(scripted_llm, source, place)
    assert titles(scripted_llm) == ["d003"]
    assert (again.documents, again.reused, again.failed, again.rejects) == (1, 5, 0, {})
    assert not list(IndexReader.open(place).iter_rejects())
    assert sound(place)


def test_a_model_that_goes_away_stops_the_job_and_nothing_is_paid_twice(
    tmp_path: Path, scripted_llm: ScriptedServer
) -> None:
    source, place = corpus(tmp_path / "c.jsonl", 30), tmp_path / "index"
    count = itertools.count()
    scripted_llm.models = [{"id": "scripted", "object": "model"}]

    def handler(request: dict[str, Any]) -> Action:
        if next(count) >= 12:
            scripted_llm.models = Status(503)
            return Status(503)
        return play(request)

    scripted_llm.script(handler)
    scripted_llm.latency_s = 0.05
    started = time.monotonic()
    with pytest.raises(LLMUnavailableError, match=r"no reply of the language model for .* 503"):
        index(scripted_llm, source, place, "indexing.endpoint_down_s=3")
    assert time.monotonic() - started < 60
    assert not (place / "CURRENT").exists()
    answered = {title_of(seen.body) for seen in scripted_llm.chats[:12]}
    scripted_llm.seen.clear()
    scripted_llm.models = [{"id": "scripted", "object": "model"}]
    scripted_llm.script(play)
    done = index(scripted_llm, source, place)
    assert set(titles(scripted_llm)) == {f"d{n:03}" for n in range(30)} - answered
    assert (done.documents, done.resumed, done.llm_calls) == (30, 12, 18)
    assert sound(place)


def test_a_model_that_comes_back_is_waited_for(tmp_path: Path, scripted_llm: ScriptedServer) -> None:
    source = corpus(tmp_path / "c.jsonl", 12)
    down = {"until": 0.0}

    def handler(request: dict[str, Any]) -> Action:
        if title_of(request) == "d005" and not down["until"]:
            down["until"] = time.monotonic() + 3
        return Status(503) if time.monotonic() < down["until"] else play(request)

    scripted_llm.script(handler)
    # One call at a time, so that a call has no more than its own tries during the outage.
    done = index(scripted_llm, source, tmp_path / "index", "indexing.call_attempts=10", "llm.max_concurrency=2")
    assert (done.documents, done.failed, done.llm_calls >= 12) == (12, 0, True)


def test_a_budget_is_never_exceeded_and_the_rest_is_done_later(tmp_path: Path, scripted_llm: ScriptedServer) -> None:
    source, place = corpus(tmp_path / "c.jsonl", 20), tmp_path / "index"
    scripted_llm.script(play)
    budget = 8_000
    with pytest.raises(BudgetError, match=r"does not allow another call: .* of indexing.max_llm_tokens = 8,000"):
        index(scripted_llm, source, place, f"indexing.max_llm_tokens={budget}")
    paid = titles(scripted_llm)
    assert 0 < len(paid) < 20
    used = [Reply(play(seen.body).text).counts(seen.body) for seen in scripted_llm.chats]  # type: ignore[union-attr]
    assert sum(prompt + output for prompt, output in filter(None, used)) <= budget
    scripted_llm.seen.clear()
    done = index(scripted_llm, source, place)
    assert set(titles(scripted_llm)) == {f"d{n:03}" for n in range(20)} - set(paid)
    assert done.resumed == len(paid)


def test_refusals_lower_the_number_of_calls_in_flight(tmp_path: Path, scripted_llm: ScriptedServer) -> None:
    """A server that takes three calls at once and refuses others: all documents come through."""
    refused = itertools.count()

    def handler(request: dict[str, Any]) -> Action:
        if scripted_llm.in_flight > 3:
            next(refused)
            return Status(429, headers={"Retry-After": "0.2"})
        return play(request)

    scripted_llm.script(handler)
    scripted_llm.latency_s = 0.3
    done = index(scripted_llm, corpus(tmp_path / "c.jsonl", 40), tmp_path / "index", "llm.max_retries=2")
    assert (done.documents, done.failed, done.rejects) == (40, 0, {})
    assert next(refused) > 0
    late = [seen for seen in scripted_llm.chats[-20:] if seen.outcome == "done"]
    assert len(late) == 20
