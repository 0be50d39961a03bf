"""The ports of resin_core over deployment handles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from deployments.calling import Calls, HalfWayError
from resin_core.errors import ReplicaError
from resin_core.llm.protocol import Deadline
from resin_core.llm.streams import closing
from resin_core.records import Candidate, Hop, SourcePassage, UnitKind
from resin_core.strategies.ports import Composed, Planned, Retrieved, Selected, Solved

_RESTARTS = 3


class RemotePlanner(NamedTuple):
    """Implements Planner."""

    handle: Any
    calls: Calls

    async def plan(self, question: str, max_hops: int, deadline: Deadline) -> Planned:
        """As the port."""
        planned: Planned = await self.calls.one(self.handle.plan, deadline, question, max_hops, deadline.remaining_s())
        return planned


class RemoteRetriever(NamedTuple):
    """Implements Retriever over one generation, whichever replica answers."""

    handle: Any
    calls: Calls
    index_name: str
    generation: str

    async def search(
        self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int, deadline: Deadline
    ) -> Retrieved:
        """As the port."""
        retrieved: Retrieved = await self.calls.one(
            self.handle.search,
            deadline,
            self.index_name,
            self.generation,
            list(queries),
            tuple(kinds),
            top_k,
            deadline.remaining_s(),
        )
        return retrieved


class RemoteComposer(NamedTuple):
    """Implements Composer. Unless `streaming`, a composition comes as a whole: one message instead of many."""

    handle: Any
    calls: Calls
    streaming: bool

    async def select(
        self, question: str, passages: Sequence[SourcePassage], budget_tokens: int, deadline: Deadline
    ) -> Selected:
        """As the port."""
        selected: Selected = await self.calls.one(
            self.handle.select, deadline, question, list(passages), budget_tokens, deadline.remaining_s()
        )
        return selected

    async def solve(self, number: int, hop: Hop, candidates: Sequence[Candidate], deadline: Deadline) -> Solved:
        """As the port."""
        solved: Solved = await self.calls.one(
            self.handle.solve, deadline, number, hop, list(candidates), deadline.remaining_s()
        )
        return solved

    async def compose(
        self, question: str, evidence: Sequence[SourcePassage], derive: bool, deadline: Deadline
    ) -> AsyncIterator[str | Composed]:
        """As the port. When the replica is lost half-way, the answer is written again and only what is new passed on.

        Raises ReplicaError when what was passed on is not how the answer begins the second time, for it cannot be
        taken back, and when replicas are lost again and again.
        """
        arguments = (question, list(evidence), derive)
        if not self.streaming:
            yield await self.calls.one(self.handle.compose_whole, deadline, *arguments, deadline.remaining_s())
            return
        method = self.handle.options(stream=True).compose
        sent = ""
        for _ in range(1 + _RESTARTS):
            written = ""
            # A replica that is lost before it wrote anything is replaced there.
            stream = self.calls.stream(method, deadline, *arguments, deadline.remaining_s())
            try:
                async with closing(stream) as pieces:
                    async for piece in pieces:
                        whole = isinstance(piece, Composed)
                        written += "" if whole else piece
                        if not (written.startswith(sent) or (sent.startswith(written) and not whole)):
                            raise ReplicaError("a replica was lost half-way, and the answer then came out otherwise")
                        if whole:
                            yield piece
                            return
                        if len(written) > len(sent):
                            new, sent = written[len(sent) :], written
                            yield new
                raise ReplicaError("the composition stopped before its end")
            except HalfWayError as error:
                lost = error
        raise ReplicaError(f"{1 + _RESTARTS} replicas in turn were lost while they wrote the answer") from lost
