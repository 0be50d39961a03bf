"""Models that the application hosts itself: vLLM engines as deployments of `ray.serve.llm`, and the client for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from ray.exceptions import RayTaskError
from ray.serve import Application
from ray.serve.exceptions import BackPressureError

from deployments.calling import LOST
from resin_core.config import LLMSection, ServingSection
from resin_core.errors import ConfigError, LLMRateLimitError, LLMServerError, LLMUnavailableError
from resin_core.llm.client import WireChatModel
from resin_core.llm.failures import Endpoint, status_error, typed_error
from resin_core.llm.wire import ModelEntry

_PREFIX = "llm:"
_DATA, _END = "data:", "[DONE]"
_FAILED = 500


def engine(settings: LLMSection, serving: ServingSection) -> Application:
    """The deployment of one model, with as many engines as `serving.llm` says. Raises ConfigError.

    `settings` are those of a role. Each engine takes `llm.vllm.tensor_parallel` GPUs, all in one placement group.
    """
    if find_spec("vllm") is None:
        raise ConfigError(
            "serving.engine is vllm, but vllm is not installed here; install resin[gpu], or set llm.base_url"
        )
    if serving.llm.gpus:
        raise ConfigError("serving.llm.gpus: an engine asks for llm.vllm.tensor_parallel GPUs by itself; leave it 0")
    from ray.serve.llm import LLMConfig, build_llm_deployment

    from deployments.replicas.engine import EngineReplica

    vllm = settings.vllm
    bundle = {"CPU": 1} if vllm.device == "cpu" else {"CPU": 1, "GPU": 1}
    try:
        checked = LLMConfig(
            model_loading_config={"model_id": settings.model, "model_source": vllm.model_path or settings.model},
            engine_kwargs=vllm.arguments(settings.context_tokens),
            placement_group_config={"bundles": [bundle] * vllm.tensor_parallel},
            deployment_config=serving.options("llm"),
            # A piece is sent on when the model gives it, not collected for a while.
            experimental_configs={"stream_batching_interval_ms": 0},
        )
        application: Application = build_llm_deployment(checked, name_prefix=_PREFIX, deployment_cls=EngineReplica)
    except ValueError as error:
        raise ConfigError(f"llm.vllm: {' '.join(str(error).split())}") from None
    return application


class EngineChatModel(WireChatModel):
    """ChatModel over the handle of a hosted model. A lost replica is LLMUnavailableError, a full one a rate limit."""

    def __init__(self, settings: LLMSection, handle: Any) -> None:
        super().__init__(settings, Endpoint(f"the hosted model {settings.model}", "", settings.connect_timeout_s))
        self._talk = handle.options(stream=True).talk

    async def models(self, timeout_s: float | None = None) -> list[ModelEntry]:  # noqa: ARG002 - nobody is asked
        """The one that is hosted, from the settings."""
        return [ModelEntry(id=self.model_name, max_model_len=self._settings.context_tokens)]

    async def _create(self, sent: dict[str, Any]) -> Any:
        events = _Events(self._talk.remote(sent))
        if sent.get("stream"):
            return events
        try:
            return await anext(events)
        finally:
            await events.close()

    async def aclose(self) -> None:
        """Nothing is held."""

    def _typed(self, error: Exception) -> Exception | None:
        endpoint = self._endpoint
        if isinstance(error, _RefusedError):
            return status_error(error.status, error.said, endpoint, {})
        if isinstance(error, BackPressureError):
            return LLMRateLimitError(f"{endpoint.url} has too many calls waiting (serving.llm.max_queued)")
        if isinstance(error, LOST):
            return LLMUnavailableError(f"a replica of {endpoint.url} was lost")
        if isinstance(error, RayTaskError):
            return LLMServerError(f"{endpoint.url} failed: {endpoint.clean(str(error.cause))}", _FAILED)
        if isinstance(error, ValueError | StopAsyncIteration):
            return typed_error(error, endpoint)
        return None


class _RefusedError(Exception):
    """An error document instead of a reply."""

    def __init__(self, said: Any) -> None:
        values = said if isinstance(said, dict) else {"message": str(said)}
        self.said = SimpleNamespace(**{name: values.get(name) for name in ("message", "type", "param", "code")})
        code = str(self.said.code)
        self.status = int(code) if code.isdigit() else _FAILED


class _Events:
    """The values that a call of `talk` yields."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._waiting: Iterator[str] = iter(())
        self._ended = False

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> Any:
        """Raises _RefusedError for an error."""
        while (text := next(self._waiting, None)) is None:
            try:
                item = await anext(self._response)
            except StopAsyncIteration:
                self._ended = True
                raise
            self._waiting = iter(_values(item))
        value = json.loads(text)
        if isinstance(value, dict) and "error" in value:
            raise _RefusedError(value["error"])
        return value

    async def close(self) -> None:
        """Ends the generation, unless it has ended."""
        if not self._ended:
            self._response.cancel()


def _values(item: str) -> Iterator[str]:
    """The JSON texts of a body, or of some server-sent events."""
    if not item.startswith(_DATA):
        yield item
        return
    for line in item.splitlines():
        text = line.removeprefix(_DATA).strip()
        if text and text != _END:
            yield text
