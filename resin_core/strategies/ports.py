"""The four ports that every strategy runs on; in one process plain objects, under Serve thin adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from resin_core.llm.protocol import Deadline
from resin_core.records import Answer, Candidate, Citation, Hop, QueryPlan, Record, SourcePassage, UnitKind, Usage

Vectors = npt.NDArray[np.float32]


class Call(Record):
    """The account of one model call behind a port's result. `failure` is empty when it went well."""

    prompt_id: str
    model: str
    usage: Usage = Usage()
    seconds: float = 0.0
    failure: str = ""
    raw: str = ""


class Planned(Record):
    """A plan and the calls that made it."""

    plan: QueryPlan
    calls: tuple[Call, ...] = ()


class Retrieved(Record):
    """Candidates per query, best first, and the passages they point to by id."""

    candidates: tuple[tuple[Candidate, ...], ...]
    passages: dict[str, SourcePassage]


class Selected(Record):
    """The chosen passages, in order, and the call behind the choice (none when all fitted)."""

    passages: tuple[SourcePassage, ...]
    reason: str
    calls: tuple[Call, ...] = ()


class Solved(Record):
    """A hop's own answer: audit only, never shown to the composer."""

    hop: int
    answer: str
    unit_ids: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()


class Composed(Record):
    """The finished composition: the answer with numbered references, and what they point to."""

    text: str
    citations: tuple[Citation, ...]
    derivation: dict[str, Any] = Field(default_factory=dict)
    calls: tuple[Call, ...] = ()


class Planner(Protocol):
    """Plans a question."""

    async def plan(self, question: str, max_hops: int, deadline: Deadline) -> Planned:
        """All hops up front; never raises for a bad reply, falls back to the question as one hop."""
        ...


class Retriever(Protocol):
    """Finds units for queries, with their passages."""

    @property
    def generation(self) -> str:
        """The generation every answer of this retriever comes from."""
        ...

    async def search(
        self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int, deadline: Deadline
    ) -> Retrieved:
        """Top `top_k` units per query by cosine; all queries in one batch."""
        ...


class Composer(Protocol):
    """Selects sources and writes the answer."""

    async def select(
        self, question: str, passages: Sequence[SourcePassage], budget_tokens: int, deadline: Deadline
    ) -> Selected:
        """The passages worth composing from, within the budget; all that fit when selection fails."""
        ...

    async def solve(self, number: int, hop: Hop, candidates: Sequence[Candidate], deadline: Deadline) -> Solved:
        """One hop's own answer, for the audit trail."""
        ...

    def compose(
        self, question: str, evidence: Sequence[SourcePassage], derive: bool, deadline: Deadline
    ) -> AsyncIterator[str | Composed]:
        """Pieces of the answer as they are written, then one Composed."""
        ...


class Encoder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """Name stamped into manifests."""
        ...

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """float32 (n, d), L2-normalised rows, in the order given."""
        ...


class Event(Record):
    """What a strategy yields while it works: plan, candidates, evidence, token, answer."""

    kind: str
    data: dict[str, Any] = Field(default_factory=dict)
    text: str = ""
    answer: Answer | None = None
