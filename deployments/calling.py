"""One call of a replica: within the answer's deadline, tried again when the replica died, cancelled with its caller.

Every method that is called here may be called twice without harm: replicas keep no state that a call changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import ray.exceptions
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError

from resin_core.errors import BusyError, DeadlineError, ReplicaError, ResinError
from resin_core.llm.protocol import Deadline

LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.ActorUnavailableError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.WorkerCrashedError,
    # Ray ended its process because the machine ran out of memory.
    ray.exceptions.OutOfMemoryError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
"""The replica, its node or the way to it is gone; another one can answer. A user exception is none of these."""
_PAUSE_S, _MOST_PAUSE_S = 0.05, 2.0
_END = object()


class HalfWayError(ReplicaError):
    """The replica was lost after some of what it yields had come."""


class Calls:
    """Calls of deployments' methods, at most `attempts` tries each. `lost` counts the replicas that died under one."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self.lost = 0

    async def one(self, method: Any, deadline: Deadline, *arguments: Any) -> Any:
        """The result of `method`, a handle's method.

        Raises what the replica raised (ResinError kinds), DeadlineError, BusyError when too many calls wait already,
        and ReplicaError when every try lost its replica.
        """
        for attempt in range(1, self._attempts + 1):
            response: Any = None
            try:
                with _own_errors():
                    async with _within(deadline):
                        response = method.remote(*arguments)
                        result = await response
                response = None
                return result
            except LOST as error:
                await self._again(attempt, error, deadline)
            finally:
                _cancel(response)
        raise AssertionError("unreachable")

    async def stream(self, method: Any, deadline: Deadline, *arguments: Any) -> AsyncIterator[Any]:
        """What `method`, a streaming handle's method, yields; raises as `one`.

        A replica that dies under it is replaced as long as nothing has come: what follows is up to the caller, who
        gets HalfWayError then.
        """
        for attempt in range(1, self._attempts + 1):
            response: Any = None
            begun = False
            try:
                with _own_errors():
                    while True:
                        async with _within(deadline):
                            if response is None:
                                response = method.remote(*arguments)
                            item = await anext(response, _END)
                        if item is _END:
                            response = None
                            return
                        begun = True
                        yield item
            except LOST as error:
                if begun:
                    self.lost += 1
                    raise HalfWayError("the replica that wrote the answer was lost half-way") from error
                await self._again(attempt, error, deadline)
            finally:
                _cancel(response)

    async def _again(self, attempt: int, error: Exception, deadline: Deadline) -> None:
        self.lost += 1
        if attempt >= self._attempts:
            raise ReplicaError(f"{attempt} replicas in turn were lost under a call") from error
        # Jitter: the calls that one death interrupted need not all come back at once.
        pause_s = min(_PAUSE_S * 2**attempt, _MOST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        await asyncio.sleep(min(pause_s, deadline.remaining_s()))


@asynccontextmanager
async def _within(deadline: Deadline) -> AsyncIterator[None]:
    """Raises DeadlineError when the time is up. A TimeoutError that the replica raised is another matter."""
    limit = asyncio.timeout(deadline.remaining_s())
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise _too_late() from None


def _cancel(response: Any) -> None:
    """Ends a call that nobody waits for any more."""
    if response is not None:
        # Of a call that reached no replica this raises once more what the call did.
        with suppress(Exception):
            response.cancel()


@contextmanager
def _own_errors() -> Iterator[None]:
    """A replica's own error instead of Ray's wrapping of it."""
    try:
        yield
    except BackPressureError:
        raise BusyError("all replicas are busy and too many calls wait already; ask again later") from None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error, LOST):
            raise
        cause = error.cause
        if isinstance(cause, ResinError):
            raise cause from None
        # A replica may itself have lost another one.
        if isinstance(cause, LOST):
            raise cause from None
        raise


def _too_late() -> DeadlineError:
    return DeadlineError("the deadline for this answer passed; raise strategies.deadline_s")
