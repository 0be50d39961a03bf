"""From the exceptions of the OpenAI SDK and of httpx to Resin's error tree, by type and status code.

No message ever holds the key: servers echo it, and so do the protocol errors of the HTTP library.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from resin_core.errors import (
    ConfigError,
    ContextLengthError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
    LLMServerError,
    LLMTimeoutError,
    LLMUnavailableError,
)

# OpenAI's code, llama.cpp's type, and the `param` by which vLLM names the prompt that was too long.
_OVERFLOW = {"context_length_exceeded", "exceed_context_size_error", "input_tokens"}
_STATUS_CODES = {str(status) for status in range(400, 600)}
_HINTS = {
    401: "the key is refused; check llm.api_key",
    403: "the key is refused; check llm.api_key",
    404: "check llm.model, and that llm.base_url ends in /v1",
}


class Endpoint(NamedTuple):
    """What messages may say of an endpoint: `url` without user, password and query."""

    url: str
    key: str
    connect_timeout_s: float

    @classmethod
    def of(cls, base_url: str, key: str, connect_timeout_s: float) -> Endpoint:
        """Checked. Raises ConfigError when the URL has no http(s) scheme or host, or the key cannot be a header."""
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = None, None, None
        if parts is None or parts.scheme not in ("http", "https") or not host:
            raise ConfigError(f"setting llm.base_url: {base_url!r} is not a URL like http://127.0.0.1:8000/v1")
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ConfigError("setting llm.api_key: it holds a character no key can have; copy it again")
        place = f"[{host}]" if ":" in host else host
        netloc = place if port is None else f"{place}:{port}"
        return cls(f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}", key, connect_timeout_s)

    @property
    def is_loopback(self) -> bool:
        """On this machine: proxies from the environment must not stand between."""
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    def clean(self, text: str, limit: int = 300) -> str:
        """One line, the key masked, no longer than `limit` code points."""
        line = " ".join(text.split())
        if self.key:
            line = line.replace(self.key, "***")
        return line if len(line) <= limit else line[: limit - 3] + "..."


def typed_error(error: Exception, endpoint: Endpoint) -> LLMError:
    """The error of Resin's tree that says what `error` says."""
    import httpx
    import openai

    if isinstance(error, openai.APIStatusError):
        return status_error(error.status_code, error, endpoint, error.response.headers)
    if isinstance(error, openai.APIConnectionError | httpx.RequestError):
        return _connection(error, endpoint)
    if isinstance(error, openai.APIResponseValidationError) or not isinstance(error, openai.APIError):
        return LLMUnavailableError(
            f"{endpoint.url} answered with something that is not of the OpenAI API"
            f" ({endpoint.clean(str(error), 120)}); check llm.base_url"
        )
    # An error sent inside a stream: the status line said 200, the event says what went wrong.
    code = str(error.code)
    status = int(code) if code in _STATUS_CODES else 500
    return status_error(status, error, endpoint, {})


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for: a number or an HTTP date; None when absent or unreadable."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None


def status_error(status: int, error: Any, endpoint: Endpoint, headers: Mapping[str, str]) -> LLMError:
    """The error of Resin's tree for an HTTP status; `error` has the message, code, type and param of its body."""
    said = endpoint.clean(str(error.message))
    if _OVERFLOW & {str(error.code), str(error.type), str(error.param)}:
        return ContextLengthError(
            f"the prompt and its reply do not fit the context of the model at {endpoint.url}: {said};"
            " serve the model with a longer context, or make indexing.window_chars or retrieval.evidence_tokens smaller"
        )
    if status == 429:
        return LLMRateLimitError(f"{endpoint.url} asks for fewer requests (HTTP 429): {said}", retry_after_s(headers))
    if status == 408:
        return LLMTimeoutError(f"{endpoint.url} gave up on the request in time (HTTP 408): {said}")
    if status >= 500:
        return LLMServerError(f"{endpoint.url} failed (HTTP {status}): {said}", status, retry_after_s(headers))
    hint = f"; {_HINTS[status]}" if status in _HINTS else ""
    return LLMRequestError(f"{endpoint.url} refused the request (HTTP {status}): {said}{hint}", status)


def _connection(error: Exception, endpoint: Endpoint) -> LLMUnavailableError:
    import httpx

    cause = error if isinstance(error, httpx.RequestError) else error.__cause__ or error
    reason = endpoint.clean(str(cause) or type(cause).__name__, 160)
    # Only connecting is timed by httpx here; the reply is timed by the caller.
    if isinstance(cause, httpx.TimeoutException):
        reason = f"no connection within llm.connect_timeout_s = {endpoint.connect_timeout_s:g} s"
    elif not isinstance(cause, httpx.ConnectError):
        return LLMUnavailableError(f"the language model at {endpoint.url} dropped the connection: {reason}")
    return LLMUnavailableError(f"cannot reach the language model at {endpoint.url}: {reason}")
