"""The language model of a run: a configured endpoint, or the embedded server for as long as it is needed."""

from __future__ import annotations

import asyncio
from types import TracebackType

from pydantic import SecretStr

from resin_core.config.sections import LLMSection
from resin_core.llm.context import check_endpoint
from resin_core.models.cache import Progress
from resin_core.models.server import EmbeddedServer


class ModelHost:
    """Context manager; `settings` then holds the base_url and key that clients use.

    Entering raises LLMUnavailableError for an endpoint that is down, ModelError kinds for the embedded server: both
    before any other work is done.
    """

    def __init__(self, settings: LLMSection, progress: Progress | None = None) -> None:
        self.settings = settings
        self.embedded = settings.base_url is None
        self._server = EmbeddedServer(settings.embedded, settings.model, progress) if self.embedded else None

    @property
    def base_url(self) -> str:
        """Root of the API that clients use."""
        if self.settings.base_url is None:
            raise RuntimeError("the model host has not been entered")
        return self.settings.base_url

    def __enter__(self) -> ModelHost:
        if self._server is not None:
            self._server.start()
            self.settings = self.settings.model_copy(
                update={"base_url": self._server.base_url, "api_key": SecretStr(self._server.api_key)}
            )
        else:
            asyncio.run(check_endpoint(self.settings, self.base_url))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
