"""The resin strategy over its real ports and a scripted model; what the model is asked is read from its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from resin_core.config.sections import LLMSection
from resin_core.errors import DeadlineError, LLMError, LLMServerError, LLMTimeoutError, LLMUnavailableError
from resin_core.llm.client import OpenAIChatModel
from resin_core.llm.protocol import ChatModel, Deadline
from resin_core.llm.streams import closing
from resin_core.online.composer import LLMComposer
from resin_core.online.packing import tokens
from resin_core.online.planner import LLMPlanner
from resin_core.prompts import compose
from resin_core.records import UnitKind, Usage
from resin_core.strategies import resin
from resin_core.strategies.recorder import Recorder
from resin_core.strategies.resin import NO_EVIDENCE, Ports
from tests.asking import (
    ALBA,
    BRIO,
    QUESTION,
    ROWS,
    RUN,
    SHOP,
    UNIT_TEXT,
    Found,
    Watched,
    asked,
    playing,
    start,
    task_of,
)  # fmt: skip
from tests.evidence import candidate, raising, row, source
from tests.scripted_llm import FakeChatModel, Hang, Reply, Reset, ScriptedServer, Status


@pytest.fixture(params=["fake", "http"])
async def model(request: pytest.FixtureRequest, scripted_llm: ScriptedServer) -> AsyncIterator[ChatModel]:
    if request.param == "fake":
        yield FakeChatModel(playing())
        return
    scripted_llm.script(playing())
    client = OpenAIChatModel(LLMSection(model="scripted"), scripted_llm.base_url)
    yield client
    await client.aclose()


async def test_a_question_from_plan_to_done(model: ChatModel) -> None:
    found = await asked(model, derivation="always", select="always", hop_solvers=True)
    assert found.kinds() == ["plan", "candidates", "evidence", "token", "answer", "done"]
    answer = found.answer
    assert answer.answer == "The Alba is cheaper by $3 [1]."
    assert "".join(event.text for event in found.events) == answer.answer
    assert [(c.number, c.text, c.title) for c in answer.citations] == [(1, "The Alba lamp costs $12.", "Alba lamp")]
    assert [item.doc_id for item in answer.evidence] == ["alba", "brio"]
    assert [item.doc_id for item in answer.pool] == ["alba", "brio", "shop"]
    assert (answer.generation, answer.strategy, answer.question) == ("g1", "resin", QUESTION)
    assert answer.usage == Usage(llm_calls=4, prompt_tokens=400, completion_tokens=40)
    assert found.events[-1].data == {
        "usage": {"llm_calls": 6, "prompt_tokens": 600, "completion_tokens": 60}, "trace_id": answer.trace_id,
    }  # fmt: skip
    assert {"first_token", "total", "plan", "retrieve", "select", "compose"} <= answer.timings_s.keys()


@pytest.mark.parametrize(
    ("run", "tasks"),
    [
        ({}, ["plan", "answer"]),
        ({"derivation": "always"}, ["plan", "values", "answer"]),
        ({"derivation": "auto"}, ["plan", "values", "answer"]),
        ({"select": "always"}, ["plan", "select", "answer"]),
        ({"select": "always", "derivation": "always"}, ["plan", "select", "values", "answer"]),
        ({"select": "never", "evidence_tokens": 50}, ["plan", "answer"]),
        ({"select": "auto", "evidence_tokens": 50}, ["plan", "select", "answer"]),
        ({"decompose": False}, ["answer"]),
    ],
)
async def test_calls_and_their_order(run: dict[str, Any], tasks: list[str]) -> None:
    found = await asked(**run)
    assert found.tasks == tasks
    # All that was asked of the model is in the account.
    usage = Usage(llm_calls=len(tasks), prompt_tokens=100 * len(tasks), completion_tokens=10 * len(tasks))
    assert found.recorder.usage == usage
    assert found.events[-1].data["usage"] == usage.model_dump()
    calls = [event for event in found.recorder.trace().events if event.stage.endswith(".call")]
    assert len(calls) == len(tasks)
    assert all(call.prompt_id and call.model and call.usage.llm_calls == 1 for call in calls)


@pytest.mark.parametrize(
    ("mode", "derives"), [("calculation", True), ("lookup", False), ("comparison", False), ("", False)]
)
async def test_values_are_worked_out_when_plan_or_question_need_numbers(mode: str, derives: bool) -> None:
    recorder = Recorder("Tell me of the lamps.", "resin", "g1")
    model = FakeChatModel(playing(plan=json.dumps({"hops": ["Lamps?"], "mode": mode})))
    ports = Ports(LLMPlanner(model), Found(*ROWS), LLMComposer(model))
    run = RUN._replace(derivation="auto")
    _ = [e async for e in resin.answer("Tell me of the lamps.", ports, run, recorder, Deadline.after(30))]
    assert ("values" in [task_of(request.messages) for request in model.requests]) is derives


async def test_without_numbers_in_the_evidence_there_is_nothing_to_work_out() -> None:
    plain = source("plain", "The Alba lamp is cheaper.")
    found = await asked(retriever=Found(row(plain), row(plain), sources=[plain]), derivation="auto")
    assert found.tasks == ["plan", "answer"]


async def test_the_composer_sees_the_question_and_the_sources_and_nothing_else() -> None:
    found = await asked(derivation="always", select="always", hop_solvers=True)
    evidence = [ALBA, BRIO]
    requests = {task_of(request.messages): request for request in found.model.requests}
    assert requests["values"].messages == compose.values_messages(QUESTION, evidence)
    for task in ("values", "answer"):
        for hidden in ("Hop one", "Hop two", "target", "bridge word", "a hop answer", UNIT_TEXT, "amount"):
            assert not any(hidden in message.content for message in requests[task].messages), (task, hidden)
    assert found.stage("compose")[0]["derivation"]["worked"] in requests["answer"].messages[-1].content
    plain = await asked()
    assert plain.model.requests[-1].messages == compose.answer_messages(QUESTION, [ALBA, BRIO, SHOP])


async def test_each_hop_is_one_query_of_one_search() -> None:
    found = await asked(kinds=(UnitKind.RULE,), top_k=3)
    queries = ["Hop one asks the Alba price? Alba target bridge word", "Hop two asks the Brio price? Brio target"]
    assert found.retriever.asked == [(queries, (UnitKind.RULE,), 3)]
    single = await asked(decompose=False)
    assert single.retriever.asked == [([QUESTION], (), 5)]
    assert single.stage("plan")[0]["decompose"] is False
    bounded = await asked(max_hops=1)
    assert len(bounded.retriever.asked[0][0]) == 1


@pytest.mark.parametrize(
    ("action", "calls"), [("no plan", 2), ('{"hops": [" | x"]}', 1), (raising(LLMTimeoutError("slow")), 1)]
)
async def test_a_plan_that_fails_becomes_the_question(action: Any, calls: int) -> None:
    found = await asked(instead={"plan": action})
    assert found.retriever.asked[0][0] == [QUESTION]
    assert found.events[0].data["fallback"]
    assert found.stage("plan")[0]["fallback"]
    assert found.tasks == ["plan"] * calls + ["answer"]
    assert found.answer.answer


@pytest.mark.parametrize("action", ["none", raising(LLMTimeoutError("slow")), '{"keep": []}'])
async def test_a_selection_that_fails_keeps_all_that_fits(action: Any) -> None:
    found = await asked(instead={"select": action}, select="always")
    assert [item.doc_id for item in found.answer.evidence] == ["alba", "brio", "shop"]
    assert found.stage("select")[0]["not_chosen"] == []


async def test_hop_answers_come_beside_the_composition_and_only_into_the_trace() -> None:
    model = Watched(playing(), gated=["solve"])
    events, recorder = start(model, Found(*ROWS), hop_solvers=True)
    seen = []
    async for event in events:
        seen.append(event)
        if event.kind == "answer":
            # Both have begun, neither has ended, and the answer is there.
            assert model.begun.count("solve") == 2
            assert "solve" not in model.ended
            model.gate.set()
    assert [event.kind for event in seen][-2:] == ["answer", "done"]
    solves = [event.data for event in recorder.trace().events if event.stage == "solve"]
    assert solves == [
        {"hop": n, "answer": "a hop answer", "unit_ids": (hop[0].unit.unit_id,)} for n, hop in enumerate(ROWS, start=1)
    ]
    assert "a hop answer" not in "".join(event.model_dump_json() for event in seen)


@pytest.mark.parametrize("action", ["none", Reset(), Status(500), raising(DeadlineError("passed"))])
async def test_a_hop_solver_that_fails_fails_nothing_else(action: Any) -> None:
    found = await asked(instead={"solve": action}, hop_solvers=True)
    assert found.kinds()[-2:] == ["answer", "done"]
    calls = [event for event in found.recorder.trace().events if event.stage == "solve.call"]
    assert [bool(call.failure) for call in calls] == [True, True]


@pytest.mark.parametrize(("rows", "budget"), [(([], []), 500), (ROWS, 3)])
async def test_without_evidence_nothing_is_composed(rows: Any, budget: int) -> None:
    found = await asked(retriever=Found(*rows), evidence_tokens=budget, select="always", derivation="always")
    assert found.tasks == ["plan"]
    assert (found.answer.answer, found.answer.citations, found.answer.evidence) == (NO_EVIDENCE, (), ())
    assert len(found.answer.pool) == (3 if rows is ROWS else 0)
    assert found.kinds() == ["plan", "candidates", "evidence", "answer", "done"]


async def test_the_trace_says_where_evidence_was_lost() -> None:
    long = source("long", "word " * 60 + "end.", title="Long")
    both = source("both", "The Cato lamp costs $40.", "word " * 60 + "end.", title="Both")
    faint = source("faint", "The Dora lamp costs $90.", title="Faint")
    hop = [
        candidate(of, 1, rank=rank, score=score)
        for rank, (of, score) in enumerate([(ALBA, 0.9), (BRIO, 0.8), (long, 0.7), (both, 0.6), (faint, 0.1)], start=1)
    ]
    budget = tokens(ALBA) + tokens(BRIO) + 30
    found = await asked(
        retriever=Found(hop, sources=[ALBA, BRIO, long, both, faint]), instead={"select": '{"keep": [2, 3]}'},
        evidence_tokens=budget, min_share=0.5, decompose=False,
    )  # fmt: skip
    ids = {of.passage.doc_id: of.passage.passage_id for of in (ALBA, BRIO, long, both, faint)}
    (lost,) = found.stage("select")
    assert (lost["weak"], lost["no_room"]) == ([ids["faint"]], [ids["long"]])
    assert (lost["shortened"], lost["not_chosen"]) == ([ids["both"]], [ids["alba"]])
    assert [(item["passage_id"], item["sentence_ids"]) for item in lost["kept"]] == [
        (ids["brio"], ["brio#s1"]), (ids["both"], ["both#s1"]),
    ]  # fmt: skip
    (retrieve,) = found.stage("retrieve")
    assert {item["passage_id"] for item in retrieve["pool"]} == set(ids.values())
    assert [c["unit_id"] for c in retrieve["hops"][0]["candidates"]] == [c.unit.unit_id for c in hop]
    assert retrieve["hops"][0]["query"] == QUESTION
    assert found.stage("compose")[0]["answer"] == found.answer.answer
    stages = [event.stage for event in found.recorder.trace().events if "." not in event.stage]
    assert stages == ["plan", "retrieve", "select", "compose"]


@pytest.mark.parametrize("task", ["plan", "select", "values", "answer", "solve"])
async def test_a_question_given_up_ends_the_call_under_way(task: str) -> None:
    hang = Hang(pieces=2) if task == "answer" else Hang()
    model = Watched(playing(**{task: hang}))
    events, _ = start(model, Found(*ROWS), select="always", derivation="always", hop_solvers=task == "solve")

    async def consume() -> None:
        async for event in events:
            model.steps.put_nowait(f"event {event.kind}")

    consumer = asyncio.create_task(consume())
    # Solvers run beside the composition, and are waited for after it.
    while await model.steps.get() != ("event answer" if task == "solve" else task):
        pass
    await asyncio.sleep(0.02)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert model.cut == [task] * (2 if task == "solve" else 1)


async def test_a_reader_that_leaves_early_ends_composition_and_solvers() -> None:
    model = Watched(playing(answer=Hang(pieces=3)), gated=["solve"])
    events, _ = start(model, Found(*ROWS), hop_solvers=True)
    async with closing(events) as stream:
        async for event in stream:
            if event.kind == "token":
                break
    assert sorted(model.cut) == ["answer", "solve", "solve"]


@pytest.mark.parametrize("task", ["plan", "select", "values", "answer"])
@pytest.mark.parametrize(("action", "kind"), [(Reset(), LLMUnavailableError), (Status(500), LLMServerError)])
async def test_an_endpoint_that_goes_down_ends_the_question(task: str, action: Any, kind: type[LLMError]) -> None:
    model = Watched(playing(**{task: action}), gated=["solve"])
    events, _ = start(model, Found(*ROWS), select="always", derivation="always", hop_solvers=True)
    seen = []
    with pytest.raises(kind):
        async for event in events:
            seen.append(event.kind)
    assert "answer" not in seen
    assert set(model.cut) <= {"solve"}
    assert model.begun.count("solve") == model.cut.count("solve")


@pytest.mark.parametrize(
    ("action", "kind", "written"),
    [
        (Reset(pieces=3), LLMUnavailableError, "some words before"),
        (Status(500), LLMServerError, ""),
        (raising(DeadlineError("too late")), DeadlineError, ""),
        (raising(RuntimeError("a defect")), RuntimeError, ""),
    ],
)
async def test_a_composition_that_fails_leaves_its_mark_in_the_trace(
    action: Any, kind: type[Exception], written: str
) -> None:
    events, recorder = start(FakeChatModel(playing(answer=action)), Found(*ROWS))
    with pytest.raises(kind) as caught:
        async for _ in events:
            pass
    last = recorder.trace().events[-1]
    assert (last.stage, last.data) == ("compose", {"answer": written})
    assert last.failure == f"{kind.__name__}: {caught.value}"
    assert not any(event.failure for event in recorder.trace().events[:-1])


async def test_an_answer_cut_at_the_token_limit_is_marked_in_the_trace() -> None:
    found = await asked(instead={"answer": Reply("The Alba is cheaper by", finish_reason="length", usage=(100, 10))})
    failures = {event.stage: event.failure for event in found.recorder.trace().events}
    assert failures["compose.call"] == "cut at the token limit"
    assert failures["compose"] == ""


@pytest.mark.parametrize("task", ["plan", "select", "values", "answer"])
async def test_one_deadline_holds_for_all_calls(task: str) -> None:
    events, _ = start(FakeChatModel(playing(**{task: Hang()})), Found(*ROWS), 0.2, select="always", derivation="always")
    with pytest.raises(DeadlineError):
        async for _ in events:
            pass
