"""A budget that is never exceeded: a call begins only when its worst case still fits.

What a call may cost at most is reserved before it is sent and replaced by what it did cost. Calls that do not fit wait
for a larger allowance or the end of the run. Knows nothing of who sets the allowance.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable

from resin_core.config.sections import LLMSection
from resin_core.errors import LLMReplyError, StoppedError
from resin_core.llm.context import count_tokens_estimate
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing
from resin_core.records import Usage

_TEMPLATE_TOKENS = 16  # what chat templates add to a message


def worst_case(request: Request) -> Usage:
    """The most a call may use: its prompt, estimated generously, and a reply of `max_tokens`."""
    shown = sum(count_tokens_estimate(message.content) + _TEMPLATE_TOKENS for message in request.messages)
    return Usage(llm_calls=1, prompt_tokens=math.ceil(1.25 * shown), completion_tokens=request.max_tokens)


def cost_of(usage: Usage, llm: LLMSection) -> float:
    """What usage costs at the configured prices."""
    return (usage.prompt_tokens * llm.prompt_price + usage.completion_tokens * llm.completion_price) / 1e6


class BudgetModel:
    """Implements ChatModel. `price` turns usage into parts of the budget; spent + reserved stays within `allowance`.

    A reply that costs more than was reserved for it (an estimate that was too low) is booked in full, so the next call
    waits.
    """

    def __init__(self, inner: ChatModel, price: Callable[[Usage], float]) -> None:
        self._inner, self._price = inner, price
        self._allowance = math.inf
        self.spent = self.reserved = 0.0
        self._waiting = self._running = 0
        self._changed = asyncio.Event()
        self._stopped = False

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._inner.model_name

    @property
    def running(self) -> int:
        """Calls under way, those that pause between tries included."""
        return self._running

    @property
    def starved(self) -> bool:
        """Whether calls wait and none is under way that could leave something over."""
        return self._waiting > 0 and self._running == 0

    def allow(self, allowance: float) -> None:
        """What all calls together may have spent."""
        if allowance != self._allowance:
            self._allowance = allowance
            self._wake()

    def stop(self) -> None:
        """No further call begins; those that wait raise StoppedError once those under way have ended."""
        self._stopped = True
        self._wake()

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """As the inner model, once the call fits. Raises StoppedError after `stop`."""
        share = await self._reserve(request)
        used = 0.0
        try:
            reply = await self._inner.complete(request, deadline)
            used = self._price(reply.usage)
            return reply
        except LLMReplyError as error:
            used = self._price(error.usage or Usage())
            raise
        finally:
            self._settle(share, used)

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As the inner model, once the call fits."""
        share = await self._reserve(request)
        used = 0.0
        try:
            async with closing(self._inner.stream(request, deadline)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        used = self._price(piece.usage)
                    yield piece
        finally:
            self._settle(share, used)

    async def _reserve(self, request: Request) -> float:
        share = self._price(worst_case(request))
        self._waiting += 1
        try:
            while not self._stopped and self.spent + self.reserved + share > self._allowance:
                await self._changed.wait()
            # Raised sooner, it would have the document's other calls cut off, and they are paid for.
            while self._stopped and self._running:
                await self._changed.wait()
        finally:
            self._waiting -= 1
        if self._stopped:
            raise StoppedError("the run was told to stop; no further call to the model is made")
        self._running += 1
        self.reserved += share
        return share

    def _settle(self, share: float, used: float) -> None:
        self._running -= 1
        # Rounding must not leave a rest for ever.
        self.reserved = max(0.0, self.reserved - share) if self._running else 0.0
        self.spent += used
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
