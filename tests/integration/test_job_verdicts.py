"""Extraction and watch together, over HTTP and without Ray: what stops a run, its words, and what is paid by then."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs import extraction
from jobs.extraction import Extractor
from jobs.orders import ActorReport, Orders, Verdict
from jobs.watch import Watch
from resin_core.errors import LLMRequestError, StoppedError
from resin_core.ids import content_hash
from resin_core.llm.build import OpenChatModel, open_chat_model
from resin_core.records import Document
from resin_core.store.filesystem import IndexFolder
from resin_core.store.replies import ReplyFolder
from tests.integration.indexing_runs import config_for, text_of
from tests.scripted_llm import Action, Hang, Reply, ScriptedServer, Status
from tests.scripted_llm.indexing_replies import play, title_of


class Handle:
    """A watch as an actor's handle looks from within the extraction."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.report = SimpleNamespace(remote=self._report)

    async def _report(self, report: ActorReport) -> Orders:
        return self._watch.report(report)


def document(name: str, number: int) -> Document:
    text = text_of(number)
    return Document(doc_id=name, title=name, text=text, uri=name, content_hash=content_hash(text))


async def extracted(
    server: ScriptedServer, place: Path, documents: int, monkeypatch: pytest.MonkeyPatch, *settings: str
) -> tuple[Verdict, int]:
    """Extracts d000, d001, ...; why the run stops, and how many documents were finished."""
    monkeypatch.setattr(Watch, "_tell_metrics", lambda self: None)
    config = config_for(server, *settings)
    watch = Watch(config.indexing, config.llm)
    replies = ReplyFolder(IndexFolder.at(place), "results")
    counts = {"documents": 0, "failed": 0, "units": 0}
    async with open_chat_model(config.llm, server.base_url) as model:
        extractor = Extractor(config.llm, config.indexing, replies, Handle(watch), model)

        async def one(number: int) -> None:
            if extractor.stopped:
                return
            try:
                found, _ = await extractor.index(document(f"d{number:03}", number), None)
            except (StoppedError, LLMRequestError):
                return
            counts["documents"] += 1
            counts["units"] += len(found.units)
            counts["failed"] += any(reject.reason.startswith("llm-") for reject in found.rejects)

        async with asyncio.timeout(50):
            await asyncio.gather(*(one(number) for number in range(documents)))
    return watch.verdict(counts["documents"], counts["failed"], counts["units"]), counts["documents"]


def failing(numbers: range, action: Action) -> Any:
    names = {f"d{number:03}" for number in numbers}
    return lambda request: action if title_of(request) in names else play(request)


async def test_a_refused_key_stops_the_run_at_once(
    tmp_path: Path, scripted_llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_llm.script(Status(401))
    verdict, finished = await extracted(scripted_llm, tmp_path, 30, monkeypatch)
    assert (verdict.stop, finished) == ("fatal", 0)
    assert "HTTP 401" in verdict.message
    assert len(scripted_llm.chats) <= 16, "what was in flight, and no more"


async def test_too_many_failed_documents_stop_the_run_with_first_causes(
    tmp_path: Path, scripted_llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_llm.script(failing(range(0, 200, 2), Status(422)))
    scripted_llm.latency_s = 0.05
    verdict, finished = await extracted(scripted_llm, tmp_path, 200, monkeypatch, "indexing.judge_after=10")
    assert verdict.stop == "failures"
    assert "(indexing.max_error_ratio is 0.2); first causes: d0" in verdict.message
    assert "HTTP 422" in verdict.message
    assert 10 <= finished < 200


async def test_a_run_of_failures_only_is_not_published_however_small(
    tmp_path: Path, scripted_llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_llm.script(Status(422))
    verdict, finished = await extracted(scripted_llm, tmp_path, 3, monkeypatch)
    assert (verdict.stop, finished) == ("failures", 3)
    assert "3 of 3 documents failed" in verdict.message


async def test_no_yield_stops_the_run(
    tmp_path: Path, scripted_llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_llm.script(Reply(json.dumps({"units": {}, "passages": []})))
    scripted_llm.latency_s = 0.1
    verdict, finished = await extracted(scripted_llm, tmp_path, 200, monkeypatch, "indexing.judge_after=8")
    assert verdict.stop == "zero-yield"
    assert "gave not one unit" in verdict.message
    assert 8 <= finished < 200


async def test_money_is_a_budget_too(
    tmp_path: Path, scripted_llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_llm.script(play)
    prices = ("llm.prompt_price=1000000", "llm.completion_price=2000000", "indexing.max_cost=9000")
    verdict, finished = await extracted(scripted_llm, tmp_path, 20, monkeypatch, *prices)
    assert (verdict.stop, 0 < finished < 20) == ("budget", True)
    assert "of indexing.max_cost = 9000" in verdict.message
    used = [Reply(play(seen.body).text).counts(seen.body) for seen in scripted_llm.chats]  # type: ignore[union-attr]
    assert sum(prompt + 2 * output for prompt, output in filter(None, used)) <= 9000


async def test_a_model_that_answers_nothing_at_all_is_found_out(
    tmp_path: Path, scripted_llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "_SILENCE_S", 0.5)
    monkeypatch.setattr(extraction, "_PROBE_S", 0.3)
    scripted_llm.script(Hang())
    scripted_llm.models = Hang()
    verdict, finished = await extracted(scripted_llm, tmp_path, 3, monkeypatch, "indexing.endpoint_down_s=2")
    assert (verdict.stop, finished) == ("endpoint", 0)
    assert "does not answer within 0.3 s" in verdict.message
    await scripted_llm.until(lambda: len([seen for seen in scripted_llm.chats if seen.outcome == "cancelled"]) == 3)


async def test_a_model_that_is_only_slow_is_waited_for(
    tmp_path: Path, scripted_llm: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "_SILENCE_S", 0.2)
    scripted_llm.script(play)
    scripted_llm.latency_s = 4.0
    monkeypatch.setattr(extraction.OpenChatModel, "models", answering)
    verdict, finished = await extracted(scripted_llm, tmp_path, 3, monkeypatch, "indexing.endpoint_down_s=1")
    assert (verdict.stop, finished) == ("", 3)


async def answering(model: OpenChatModel, timeout_s: float | None = None) -> list[Any]:
    """A list of models at once, which the scripted server would delay as it delays the rest."""
    return []
