"""One chat model out of the parts."""

from __future__ import annotations

from types import TracebackType

from resin_core.config.sections import LLMSection
from resin_core.llm.client import OpenAIChatModel
from resin_core.llm.ledger import LedgerModel
from resin_core.llm.limit import LimitedModel
from resin_core.llm.retry import RetryingModel


class OpenChatModel(LedgerModel):
    """The whole stack, with the connections it owns; an async context manager.

    Ledger over retry over limit over client: a call that pauses between tries holds no slot, and what a caller asked
    for counts once, however many tries it took (`retries` counts the others).
    """

    def __init__(self, settings: LLMSection, base_url: str) -> None:
        self._client = OpenAIChatModel(settings, base_url, settings.model)
        self._retrying = RetryingModel(LimitedModel(self._client, settings.max_concurrency), settings)
        super().__init__(self._retrying)

    @property
    def retries(self) -> int:
        """Further tries made so far."""
        return self._retrying.retries

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
    return OpenChatModel(settings, base_url)
