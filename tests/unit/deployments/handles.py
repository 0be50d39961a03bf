"""Deployment handles without Ray: each call's outcome is given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import ray.exceptions

HANGS = object()


def wrapped(cause: Exception) -> ray.exceptions.RayTaskError:
    """An exception of a replica's own code, as it arrives here: an instance of its cause's class as well."""
    plain = ray.exceptions.RayTaskError("plan", "a traceback", cause, proctitle="replica", pid=1, ip="127.0.0.1")
    return plain.as_instanceof_cause()


class Response:
    """One call: its steps are values to yield, HANGS, or an error to raise; awaited, the first one is the result."""

    def __init__(self, *steps: Any) -> None:
        self._steps = iter(steps)
        self.cancelled = False

    def __await__(self) -> Iterator[Any]:
        return self._step().__await__()

    def __aiter__(self) -> Response:
        return self

    async def __anext__(self) -> Any:
        return await self._step()

    async def _step(self) -> Any:
        await asyncio.sleep(0)
        try:
            step = next(self._steps)
        except StopIteration:
            raise StopAsyncIteration from None
        if step is HANGS:
            await asyncio.Event().wait()
        if isinstance(step, Exception):
            raise step
        return step

    def cancel(self) -> None:
        self.cancelled = True


class Method:
    """A handle's method: call after call gets the responses in turn, the last one's steps again and again."""

    def __init__(self, *calls: Any) -> None:
        self._calls = [call if isinstance(call, tuple) else (call,) for call in calls]
        self.begun = asyncio.Event()
        self.responses: list[Response] = []
        self.arguments: list[tuple[Any, ...]] = []

    def remote(self, *arguments: Any) -> Response:
        self.begun.set()
        self.arguments.append(arguments)
        self.responses.append(Response(*self._calls[min(len(self.responses), len(self._calls) - 1)]))
        return self.responses[-1]

    @property
    def cancelled(self) -> list[bool]:
        return [response.cancelled for response in self.responses]


class Handle:
    """A handle whose every attribute is one method; `options` is noted."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.given: dict[str, Any] = {}

    def options(self, **given: Any) -> Handle:
        self.given |= given
        return self

    def __getattr__(self, name: str) -> Method:
        return self._method
