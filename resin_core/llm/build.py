"""One chat model out of the parts."""

from __future__ import annotations

from types import TracebackType

from resin_core.config.sections import LLMSection
from resin_core.llm.client import OpenAIChatModel, WireChatModel
from resin_core.llm.ledger import LedgerModel
from resin_core.llm.limit import LimitedModel
from resin_core.llm.overload import WatchedModel
from resin_core.llm.retry import RetryingModel
from resin_core.llm.wire import ModelEntry


class OpenChatModel(LedgerModel):
    """The whole stack over a client, which it owns; an async context manager.

    Ledger over retry over limit over overload count over client: a call that pauses between tries holds no slot, and
    what a caller asked for counts once, however many tries it took (`retries` counts the others). The limit starts as
    `settings.max_concurrency`.
    """

    def __init__(self, settings: LLMSection, client: WireChatModel) -> None:
        self._client = client
        self._watched = WatchedModel(self._client)
        self._limited = LimitedModel(self._watched, settings.max_concurrency)
        self._retrying = RetryingModel(self._limited, settings)
        super().__init__(self._retrying)

    @property
    def retries(self) -> int:
        """Further tries made so far."""
        return self._retrying.retries

    @property
    def limit(self) -> int:
        """Calls that may be at the endpoint at once."""
        return self._limited.limit

    @property
    def in_use(self) -> int:
        """Calls at the endpoint now."""
        return self._limited.in_use

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot; those that pause between tries are not among them."""
        return self._limited.waiting

    @property
    def overloads(self) -> int:
        """Answers so far by which the endpoint asked for fewer calls (429, 503, 529), those of further tries too."""
        return self._watched.overloads

    def resize(self, limit: int) -> None:
        """From now on at most `limit` calls at the endpoint; 0 pauses. Raises ValueError below 0."""
        self._limited.resize(limit)

    async def models(self, timeout_s: float | None = None) -> list[ModelEntry]:
        """What the endpoint says it serves. Raises LLMError kinds."""
        return await self._client.models(timeout_s)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> OpenChatModel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def open_chat_model(settings: LLMSection, base_url: str) -> OpenChatModel:
    """The model `settings.model` at `base_url` (the configured endpoint's, or the embedded server's).

    Connects to nothing yet. Raises ConfigError when the URL or the key cannot be used.
    """
    return OpenChatModel(settings, OpenAIChatModel(settings, base_url))
