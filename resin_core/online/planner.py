"""The planner port over a language model."""

from __future__ import annotations

from resin_core.errors import ContextLengthError, LLMReplyError, LLMTimeoutError
from resin_core.llm.protocol import ChatModel, Deadline, Request
from resin_core.llm.structured import structured
from resin_core.prompts import plan as prompt
from resin_core.records import Hop, QueryPlan, Usage
from resin_core.strategies.ports import Call, Planned

_MAX_TOKENS = 400


def single_hop(question: str, fallback: str = "") -> QueryPlan:
    """The question itself as the only hop; `fallback` says why."""
    return QueryPlan(hops=(Hop(subquestion=question),), fallback=fallback)


class LLMPlanner:
    """Plans with one call; what does not validate becomes the question as one hop (RESIN section 3.5)."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def plan(self, question: str, max_hops: int, deadline: Deadline) -> Planned:
        """All hops up front. Raises LLMError when the endpoint is down or refuses, not for a bad reply."""
        request = Request(
            messages=prompt.PROMPT.messages(prompt.user(question, max_hops)),
            max_tokens=_MAX_TOKENS,
            json_schema=prompt.schema(max_hops),
            schema_name="plan",
            prompt_id=prompt.PROMPT.id,
        )
        name = self._model.model_name
        try:
            got = await structured(self._model, request, prompt.PlanReply, deadline, attempts=1)
        except LLMReplyError as error:
            call = Call(
                prompt_id=request.prompt_id,
                model=name,
                usage=error.usage or Usage(),
                failure=f"{error.reason}: {error}",
                raw=error.raw,
            )
            return Planned(plan=single_hop(question, f"plan reply: {error.reason}"), calls=(call,))
        except (ContextLengthError, LLMTimeoutError) as error:
            call = Call(prompt_id=request.prompt_id, model=name, failure=str(error))
            return Planned(plan=single_hop(question, str(error)), calls=(call,))
        call = Call(
            prompt_id=request.prompt_id, model=got.reply.model, usage=got.usage, seconds=got.seconds, raw=got.reply.text
        )
        plan = prompt.parse(got.value, max_hops)
        if plan is None:
            return Planned(plan=single_hop(question, "the plan held no usable hop"), calls=(call,))
        return Planned(plan=plan, calls=(call,))
