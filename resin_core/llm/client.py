"""A chat model behind an OpenAI-compatible endpoint (vLLM, llama.cpp's server, hosted APIs).

It makes one try and names what went wrong; pausing, trying again and counting are the wrappers' work.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from resin_core.config.sections import LLMSection
from resin_core.errors import DeadlineError, LLMReplyError, LLMTimeoutError, LLMUnavailableError
from resin_core.llm.failures import Endpoint, typed_error
from resin_core.llm.protocol import Deadline, Reply, Request
from resin_core.llm.wire import Chunk, Completion, ModelEntry, ModelList, arguments, usage_of
from resin_core.records import Usage
from resin_core.text.decode import scrub

# Servers close idle connections after about 5 s (uvicorn, cpp-httplib): let go of them before, or a call now and then
# goes out on a connection that is being closed.
_KEEPALIVE_S = 3.0
# The SDK insists on a key; servers without keys ignore it.
_NO_KEY = "none"


class WireChatModel(ABC):
    """ChatModel over something that takes and gives the bodies of the OpenAI chat API.

    Each call is bounded by `settings.request_timeout_s` as a whole (LLMTimeoutError) and by the caller's deadline
    (DeadlineError).
    """

    def __init__(self, settings: LLMSection, endpoint: Endpoint) -> None:
        self._settings = settings
        self._endpoint = endpoint

    @property
    def model_name(self) -> str:
        """Name sent with each call."""
        return self._settings.model

    @abstractmethod
    async def _create(self, sent: dict[str, Any]) -> Any:
        """What Completion can be read from; for `stream`, something with `__anext__` of what Chunk can be read from,
        and an async `close`, which stops the server."""

    @abstractmethod
    def _typed(self, error: Exception) -> Exception | None:
        """What an error of a call means, in Resin's own tree; None: it is passed on."""

    @abstractmethod
    async def models(self, timeout_s: float | None = None) -> list[ModelEntry]:
        """What is served. Raises as `complete`; `timeout_s` instead of the request's time."""

    @abstractmethod
    async def aclose(self) -> None:
        """Closes what it holds."""

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """One call. Raises LLMError kinds, LLMReplyError("empty") for a reply without text, or DeadlineError."""
        bound = _Bound(self._settings.request_timeout_s, deadline)
        async with self._call(bound):
            sent = arguments(request, self._settings.model, self._settings.seed)
            completion = Completion.model_validate(await self._create(sent))
        choice = completion.choices[0]
        return self._reply(
            scrub(choice.message.content or ""),
            choice.finish_reason,
            completion.model,
            usage_of(completion.usage),
            bound.elapsed_s(),
        )

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """Pieces, then the Reply. Raises as `complete`; closing it stops the server."""
        bound = _Bound(self._settings.request_timeout_s, deadline)
        sent = arguments(request, self._settings.model, self._settings.seed)
        sent |= {"stream": True, "stream_options": {"include_usage": True}}
        pieces: list[str] = []
        finish: str | None = None
        model: str | None = None
        usage = Usage(llm_calls=1)
        events: Any = None
        try:
            async with self._call(bound):
                events = await self._create(sent)
            while True:
                async with self._call(bound):
                    event = await anext(events, None)
                    chunk = None if event is None else Chunk.model_validate(event)
                if chunk is None:
                    break
                model = chunk.model or model
                usage = usage_of(chunk.usage) if chunk.usage else usage
                if not chunk.choices:
                    continue
                finish = chunk.choices[0].finish_reason or finish
                delta = chunk.choices[0].delta
                if delta is not None and delta.content:
                    pieces.append(scrub(delta.content))
                    yield pieces[-1]
        finally:
            if events is not None:
                await events.close()
        if finish is None:
            raise LLMUnavailableError(f"the stream of {self._endpoint.url} ended before the reply did")
        yield self._reply("".join(pieces), finish, model, usage, bound.elapsed_s())

    def _reply(self, text: str, finish: str | None, model: str | None, usage: Usage, seconds: float) -> Reply:
        if not text:
            raise LLMReplyError(
                "empty", f"the reply of {self._endpoint.url} has no text (finish_reason {finish})", "", usage
            )
        return Reply(
            text=text, finish_reason=finish or "stop", model=model or self.model_name, usage=usage, seconds=seconds
        )

    @asynccontextmanager
    async def _call(self, bound: _Bound) -> AsyncIterator[None]:
        """Bounds one wait for the server and types what goes wrong in it.

        `from None`: exceptions of a client hold the request with its key, and cannot be pickled across processes.
        """
        try:
            async with asyncio.timeout(bound.left_s(self._endpoint)):
                yield
        except TimeoutError:
            raise bound.error(self._endpoint) from None
        except Exception as error:
            typed = self._typed(error)
            if typed is None:
                raise
            raise typed from None


