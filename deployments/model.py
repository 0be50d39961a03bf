"""The language model of one replica: where it is, and the replica's share of its slots."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import SecretStr

from deployments import collecting
from deployments.hosting import EngineChatModel
from resin_core.config import LLMSection, ResinConfig
from resin_core.errors import LLMUnavailableError
from resin_core.llm.build import OpenChatModel, open_chat_model
from resin_core.llm.protocol import Deadline, Reply, Request
from resin_core.llm.streams import closing

log = logging.getLogger("resin.model")
_LEAST_S, _BUSY_S, _IDLE_S = 0.02, 0.2, 2.0
_SLOTS_S = 5.0


class RoleModel:
    """Implements ChatModel. One limit on calls holds over all replicas that use the same endpoint.

    `slots` is the handle of the deployment that divides the limit, `hosted` that of the engine (serving.engine vllm) or
    of the embedded model server, None for an endpoint. A server that was replaced has another address: it is asked for
    again when the old one is not reached.
    """

    def __init__(self, config: ResinConfig, role: Literal["planner", "composer"], slots: Any, hosted: Any) -> None:
        self._settings = config.llm.for_role(role)
        self._slots = slots
        engine = config.serving.engine == "vllm"
        self._engine: Any = hosted if engine else None
        self._server: Any = None if engine else hosted
        self._name = f"{role}-{uuid.uuid4().hex[:8]}"
        self._endpoint = f"{self._settings.base_url or 'hosted'} {self._settings.model}"
        self._model: OpenChatModel | None = None
        self._opening = asyncio.Lock()
        self._reporting: asyncio.Task[None] | None = None
        self._short = asyncio.Event()

    @property
    def model_name(self) -> str:
        """Name sent to the endpoint."""
        return self._settings.model

    async def start(self) -> None:
        """Begins to report to the slots; call it once, in the loop of the calls."""
        if self._server is None:
            await self._open(None)
        self._reporting = asyncio.create_task(self._report())
        collecting.freeze()

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:
        """As ChatModel."""
        model = await self._open(None)
        try:
            return await self._wanted(model).complete(request, deadline)
        except LLMUnavailableError:
            if self._server is None:
                raise
            return await (await self._open(model)).complete(request, deadline)

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """As ChatModel."""
        model = await self._open(None)
        begun = False
        try:
            async with closing(self._wanted(model).stream(request, deadline)) as pieces:
                async for piece in pieces:
                    begun = True
                    yield piece
            return
        except LLMUnavailableError:
            if self._server is None or begun:
                raise
        async with closing((await self._open(model)).stream(request, deadline)) as pieces:
            async for piece in pieces:
                yield piece

    async def _open(self, lost: OpenChatModel | None) -> OpenChatModel:
        """The model; another one than `lost` when its server has moved."""
        if self._model is not None and self._model is not lost:
            return self._model
        async with self._opening:
            if self._model is not None and self._model is not lost:
                return self._model
            if self._engine is not None:
                self._model = OpenChatModel(self._settings, EngineChatModel(self._settings, self._engine))
                return self._model
            settings = self._settings if self._server is None else await self._embedded()
            self._model = open_chat_model(settings, settings.base_url or "")
        if lost is not None:
            await lost.aclose()
        return self._model

    async def _embedded(self) -> LLMSection:
        base_url, key = await self._server.endpoint.remote()
        return self._settings.model_copy(update={"base_url": base_url, "api_key": SecretStr(key)})

    async def _report(self) -> None:
        """Tells the slots what is used and wanted, and takes the share they give; keeps it while they do not answer."""
        total = self._settings.max_concurrency
        while True:
            model = self._model
            if model is not None:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(_SLOTS_S):
                        share = await self._slots.report.remote(
                            self._endpoint, total, self._name, model.in_use, model.waiting, model.overloads
                        )
                    model.resize(share)
            busy = model is not None and bool(model.in_use or model.waiting)
            self._short.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._short.wait(), _BUSY_S if busy else _IDLE_S)
            await asyncio.sleep(_LEAST_S)

    def _wanted(self, model: OpenChatModel) -> OpenChatModel:
        """Before a call: one that will have to wait for a slot is told at once."""
        if model.in_use + model.waiting >= model.limit:
            self._short.set()
        return model
