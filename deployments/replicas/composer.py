"""Composer replicas: source selection, hop answers for the audit, and the streamed answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from deployments.logs import configure
from deployments.model import RoleModel
from resin_core.config import ResinConfig
from resin_core.llm.protocol import Deadline
from resin_core.llm.streams import closing
from resin_core.online.composer import LLMComposer
from resin_core.records import Candidate, Hop, SourcePassage
from resin_core.strategies.ports import Composed, Selected, Solved


class ComposerReplica:
    """The composer port over the model configured for composing; `left_s` is what is left of the answer's time."""

    async def __init__(self, config: ResinConfig, slots: Any, hosted: Any) -> None:  # type: ignore[misc]  # Serve awaits it
        configure()
        self._model = RoleModel(config, "composer", slots, hosted)
        self._composer = LLMComposer(self._model)
        await self._model.start()

    async def select(
        self, question: str, passages: Sequence[SourcePassage], budget_tokens: int, left_s: float
    ) -> Selected:
        """As the composer port."""
        return await self._composer.select(question, passages, budget_tokens, Deadline.after(left_s))

    async def solve(self, number: int, hop: Hop, candidates: Sequence[Candidate], left_s: float) -> Solved:
        """As the composer port."""
        return await self._composer.solve(number, hop, candidates, Deadline.after(left_s))

    async def compose(
        self, question: str, evidence: Sequence[SourcePassage], derive: bool, left_s: float
    ) -> AsyncIterator[str | Composed]:
        """As the composer port, piece by piece."""
        deadline = Deadline.after(left_s)
        async with closing(self._composer.compose(question, evidence, derive, deadline)) as pieces:
            async for piece in pieces:
                yield piece

    async def compose_whole(
        self, question: str, evidence: Sequence[SourcePassage], derive: bool, left_s: float
    ) -> Composed:
        """The finished composition alone, for a caller who shows no pieces: one message instead of many."""
        async with closing(self._composer.compose(question, evidence, derive, Deadline.after(left_s))) as pieces:
            async for piece in pieces:
                if isinstance(piece, Composed):
                    return piece
        raise AssertionError("a composition ends with Composed")
