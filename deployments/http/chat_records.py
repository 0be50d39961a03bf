"""What clients of the OpenAI chat dialect send and get.

Front ends send all kinds of keys: those that change nothing here are ignored, those that would have to are refused.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from deployments.http.requests import EXAMPLE, Body, Count, Flag, example
from resin_core.errors import InputError, QuestionError
from resin_core.records import Citation
from resin_core.strategies.start import Options

_MAX_MESSAGES = 2000
_MAX_CHARS = 1_000_000


def _nothing(value: object) -> bool:
    return value is None


class Lenient(BaseModel):
    """Base of what is read: unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore")


class ChatPart(Lenient):
    """A part of a message."""

    type: str = "text"
    text: str | None = None


class ChatTurn(Lenient):
    """A message of the conversation."""

    role: str = Field(description="Only the last turn of the role user is read.")
    content: str | list[ChatPart] | None = Field(None, description="A text, or parts of type text.")

    @property
    def chars(self) -> int:
        """Characters of text."""
        if isinstance(self.content, list):
            return sum(len(part.text or "") for part in self.content)
        return len(self.content or "")

    def question(self) -> str:
        """The text. Raises QuestionError for parts that are none."""
        if not isinstance(self.content, list):
            return self.content or ""
        for part in self.content:
            if part.type != "text":
                raise QuestionError(f"the question has a part of type {part.type[:40]!r}; only text can be answered")
        return "\n".join(part.text or "" for part in self.content)


class StreamOptions(Lenient):
    """How to stream."""

    include_usage: Flag | None = Field(None, description="One more chunk at the end, with the tokens used.")


class ResponseFormat(Lenient):
    """The form of the answer."""

    type: str = "text"


class ChatExtras(Body):
    """What Resin adds to the dialect; as in /v1/answer."""

    top_k: Count | None = Field(None, description="Units kept for each hop.")
    max_hops: Count | None = Field(None, description="Hops of the plan, at most.")
    passage_budget: Count | None = Field(None, description="Passages the composer sees, at most.")


class ChatRequest(Lenient):
    """POST /v1/chat/completions. Other keys of the dialect are accepted and change nothing."""

    model_config = example(model="resin", messages=[{"role": "user", "content": EXAMPLE}])
    model: str = Field(min_length=1, max_length=200, description="One of /v1/models.")
    messages: list[ChatTurn] = Field(
        min_length=1, max_length=_MAX_MESSAGES, description="The last user message counts."
    )
    stream: Flag | None = Field(None, description="Chunks as server-sent events instead of one document.")
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, strict=True, description="Choices; there is only ever one.")
    response_format: ResponseFormat | None = Field(None, description="Only text.")
    resin: ChatExtras | None = Field(None, description="Resin's own options; unknown ones are refused.")

    @model_validator(mode="after")
    def _bounded(self) -> ChatRequest:
        chars = sum(turn.chars for turn in self.messages)
        if chars > _MAX_CHARS:
            raise ValueError(f"the messages have {chars:,} characters, the limit is {_MAX_CHARS:,}; send fewer")
        return self

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def question(self) -> str:
        """The last user message. Raises QuestionError when there is none, InputError for what cannot be given."""
        if self.n not in (None, 1):
            raise InputError(f"n is {self.n}; there is one answer to a question, leave n out")
        if self.response_format and self.response_format.type != "text":
            raise InputError(
                f"response_format is {self.response_format.type[:40]!r}; answers are text with references, leave it out"
            )
        for turn in reversed(self.messages):
            if turn.role == "user":
                return turn.question()
        raise QuestionError("messages holds none of the role user; the last of these is the question")

    def options(self, strategy: str) -> Options:
        """What the request overrides."""
        extras = self.resin or ChatExtras()
        return Options(strategy, extras.top_k, extras.max_hops, extras.passage_budget)


class UrlCitation(BaseModel):
    """Where a reference stands in the content, in code points and half open, and what it points to."""

    start_index: int
    end_index: int
    title: str
    url: str


class Annotation(BaseModel):
    """One reference."""

    type: Literal["url_citation"] = "url_citation"
    url_citation: UrlCitation


class ChatUsage(BaseModel):
    """Tokens of all model calls up to the answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ResinPart(BaseModel):
    """What the dialect has no place for; as in the answer of /v1/answer."""

    trace_id: str
    generation: str
    index: str
    citations: tuple[Citation, ...]


class ChatMessage(BaseModel):
    """The answer, then its sources."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    annotations: list[Annotation]


class ChatChoice(BaseModel):
    """The one choice."""

    index: int = 0
    message: ChatMessage
    finish_reason: Literal["stop"] = "stop"
    logprobs: None = None


class ChatCompletion(BaseModel):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    resin: ResinPart


class Delta(BaseModel):
    """What a chunk adds; keys that have nothing to say are not sent."""

    role: Literal["assistant"] | None = Field(None, exclude_if=_nothing)
    content: str | None = Field(None, exclude_if=_nothing)
    annotations: list[Annotation] | None = Field(None, exclude_if=_nothing)


class ChunkChoice(BaseModel):
    """The one choice."""

    index: int = 0
    delta: Delta
    finish_reason: Literal["stop"] | None = None
    logprobs: None = None


class ChatChunk(BaseModel):
    """A step of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | None = Field(None, exclude_if=_nothing)
    resin: ResinPart | None = Field(None, exclude_if=_nothing)


class ModelEntry(BaseModel):
    """A strategy over an index."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Unix time at which this server began to offer it.")
    owned_by: str = "resin"


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]
