"""The question's own search runs while it is planned, and changes nothing but the time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from resin_core.errors import StoreError
from resin_core.llm.protocol import Deadline
from resin_core.records import UnitKind
from resin_core.strategies.ports import Retrieved
from tests.asking import ALBA, BRIO, QUESTION, SHOP, Found, Watched, asked, playing, start
from tests.evidence import retrieved, row

BY_QUERY = {
    "Hop one asks the Alba price? Alba target bridge word": row(ALBA),
    "Hop two asks the Brio price? Brio target": row(BRIO, SHOP),
    QUESTION: row(SHOP, ALBA),
}


class ByQuery(Found):
    """Finds for each query its own row. The question's search waits for `gate`, and may fail."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.gate, self.failure = asyncio.Event(), failure
        self.gate.set()
        self.cut = False

    async def search(
        self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int, deadline: Deadline
    ) -> Retrieved:
        self.asked.append((list(queries), kinds, top_k))
        if list(queries) == [QUESTION]:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cut = True
                raise
            if self.failure is not None:
                raise self.failure
        return retrieved(*(BY_QUERY[query] for query in queries), sources=[ALBA, BRIO, SHOP])

    @property
    def queries(self) -> list[list[str]]:
        return [queries for queries, _, _ in self.asked]


async def test_it_has_begun_before_the_plan_is_there_and_is_joined_as_the_last_hop() -> None:
    model, retriever = Watched(playing(), gated=["plan"]), ByQuery()
    events, recorder = start(model, retriever, include_question=True)
    planning = asyncio.create_task(anext(events))
    assert await model.steps.get() == "plan"
    for _ in range(5):
        await asyncio.sleep(0)
    assert retriever.queries == [[QUESTION]]
    model.gate.set()
    await planning
    rest = [event async for event in events]
    hops = list(BY_QUERY)
    assert retriever.queries == [[QUESTION], hops[:2]]
    assert rest[0].kind == "candidates"
    assert [hop["query"] for hop in rest[0].data["hops"]] == hops
    found = [[item["unit_id"] for item in hop["candidates"]] for hop in rest[0].data["hops"]]
    assert found == [[candidate.unit.unit_id for candidate in BY_QUERY[query]] for query in hops]
    (pool,) = [event.data["pool"] for event in recorder.trace().events if event.stage == "retrieve"]
    assert {item["doc_id"] for item in pool} == {"alba", "brio", "shop"}


async def test_a_plan_that_leaves_no_hop_free_does_without_it_even_when_it_failed() -> None:
    retriever = ByQuery(StoreError("gone"))
    found = await asked(retriever=retriever, include_question=True, max_hops=2)
    assert retriever.queries == [[QUESTION], list(BY_QUERY)[:2]]
    assert found.answer.answer


async def test_a_failure_of_it_is_the_questions_where_it_is_needed() -> None:
    with pytest.raises(StoreError, match="gone"):
        await asked(retriever=ByQuery(StoreError("gone")), include_question=True)


async def test_a_plan_that_fell_back_to_the_question_needs_no_other_search() -> None:
    retriever = ByQuery()
    found = await asked(retriever=retriever, instead={"plan": "no plan"}, include_question=True)
    assert retriever.queries == [[QUESTION]]
    assert found.answer.answer


async def test_who_leaves_while_it_is_planned_ends_it() -> None:
    model, retriever = Watched(playing(), gated=["plan"]), ByQuery()
    retriever.gate.clear()
    events, _ = start(model, retriever, include_question=True)
    planning = asyncio.create_task(anext(events))
    assert await model.steps.get() == "plan"
    await asyncio.sleep(0)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    assert (retriever.cut, model.cut) == (True, ["plan"])


async def test_without_it_or_without_a_plan_there_is_one_search() -> None:
    retriever = ByQuery()
    await asked(retriever=retriever, include_question=True, decompose=False)
    assert retriever.queries == [[QUESTION]]
    retriever = ByQuery()
    await asked(retriever=retriever)
    assert retriever.queries == [list(BY_QUERY)[:2]]
