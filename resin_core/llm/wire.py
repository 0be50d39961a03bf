"""What Resin sends to and reads from the OpenAI chat API.

Replies are read strictly into the few fields that matter, because the SDK builds its own records without checking
them: a malformed reply has to become one clear error here, not an AttributeError later.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from resin_core.llm.protocol import Request
from resin_core.records import Usage

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", from_attributes=True)


class Tokens(_Wire):
    """The server's count; missing counts read as 0, never guessed."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Content(_Wire):
    content: str | None = None


class _Choice(_Wire):
    message: _Content
    finish_reason: str | None = None


class _Step(_Wire):
    delta: _Content | None = None
    finish_reason: str | None = None


class Completion(_Wire):
    """A whole reply; at least one choice, or validation fails."""

    choices: list[_Choice] = Field(min_length=1)
    model: str | None = None
    usage: Tokens | None = None


class Chunk(_Wire):
    """One event of a stream; the one with the usage has no choices."""

    choices: list[_Step] = []
    model: str | None = None
    usage: Tokens | None = None


class ModelEntry(_Wire):
    """One entry of /v1/models. `max_model_len` is vLLM's; `meta` is llama.cpp's, where n_ctx is of one slot."""

    id: str
    aliases: list[str] | None = None
    max_model_len: int | None = None
    meta: dict[str, Any] | None = None


class ModelList(_Wire):
    """/v1/models."""

    data: list[ModelEntry]


def usage_of(tokens: Tokens | None) -> Usage:
    """The usage of one call."""
    if tokens is None:
        return Usage(llm_calls=1)
    return Usage(llm_calls=1, prompt_tokens=tokens.prompt_tokens or 0, completion_tokens=tokens.completion_tokens or 0)


def arguments(request: Request, model: str, seed: int) -> dict[str, Any]:
    """Keyword arguments of `chat.completions.create`.

    Lone surrogates, which no JSON body can carry, become U+FFFD; the length in code points stays.
    """
    sent: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": _LONE_SURROGATE.sub("\ufffd", m.content)} for m in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": seed,
    }
    if request.json_schema is not None:
        schema = {"name": request.schema_name, "schema": request.json_schema, "strict": True}
        sent["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.frequency_penalty:
        sent["frequency_penalty"] = request.frequency_penalty
    if request.stop:
        sent["stop"] = list(request.stop)
    return sent
