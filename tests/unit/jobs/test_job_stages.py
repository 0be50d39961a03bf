from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from jobs import former, rows, stages
from jobs.extraction import Extractor
from jobs.orders import ActorReport, Orders
from jobs.work import WorkFolder
from resin_core.config.sections import IndexingSection, LLMSection
from resin_core.errors import StoreError
from resin_core.indexing.document import Indexed
from resin_core.indexing.keys import document_key
from resin_core.llm.build import OpenChatModel
from resin_core.llm.ledger import LedgerModel
from resin_core.readers.rejects import ReadDocument
from tests import scripted_llm
from tests.scripted_llm import Action, FakeChatModel, Hang, Status

Make = Callable[..., Indexed]
GO = Orders(limit=4, allowance=float("inf"))
GOOD = scripted_llm.Reply(json.dumps({"units": {}, "passages": []}), usage=(20, 5))


class Endpoint(LedgerModel):
    """A scripted model with what the extractor asks of the whole stack; answers by the document's title."""

    in_use = waiting = overloads = 0

    def __init__(self, **by_title: Action) -> None:
        self.fake = FakeChatModel(lambda request: by_title[title_of(request["messages"][-1]["content"])])
        super().__init__(self.fake)
        self.limits: list[int] = []

    def resize(self, limit: int) -> None:
        self.limits.append(limit)

    async def models(self, timeout_s: float) -> list[Any]:
        return []

    @property
    def asked(self) -> list[str]:
        return [title_of(request.messages[-1].content) for request in self.fake.requests]


class Heard:
    """A watch that gives the same orders to every report."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.reports: list[ActorReport] = []
        self.report = SimpleNamespace(remote=self._report)

    async def _report(self, report: ActorReport) -> Orders:
        self.reports.append(report)
        return self.orders


def title_of(content: str) -> str:
    return content.partition("\n")[0].removeprefix("title: ")


def staged(*found: Indexed) -> pa.Table:
    documents = [one.document for one in found]
    table = rows.staged([ReadDocument(document=one, place="p") for one in documents], [*map(document_key, documents)])
    folder = cast(Any, None)
    return former.attach(folder, None, table.drop_columns(["place"]), former.nothing())


def extract(
    work: WorkFolder, model: Endpoint, orders: Orders | None = None, heard: Heard | None = None, **settings: Any
) -> stages.Extract:
    chosen, llm = IndexingSection(repair_attempts=0, **settings), LLMSection(model="scripted", base_url="http://x/v1")
    watch = heard or Heard(orders or GO)
    stage = stages.Extract(work, llm, chosen, watch)
    stage._extractor = Extractor(llm, chosen, work.replies, watch, cast(OpenChatModel, model))
    return stage


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    return WorkFolder(tmp_path, "run", "results")


async def test_a_document_is_paid_for_once(work: WorkFolder, indexed: Make) -> None:
    model = Endpoint(a=GOOD, b=GOOD, c=GOOD)
    one, two, three = (indexed(name, title=name) for name in "abc")
    first = await extract(work, model)(staged(one, two))
    assert first.column("resumed").to_pylist() == [0, 0]
    assert first.column("prompt_tokens").to_pylist() == [20, 20]
    again = await extract(work, model)(staged(two, three))
    assert again.column("resumed").to_pylist() == [1, 0]
    assert again.column("llm_calls").to_pylist() == [0, 1]
    documents = rows.flat(again, "documents")
    assert documents.column("doc_id").to_pylist() == ["b", "c"]
    assert documents.column("extraction").to_pylist() == ["results", "results"]
    assert len(model.asked) == 3


async def test_a_call_that_is_given_up_is_a_reject_and_the_others_go_on(work: WorkFolder, indexed: Make) -> None:
    model = Endpoint(a=GOOD, b=Status(400), c=GOOD)
    batch = staged(*(indexed(name, title=name) for name in "abc"))
    found = await asyncio.wait_for(extract(work, model)(batch), 20)
    assert found.column("failed").to_pylist() == [0, 1, 0]
    rejects = rows.flat(found, "rejects")
    assert rejects.column("reason").to_pylist() == ["llm-http-400"]
    assert rejects.column("doc_id").to_pylist() == ["b"]


async def test_a_reply_that_cannot_be_kept_ends_the_stage(work: WorkFolder, indexed: Make, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("in the way")
    model = Endpoint(a=GOOD, b=Hang())
    with pytest.raises(StoreError, match="cannot write"):
        await asyncio.wait_for(extract(work, model)(staged(indexed("a", title="a"), indexed("b", title="b"))), 20)


async def begun(model: Endpoint, calls: int) -> None:
    async with asyncio.timeout(20):
        while len(model.asked) < calls:  # noqa: ASYNC110 - the model under test tells nobody
            await asyncio.sleep(0.01)


async def test_orders_to_stop_leave_documents_out_and_let_calls_in_flight_end(work: WorkFolder, indexed: Make) -> None:
    slow = scripted_llm.Reply(GOOD.text, latency_s=1.5, usage=(20, 5))
    model, watch = Endpoint(a=slow, b=GOOD), Heard(GO)
    stage = extract(work, model, heard=watch)
    running = asyncio.create_task(stage(staged(indexed("a", title="a"))))
    await begun(model, 1)
    watch.orders = Orders(limit=4, allowance=float("inf"), stop="told")
    await asyncio.sleep(0.8)
    late = await stage(staged(indexed("b", title="b")))
    assert late.num_rows == 0
    assert late.schema.equals(rows.no_row().schema)
    assert (await running).num_rows == 1
    assert model.asked == ["a"]


async def test_a_model_that_is_lost_is_not_waited_for(work: WorkFolder, indexed: Make) -> None:
    model = Endpoint(a=Hang())
    stage = extract(work, model, Orders(limit=4, allowance=float("inf"), stop="endpoint"))
    found = await asyncio.wait_for(stage(staged(indexed("a", title="a"))), 20)
    assert found.num_rows == 0


async def test_without_an_allowance_nothing_is_asked(work: WorkFolder, indexed: Make) -> None:
    model = Endpoint(a=GOOD)
    stage = extract(work, model, Orders(limit=4, allowance=0.0, stop="budget"), max_llm_tokens=100)
    found = await asyncio.wait_for(stage(staged(indexed("a", title="a"))), 20)
    assert (found.num_rows, model.asked) == (0, [])


async def test_a_stage_given_up_ends_its_calls(work: WorkFolder, indexed: Make) -> None:
    model = Endpoint(a=Hang(), b=Hang())
    running = asyncio.create_task(extract(work, model)(staged(indexed("a", title="a"), indexed("b", title="b"))))
    await begun(model, 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert model.total.errors == {"cancelled": 2}