class OpenAIChatModel(WireChatModel):
    """ChatModel over HTTP. Holds one connection pool: use it in one event loop, and `aclose` it.

    Connecting is bounded by `settings.connect_timeout_s` (LLMUnavailableError). Raises ConfigError when `base_url` or
    the key cannot be used.
    """

    def __init__(self, settings: LLMSection, base_url: str) -> None:
        import httpx
        import openai

        key = settings.api_key.get_secret_value().strip() if settings.api_key else ""
        super().__init__(settings, Endpoint.of(base_url, key, settings.connect_timeout_s))
        # Any: the SDK takes clients of httpx and of its successor, its annotation names only one, by version.
        http_client: Any = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=settings.connect_timeout_s),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=settings.max_concurrency,
                keepalive_expiry=_KEEPALIVE_S,
            ),
            follow_redirects=True,
            trust_env=not self._endpoint.is_loopback,
        )
        self._client = openai.AsyncOpenAI(
            api_key=key or _NO_KEY, base_url=base_url, max_retries=0, http_client=http_client
        )
        # The SDK reads these from the environment, for its maker's own service; other endpoints are not told.
        self._client.organization = self._client.project = None

    async def models(self, timeout_s: float | None = None) -> list[ModelEntry]:
        """The entries of /v1/models; as WireChatModel."""
        bound = _Bound(timeout_s or self._settings.request_timeout_s, None)
        async with self._call(bound):
            raw = await self._client.models.with_raw_response.list()
            listing = json.loads(raw.text)
            return ModelList.model_validate({"data": listing} if isinstance(listing, list) else listing).data

    async def aclose(self) -> None:
        """Closes the connections, those of running calls too."""
        await self._client.close()

    async def _create(self, sent: dict[str, Any]) -> Any:
        create: Any = self._client.chat.completions.create
        # As extra body: the SDK rewrites each message of `messages`, which takes longer than all the rest of a call.
        return await create(model=self._settings.model, messages=[], stream=sent.get("stream", False), extra_body=sent)

    def _typed(self, error: Exception) -> Exception | None:
        import httpx
        import openai

        if isinstance(error, openai.OpenAIError | httpx.RequestError | ValueError):
            return typed_error(error, self._endpoint)
        return None


class _Bound:
    """The end of one call: its own time or the caller's deadline, whichever comes first."""

    def __init__(self, timeout_s: float, deadline: Deadline | None) -> None:
        self._started = time.monotonic()
        self._timeout_s = timeout_s
        self._end = self._started + timeout_s
        self._by_deadline = deadline is not None and deadline.at_s < self._end
        if deadline is not None:
            deadline.remaining_s()
            self._end = min(self._end, deadline.at_s)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def left_s(self, endpoint: Endpoint) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.error(endpoint)
        return left

    def error(self, endpoint: Endpoint) -> DeadlineError | LLMTimeoutError:
        if self._by_deadline:
            return DeadlineError(
                f"the deadline for this answer passed while waiting for the model at {endpoint.url};"
                " raise strategies.deadline_s"
            )
        return LLMTimeoutError(f"no whole reply from {endpoint.url} within {self._timeout_s:g} s")
