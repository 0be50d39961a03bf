"""The resin strategy: plan, one search per need, pack, select, compose (RESIN sections 3.5 and 3.6).

The question's own search runs while it is planned: two model calls stand before the first word, and little else.

Hop answers are for the audit trail: they run beside composition and are never shown to the composer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from resin_core.llm.protocol import Deadline
from resin_core.llm.streams import closing
from resin_core.online.derivation import has_numbers, needs_numbers
from resin_core.online.packing import Packed, pack, within
from resin_core.online.planner import single_hop
from resin_core.records import (
    Answer,
    Candidate,
    EvidenceItem,
    Hop,
    PoolItem,
    QueryPlan,
    SourcePassage,
    UnitKind,
)
from resin_core.strategies.ports import Composed, Composer, Event, Planner, Retrieved, Retriever, Selected, Solved
from resin_core.strategies.recorder import Recorder

NAME = "resin"
NO_EVIDENCE = "The index holds no evidence for this question."
_NUMERIC_MODES = ("calculation",)


class Ports(NamedTuple):
    """What the strategy runs on."""

    planner: Planner
    retriever: Retriever
    composer: Composer


class ResinRun(NamedTuple):
    """Settings of one run; every ablation of the paper is one of them."""

    top_k: int
    max_hops: int
    kinds: tuple[UnitKind, ...]
    evidence_tokens: int
    min_share: float
    decompose: bool
    include_question: bool
    select: str
    hop_solvers: bool
    derivation: str
    passage_budget: int | None = None


async def answer(
    question: str, ports: Ports, run: ResinRun, recorder: Recorder, deadline: Deadline
) -> AsyncIterator[Event]:
    """Events plan, candidates, evidence, token..., answer, done. Raises LLMError kinds and DeadlineError."""
    early = _search_early(question, ports.retriever, run, deadline)
    try:
        plan = await _plan(question, ports.planner, run, recorder, deadline)
        yield Event(kind="plan", data=plan.model_dump(mode="json"))
        started = recorder.now_s()
        retrieved = await _retrieve(question, plan, early, ports.retriever, run, deadline)
    finally:
        if early is not None:
            early.cancel()
            await asyncio.gather(early, return_exceptions=True)
    packed = pack(retrieved.candidates, retrieved.passages, run.evidence_tokens, run.min_share, run.passage_budget)
    hops = _hop_rows(plan, retrieved.candidates)
    # With the sentences of each passage: what was found and not packed must be told from what was never found.
    pool = [_pool(source) | {"sentence_ids": list(source.passage.sentence_ids)} for source in packed.pool]
    recorder.add("retrieve", started, {"hops": hops, "pool": pool})
    yield Event(kind="candidates", data={"hops": hops})

    selected = await _select(question, packed, ports.composer, run, recorder, deadline)
    evidence = [_evidence(source) for source in selected.passages]
    yield Event(kind="evidence", data={"reason": selected.reason, "passages": evidence})

    solvers = _start_solvers(plan, retrieved.candidates, ports.composer, run, deadline)
    try:
        started = recorder.now_s()
        composed = Composed(text=NO_EVIDENCE, citations=())
        if selected.passages:
            derive = _derives(question, plan, selected.passages, run.derivation)
            pieces = ports.composer.compose(question, selected.passages, derive, deadline)
            written: list[str] = []
            try:
                async with closing(pieces) as stream:
                    async for piece in stream:
                        if isinstance(piece, Composed):
                            composed = piece
                        else:
                            recorder.timings_s.setdefault("first_token", round(recorder.now_s(), 4))
                            written.append(piece)
                            yield Event(kind="token", text=piece)
            except Exception as error:
                # The trace of a question that failed says how far its answer came.
                failure = f"{type(error).__name__}: {error}"
                recorder.add("compose", started, {"answer": "".join(written)}, failure=failure)
                raise
        data = {"answer": composed.text, "derivation": composed.derivation}
        recorder.add("compose", started, data, composed.calls)
        recorder.timings_s["total"] = round(recorder.now_s(), 4)
        yield Event(kind="answer", answer=_answer(question, composed, selected, packed, recorder))
        for solved in await asyncio.gather(*solvers):
            # The start is the composition's: that is when the solvers were let go.
            recorder.add("solve", started, solved.model_dump(include={"hop", "answer", "unit_ids"}), solved.calls)
    finally:
        for task in solvers:
            task.cancel()
        await asyncio.gather(*solvers, return_exceptions=True)
    yield Event(kind="done", data={"usage": recorder.usage.model_dump(), "trace_id": recorder.trace_id})


def _search_early(
    question: str, retriever: Retriever, run: ResinRun, deadline: Deadline
) -> asyncio.Task[Retrieved] | None:
    """The search for the question itself, while it is planned; None when no plan would take it in."""
    if not (run.decompose and run.include_question):
        return None
    return asyncio.ensure_future(retriever.search([question], run.kinds, run.top_k, deadline))


async def _retrieve(
    question: str,
    plan: QueryPlan,
    early: asyncio.Task[Retrieved] | None,
    retriever: Retriever,
    run: ResinRun,
    deadline: Deadline,
) -> Retrieved:
    """A row of candidates a hop; hops that the early search has answered are not searched again."""
    queries = [hop.query for hop in plan.hops]
    if early is None or question not in queries:
        return await retriever.search(queries, run.kinds, run.top_k, deadline)
    others = [query for query in queries if query != question]
    found = Retrieved(candidates=(), passages={})
    if others:
        found = await retriever.search(others, run.kinds, run.top_k, deadline)
    asked = await early
    rows = iter(found.candidates)
    return Retrieved(
        candidates=tuple(asked.candidates[0] if query == question else next(rows) for query in queries),
        passages=found.passages | asked.passages,
    )


async def _plan(question: str, planner: Planner, run: ResinRun, recorder: Recorder, deadline: Deadline) -> QueryPlan:
    started = recorder.now_s()
    if not run.decompose:
        plan = single_hop(question)
        recorder.add("plan", started, {**plan.model_dump(mode="json"), "decompose": False})
        return plan
    planned = await planner.plan(question, run.max_hops, deadline)
    plan = planned.plan
    if run.include_question and not plan.fallback and len(plan.hops) < run.max_hops:
        # Ours: what the plan's wording lost, the question still finds; it takes a hop that the plan left free.
        plan = plan.model_copy(update={"hops": (*plan.hops, Hop(subquestion=question, reasoning_type="question"))})
    recorder.add("plan", started, plan.model_dump(mode="json"), planned.calls)
    return plan


async def _select(
    question: str, packed: Packed, composer: Composer, run: ResinRun, recorder: Recorder, deadline: Deadline
) -> Selected:
    started = recorder.now_s()
    if run.select == "never" or not packed.fitting:
        selected = Selected(passages=packed.fitting, reason="not asked for")
    elif run.select == "auto" and packed.all_fit:
        selected = Selected(passages=packed.fitting, reason="all fit")
    else:
        # The choice is among what was packed; passages that found no room could not be composed from anyway.
        selected = await composer.select(question, packed.fitting, run.evidence_tokens, deadline)
        if not selected.passages:
            selected = selected.model_copy(update={"passages": within(packed.fitting, run.evidence_tokens)})
    kept = {source.passage.passage_id for source in selected.passages}
    strong = {source.passage.passage_id for source in packed.strong}
    fitting = {source.passage.passage_id for source in packed.fitting}
    data = {
        "reason": selected.reason,
        "kept": [_evidence(source) for source in selected.passages],
        "weak": [s.passage.passage_id for s in packed.pool if s.passage.passage_id not in strong],
        "no_room": [s.passage.passage_id for s in packed.strong if s.passage.passage_id not in fitting],
        "shortened": [s.passage.passage_id for s in packed.fitting if s not in packed.pool],
        "not_chosen": [s.passage.passage_id for s in packed.fitting if s.passage.passage_id not in kept],
    }
    recorder.add("select", started, data, selected.calls)
    return selected


def _derives(question: str, plan: QueryPlan, evidence: Sequence[SourcePassage], setting: str) -> bool:
    """Whether sums or comparisons can matter: else they would be paid for in vain."""
    if setting != "auto":
        return setting == "always"
    wanted = plan.reasoning_mode in _NUMERIC_MODES or needs_numbers(question)
    return wanted and any(has_numbers(source.passage.text) for source in evidence)


def _start_solvers(
    plan: QueryPlan,
    candidates: Sequence[Sequence[Candidate]],
    composer: Composer,
    run: ResinRun,
    deadline: Deadline,
) -> list[asyncio.Task[Solved]]:
    if not run.hop_solvers:
        return []
    return [
        asyncio.create_task(composer.solve(number, hop, row, deadline))
        for number, (hop, row) in enumerate(zip(plan.hops, candidates, strict=True), start=1)
    ]


def _hop_rows(plan: QueryPlan, candidates: Sequence[Sequence[Candidate]]) -> list[dict[str, Any]]:
    return [
        {
            "hop": number,
            "subquestion": hop.subquestion,
            "query": hop.query,
            "candidates": [
                {
                    "unit_id": candidate.unit.unit_id,
                    "passage_id": candidate.unit.passage_id,
                    "doc_id": candidate.unit.doc_id,
                    "sentence_ids": list(candidate.unit.sentence_ids),
                    "text": candidate.unit.retrieval_text,
                    "score": round(candidate.score, 4),
                    "rank": candidate.rank,
                }
                for candidate in row
            ],
        }
        for number, (hop, row) in enumerate(zip(plan.hops, candidates, strict=True), start=1)
    ]


def _evidence(source: SourcePassage) -> dict[str, Any]:
    return EvidenceItem(
        passage_id=source.passage.passage_id,
        doc_id=source.passage.doc_id,
        sentence_ids=tuple(sentence.sentence_id for sentence in source.sentences),
        hops=source.hops,
    ).model_dump(mode="json")


def _pool(source: SourcePassage) -> dict[str, Any]:
    return PoolItem(
        passage_id=source.passage.passage_id, doc_id=source.passage.doc_id, score=round(source.score, 4)
    ).model_dump(mode="json")


def _answer(question: str, composed: Composed, selected: Selected, packed: Packed, recorder: Recorder) -> Answer:
    return Answer(
        question=question,
        answer=composed.text,
        citations=composed.citations,
        evidence=tuple(EvidenceItem.model_validate(_evidence(source)) for source in selected.passages),
        pool=tuple(PoolItem.model_validate(_pool(source)) for source in packed.pool),
        strategy=recorder.strategy,
        generation=recorder.generation,
        trace_id=recorder.trace_id,
        usage=recorder.usage,
        timings_s=dict(recorder.timings_s),
    )
