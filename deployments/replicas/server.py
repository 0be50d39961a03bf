"""The embedded model server as a deployment, for an application without an endpoint of its own."""

from __future__ import annotations

import asyncio

from deployments.logs import configure
from resin_core.config import LLMSection
from resin_core.errors import ModelError
from resin_core.models.server import EmbeddedServer


class ModelServer:
    """One replica; its server answers on the loopback address, so all of the application is on one machine."""

    async def __init__(self, settings: LLMSection) -> None:  # type: ignore[misc]  # Serve awaits it
        configure()
        self._server = EmbeddedServer(settings.embedded, settings.model)
        await asyncio.to_thread(self._server.start)

    async def endpoint(self) -> tuple[str, str]:
        """Address and key."""
        return self._server.base_url, self._server.api_key

    async def check_health(self) -> None:
        """Raises ModelError when the server has ended: the replica is then replaced."""
        if not self._server.alive():
            raise ModelError(self._server.fault() or "the embedded server has stopped")
