"""How often the endpoint said that it is asked too much, seen before the retry layer hides it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from resin_core.errors import LLMError, LLMRateLimitError, LLMServerError
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing

# 503: no capacity now (vLLM, llama.cpp, gateways). 529: some hosted APIs' own "overloaded".
_OVERLOAD_STATUSES = (503, 529)


def is_overload(error: LLMError) -> bool:
    """The endpoint asks for fewer calls: 429, 503 or 529. Other errors say nothing about its load."""
    if isinstance(error, LLMServerError):
        return error.status in _OVERLOAD_STATUSES
    return isinstance(error, LLMRateLimitError)


class WatchedModel:
    """Implements ChatModel: counts overload answers (`overloads`) and changes nothing.

    It belongs under the retry layer, where each try is seen.
    """

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner
        self.overloads = 0

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """As the inner model."""
        try:
            return await self._inner.complete(request, deadline)
        except LLMError as error:
            self.overloads += is_overload(error)
            raise

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model."""
        try:
            async with closing(self._inner.stream(request, deadline)) as pieces:
                async for piece in pieces:
                    yield piece
        except LLMError as error:
            self.overloads += is_overload(error)
            raise
