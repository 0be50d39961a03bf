"""Planner replicas: question planning, one model call each."""

from __future__ import annotations

from typing import Any

from deployments.logs import configure
from deployments.model import RoleModel
from resin_core.config import ResinConfig
from resin_core.llm.protocol import Deadline
from resin_core.online.planner import LLMPlanner
from resin_core.strategies.ports import Planned


class PlannerReplica:
    """The planner port over the model configured for planning."""

    async def __init__(self, config: ResinConfig, slots: Any, hosted: Any) -> None:  # type: ignore[misc]  # Serve awaits it
        configure()
        self._model = RoleModel(config, "planner", slots, hosted)
        self._planner = LLMPlanner(self._model)
        await self._model.start()

    async def plan(self, question: str, max_hops: int, left_s: float) -> Planned:
        """As the planner port; `left_s` is what is left of the answer's time."""
        return await self._planner.plan(question, max_hops, Deadline.after(left_s))
