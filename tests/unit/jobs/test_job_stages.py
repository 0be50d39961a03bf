from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from jobs import rows, stages
from jobs.work import WorkFolder
from resin_core.config.sections import IndexingSection, LLMSection
from resin_core.errors import LLMError, LLMServerError, LLMUnavailableError
from resin_core.indexing.document import Indexed
from resin_core.indexing.keys import document_key
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.readers.rejects import ReadDocument
from tests import scripted_llm
from tests.scripted_llm import FakeChatModel, Hang, Reset, Status

Make = Callable[..., Indexed]
GOOD = scripted_llm.Reply(json.dumps({"units": {}, "passages": []}), usage=(20, 5))


class Watched(FakeChatModel):
    """Notes the titles of documents whose calls were cut off."""

    def __init__(self, **by_title: Any) -> None:
        super().__init__(lambda request: by_title[title_of(request["messages"][-1]["content"])])
        self.cut: list[str] = []
        self.begun = asyncio.Queue[str]()

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        self.begun.put_nowait(title_of(request.messages[-1].content))
        try:
            return await super().complete(request, deadline)
        except asyncio.CancelledError:
            self.cut.append(title_of(request.messages[-1].content))
            raise


def title_of(content: str) -> str:
    return content.partition("\n")[0].removeprefix("title: ")


def staged(*found: Indexed) -> pa.Table:
    documents = [one.document for one in found]
    table = rows.staged([ReadDocument(document=one, place="p") for one in documents], [*map(document_key, documents)])
    return table.drop_columns(["place"])


def extract(
    work: WorkFolder, model: ChatModel, monkeypatch: pytest.MonkeyPatch, counted: list[int] | None = None
) -> stages.Extract:
    told: list[int] = [] if counted is None else counted
    tally = SimpleNamespace(add=SimpleNamespace(remote=told.append))
    stage = stages.Extract(work, LLMSection(model="scripted"), IndexingSection(repair_attempts=0), tally)
    monkeypatch.setattr(stage, "_open", lambda: model)
    return stage


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    return WorkFolder(tmp_path, "run", "results")


async def test_a_document_is_paid_for_once(work: WorkFolder, indexed: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Watched(a=GOOD, b=GOOD, c=GOOD)
    one, two, three = (indexed(name, title=name) for name in "abc")
    counted: list[int] = []
    first = await extract(work, model, monkeypatch, counted)(staged(one, two))
    assert first.column("resumed").to_pylist() == [0, 0]
    assert first.column("prompt_tokens").to_pylist() == [20, 20]
    again = await extract(work, model, monkeypatch, counted)(staged(two, three))
    assert again.column("resumed").to_pylist() == [1, 0]
    assert again.column("llm_calls").to_pylist() == [0, 1]
    assert rows.flat(again, "documents").column("doc_id").to_pylist() == ["b", "c"]
    assert (len(model.requests), counted) == (3, [0, 0, 0, 0])


@pytest.mark.parametrize(("action", "kind"), [(Reset(), LLMUnavailableError), (Status(503), LLMServerError)])
async def test_when_one_document_fails_the_calls_for_the_others_end(
    work: WorkFolder, indexed: Make, monkeypatch: pytest.MonkeyPatch, action: Any, kind: type[LLMError]
) -> None:
    failing = Watched(a=GOOD, b=Hang(), c=action, d=Hang())
    documents = [indexed(name, title=name) for name in "abcd"]
    # What is done before the failure stays done.
    await extract(work, failing, monkeypatch)(staged(documents[0]))
    with pytest.raises(kind) as caught:
        await asyncio.wait_for(extract(work, failing, monkeypatch)(staged(*documents)), 20)
    assert type(caught.value) is kind
    assert caught.value.__suppress_context__
    begun = {title_of(request.messages[-1].content) for request in failing.requests}
    assert set(failing.cut) == begun - {"a", "c"}
    kept = [name for name, one in zip("abcd", documents, strict=True) if work.kept(document_key(one.document))]
    assert kept == ["a"]


async def test_a_stage_given_up_ends_its_calls(
    work: WorkFolder, indexed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Watched(a=Hang(), b=Hang())
    running = asyncio.create_task(
        extract(work, model, monkeypatch)(staged(indexed("a", title="a"), indexed("b", title="b")))
    )
    for _ in "ab":
        await asyncio.wait_for(model.begun.get(), 20)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(model.cut) == ["a", "b"]
