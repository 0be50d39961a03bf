"""One call of a replica: within the answer's deadline, tried again when the replica died, cancelled with its caller.

Every method that is called here may be called twice without harm: replicas keep no state that a call changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import ray.exceptions
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError

from resin_core.errors import BusyError, DeadlineError, ReplicaError, ResinError
from resin_core.llm.protocol import Deadline

# The replica, its node or the way to it is gone; another one can answer. A user exception is none of these.
_LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.ActorUnavailableError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.WorkerCrashedError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
_PAUSE_S = 0.05


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
                    async with asyncio.timeout(deadline.remaining_s()):
                        response = method.remote(*arguments)
                        return await response
            except _LOST as error:
                await self._again(attempt, error)
            except TimeoutError:
                raise _too_late() from None
            finally:
                # After an end of whatever kind but a result; nothing once the result is there.
                if response is not None:
                    response.cancel()
        raise AssertionError("unreachable")

    async def stream(self, method: Any, deadline: Deadline, *arguments: Any) -> AsyncIterator[Any]:
        """What `method`, a streaming handle's method, yields; raises as `one`.

        A replica that dies under it is replaced as long as nothing has come: what follows is up to the caller, who
        gets ReplicaError then.
        """
        for attempt in range(1, self._attempts + 1):
            response: Any = None
            begun = False
            try:
                with _own_errors():
                    response = method.remote(*arguments)
                    while True:
                        try:
                            async with asyncio.timeout(deadline.remaining_s()):
                                item = await anext(response)
                        except StopAsyncIteration:
                            return
                        begun = True
                        yield item
            except _LOST as error:
                if begun:
                    self.lost += 1
                    raise ReplicaError("the replica that wrote the answer was lost half-way") from error
                await self._again(attempt, error)
            except TimeoutError:
                raise _too_late() from None
            finally:
                if response is not None:
                    response.cancel()

    async def _again(self, attempt: int, error: Exception) -> None:
        self.lost += 1
        if attempt >= self._attempts:
            raise ReplicaError(f"{attempt} replicas in turn were lost under a call") from error
        # Jitter: the calls that one death interrupted need not all come back at once.
        await asyncio.sleep(_PAUSE_S * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


@contextmanager
def _own_errors() -> Iterator[None]:
    """A replica's own error instead of Ray's wrapping of it."""
    try:
        yield
    except BackPressureError:
        raise BusyError("all replicas are busy and too many calls wait already; ask again later") from None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error, _LOST):
            raise
        cause = error.cause
        if isinstance(cause, ResinError):
            raise cause from None
        # A replica may itself have lost another one.
        if isinstance(cause, _LOST):
            raise cause from None
        raise


def _too_late() -> DeadlineError:
    return DeadlineError("the deadline for this answer passed; raise strategies.deadline_s")
