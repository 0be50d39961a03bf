"""The language model boundary: chat messages in, text and usage out.

One wire format, the OpenAI chat API; this module says only what the rest of Resin needs of it. Wrappers (limit,
retry, ledger) implement the same protocol and nest.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import Field

from resin_core.errors import DeadlineError
from resin_core.records import Record, Usage


class Message(Record):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


class Request(Record):
    """One chat completion. `json_schema` asks for structured output; `max_tokens` bounds the reply."""

    messages: tuple[Message, ...]
    max_tokens: int = Field(gt=0)
    json_schema: dict[str, Any] | None = None
    schema_name: str = "reply"
    temperature: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    prompt_id: str = ""


class Reply(Record):
    """A whole reply. `finish_reason` is the server's: stop, length, ..."""

    text: str
    finish_reason: str
    model: str
    usage: Usage
    seconds: float


class Deadline(NamedTuple):
    """A moment on the monotonic clock by which the work must be over; handed down to every call."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline `seconds` from now."""
        return cls(time.monotonic() + seconds)

    def remaining_s(self) -> float:
        """Seconds left. Raises DeadlineError when none are."""
        left = self.at_s - time.monotonic()
        if left <= 0:
            raise DeadlineError("the deadline for this answer has passed; raise strategies.deadline_s")
        return left


class ChatModel(Protocol):
    """What Resin needs of a language model. Cancelling a task cancels the call at the server."""

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint and kept in manifests and traces."""
        ...

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """The whole reply. Raises LLMError kinds, or DeadlineError."""
        ...

    def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """Text pieces as they come, then one Reply with the whole text. Raises as `complete`."""
        ...
