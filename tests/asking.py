"""A whole question of the resin strategy over a scripted model: its usual replies, and what is watched meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from resin_core.llm.protocol import ChatModel, Deadline, Message, Reply, Request
from resin_core.llm.streams import closing
from resin_core.online.composer import LLMComposer
from resin_core.online.planner import LLMPlanner
from resin_core.prompts import compose, plan, select, solve
from resin_core.records import Answer, Candidate, SourcePassage, UnitKind
from resin_core.strategies import resin
from resin_core.strategies.ports import Event, Retrieved
from resin_core.strategies.recorder import Recorder
from resin_core.strategies.resin import Ports, ResinRun
from tests import scripted_llm
from tests.evidence import candidate, retrieved, source
from tests.scripted_llm import FakeChatModel

QUESTION = "Is the Alba lamp cheaper than the Brio lamp, and by how much?"
ALBA = source("alba", "The Alba lamp costs $12.", title="Alba lamp")
BRIO = source("brio", "The Brio lamp costs $15.", title="Brio lamp")
SHOP = source("shop", "The shop opens at nine.", "It has a very long counter.", title="Shop")
UNIT_TEXT = "unit text of"
ROWS = ([candidate(ALBA, 1, score=0.9, text=f"{UNIT_TEXT} Alba"), candidate(SHOP, 1, rank=2, score=0.6)],
        [candidate(BRIO, 1, score=0.8, text=f"{UNIT_TEXT} Brio")])  # fmt: skip
HOPS = ["Hop one asks the Alba price? | Alba target | bridge word", "Hop two asks the Brio price? | Brio target"]
REPLIES = {
    "plan": json.dumps({"hops": HOPS, "mode": "lookup", "answer": "amount"}),
    "select": '{"keep": [1, 2]}',
    "solve": '{"answer": "a hop answer", "records": [1]}',
    "values": "Alba lamp, price: $12 [1]\nBrio lamp, price: $15 [3]",
    "answer": "The Alba is cheaper by $3 [1][3].",
}
RUN = ResinRun(
    top_k=5,
    max_hops=4,
    kinds=(),
    evidence_tokens=500,
    min_share=0.0,
    decompose=True,
    include_question=False,
    select="auto",
    hop_solvers=False,
    derivation="never",
)
USAGE = (100, 10)
SYSTEMS = {prompt.system: prompt.name for prompt in (plan.PROMPT, select.PROMPT, solve.PROMPT, compose.PROMPT)}


def task_of(messages: Sequence[Message | dict[str, Any]]) -> str:
    """Which of the strategy's calls this is: plan, select, solve, values or answer."""
    contents = [m["content"] if isinstance(m, dict) else m.content for m in messages]
    name = SYSTEMS[contents[0]]
    return contents[-1].rpartition("TASK: ")[2].split()[0] if name == "compose" else name


def playing(**instead: Any) -> Callable[[dict[str, Any]], Any]:
    """The script of a good run, but for what is named."""

    def handler(request: dict[str, Any]) -> Any:
        task = task_of(request["messages"])
        action = instead.get(task, REPLIES[task])
        if callable(action):
            return action(request)
        return scripted_llm.Reply(action, usage=USAGE) if isinstance(action, str) else action

    return handler


class Watched(FakeChatModel):
    """Notes which calls ended and which were cut off; calls of the `gated` tasks wait until `gate` is set.

    `steps` holds the task of each call as it begins.
    """

    def __init__(self, *actions: Any, gated: Sequence[str] = ()) -> None:
        super().__init__(*actions)
        self.gated, self.gate = gated, asyncio.Event()
        self.begun, self.ended, self.cut = list[str](), list[str](), list[str]()
        self.steps = asyncio.Queue[str]()

    def _begins(self, task: str) -> None:
        self.begun.append(task)
        self.steps.put_nowait(task)

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        task = task_of(request.messages)
        self._begins(task)
        try:
            if task in self.gated:
                await self.gate.wait()
            reply = await super().complete(request, deadline)
        except asyncio.CancelledError:
            self.cut.append(task)
            raise
        self.ended.append(task)
        return reply

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        task = task_of(request.messages)
        self._begins(task)
        try:
            async with closing(super().stream(request, deadline)) as pieces:
                async for piece in pieces:
                    yield piece
        except (asyncio.CancelledError, GeneratorExit):
            self.cut.append(task)
            raise
        self.ended.append(task)


class Found:
    """A retriever that has the answer ready, and notes what it was asked."""

    generation = "g1"

    def __init__(self, *rows: Sequence[Candidate], sources: Sequence[SourcePassage] = (ALBA, BRIO, SHOP)) -> None:
        self._rows, self._sources = rows, sources
        self.asked: list[tuple[list[str], Sequence[UnitKind], int]] = []

    async def search(
        self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int, deadline: Deadline
    ) -> Retrieved:
        self.asked.append((list(queries), kinds, top_k))
        return retrieved(*self._rows[: len(queries)], sources=self._sources)


class Asked(NamedTuple):
    events: list[Event]
    recorder: Recorder
    model: Any
    retriever: Found

    @property
    def answer(self) -> Answer:
        (found,) = [event.answer for event in self.events if event.answer]
        return found

    @property
    def tasks(self) -> list[str]:
        return [task_of(request.messages) for request in self.model.requests]

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(event.kind for event in self.events))

    def stage(self, name: str) -> list[dict[str, Any]]:
        return [event.data for event in self.recorder.trace().events if event.stage == name]


def start(model: ChatModel, retriever: Found, deadline_s: float = 30.0, **run: Any) -> tuple[Any, Recorder]:
    recorder = Recorder(QUESTION, "resin", retriever.generation)
    ports = Ports(LLMPlanner(model), retriever, LLMComposer(model))
    events = resin.answer(QUESTION, ports, RUN._replace(**run), recorder, Deadline.after(deadline_s))
    return events, recorder


async def asked(
    model: Any = None, retriever: Found | None = None, instead: dict[str, Any] | None = None, **run: Any
) -> Asked:
    model = model or FakeChatModel(playing(**instead or {}))
    retriever = retriever or Found(*ROWS)
    events, recorder = start(model, retriever, **run)
    return Asked([event async for event in events], recorder, model, retriever)
