"""A vLLM engine as a deployment of `ray.serve.llm` (Ray 2.60). Importing this module needs vllm: it is done late.

What crosses between replicas is text and plain values, so that the callers need no vllm.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import ValidationError
from ray.serve.llm.deployment import LLMServer
from ray.serve.llm.openai_api_models import ChatCompletionRequest

_BAD_REQUEST, _FAILED = 400, 500


class EngineReplica(LLMServer):  # type: ignore[misc]  # Any where vllm is not installed
    """An engine; `talk` is its chat API, as the bodies and events that the HTTP one has."""

    async def talk(self, body: dict[str, Any]) -> AsyncIterator[str]:
        """The JSON of one reply or error, or with `stream` the server-sent events of one as they come."""
        try:
            request = ChatCompletionRequest.model_validate(body)
        except ValidationError as error:
            yield _error(_BAD_REQUEST, str(error))
            return
        try:
            async for batch in await self.chat(request):
                for item in batch if isinstance(batch, list) else (batch,):
                    yield item if isinstance(item, str) else item.model_dump_json()
        except Exception as error:
            # Its class is vLLM's, which the caller may not have.
            yield _error(_FAILED, f"{type(error).__name__}: {error}")


def _error(code: int, message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "error", "code": code}})
