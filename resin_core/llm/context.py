"""Whether the endpoint is there, how long its context is, and whether a prompt fits it."""

from __future__ import annotations

import math
import string

from resin_core.config.sections import LLMSection
from resin_core.errors import ContextLengthError, LLMError, LLMRateLimitError, LLMRequestError, LLMUnavailableError
from resin_core.llm.client import OpenAIChatModel
from resin_core.llm.protocol import Request
from resin_core.llm.wire import ModelEntry

_NO_LISTING = (404, 405, 501)
_PROSE = (string.ascii_letters + " ").encode()
_DIGITS = string.digits.encode()
_OTHER_ASCII = bytes(b for b in range(128) if b not in _PROSE and b not in _DIGITS)
# The chat template's tokens around one message.
_MESSAGE_TOKENS = 8


async def check_endpoint(settings: LLMSection, base_url: str) -> None:
    """One quick GET /models before any work.

    Raises LLMUnavailableError when nobody answers within `connect_timeout_s` or the server is not ready, and
    LLMRequestError when the key is refused. An endpoint without /models passes.
    """
    try:
        await _models(settings, base_url, settings.connect_timeout_s)
    except LLMRateLimitError:
        return
    except LLMRequestError as error:
        if error.status in (401, 403):
            raise
    except LLMError as error:
        if getattr(error, "status", None) in _NO_LISTING:
            return
        raise LLMUnavailableError(
            f"{error}; start the server, or correct llm.base_url, or unset it to use the embedded model"
        ) from None


async def context_tokens(settings: LLMSection, base_url: str) -> int | None:
    """The model's context length in tokens: as configured, else what /v1/models says, else None.

    Reads vLLM's `max_model_len` and llama.cpp's `meta.n_ctx`, which is the context of one slot. Raises LLMError kinds
    when the endpoint cannot be asked; one without /models gives None.
    """
    if settings.context_tokens is not None:
        return settings.context_tokens
    try:
        entries = await _models(settings, base_url, settings.connect_timeout_s)
    except LLMError as error:
        if getattr(error, "status", None) in _NO_LISTING:
            return None
        raise
    named = [e for e in entries if settings.model == e.id or settings.model in (e.aliases or ())]
    # A server of one model answers to any name.
    chosen = named or (entries if len(entries) == 1 else [])
    return _context_of(chosen[0]) if chosen else None


def count_tokens_estimate(text: str) -> int:
    """Tokens of `text`, without a tokenizer; errs on the high side, at the worst a tenth short (numbers).

    Latin letters and spaces 3.5 to a token, digits 1, other ASCII 1.2, and 2.2 bytes of UTF-8 beyond ASCII (1.1
    characters of Greek or Cyrillic, 0.7 of Chinese), by measurements with a current vocabulary of 150,000 tokens.
    """
    data = text.encode("utf-8", "surrogatepass")
    rest = len(data.translate(None, _PROSE))
    beyond = len(data.translate(None, _PROSE + _DIGITS + _OTHER_ASCII))
    digits = rest - len(data.translate(None, _PROSE + _DIGITS))
    other = rest - digits - beyond
    return math.ceil((len(data) - rest) / 3.5 + digits + other / 1.2 + beyond / 2.2)


def check_fits(request: Request, context: int | None) -> None:
    """Raises ContextLengthError when prompt and reply together cannot fit `context` tokens; None is not checked."""
    if context is None:
        return
    prompt = sum(count_tokens_estimate(message.content) + _MESSAGE_TOKENS for message in request.messages)
    if prompt + request.max_tokens > context:
        what = f"prompt {request.prompt_id!r}" if request.prompt_id else "the prompt"
        raise ContextLengthError(
            f"{what} takes about {prompt} tokens and its reply up to {request.max_tokens}, but the model's context is"
            f" {context} tokens; use a longer context (llm.embedded.slot_context_tokens, or the server's own setting),"
            " or make indexing.window_chars or retrieval.evidence_tokens smaller"
        )


async def _models(settings: LLMSection, base_url: str, timeout_s: float) -> list[ModelEntry]:
    client = OpenAIChatModel(settings, base_url)
    try:
        return await client.models(timeout_s)
    finally:
        await client.aclose()


def _context_of(entry: ModelEntry) -> int | None:
    if entry.max_model_len:
        return entry.max_model_len
    n_ctx = (entry.meta or {}).get("n_ctx")
    return n_ctx if isinstance(n_ctx, int) and n_ctx > 0 else None
