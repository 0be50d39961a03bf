from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray.exceptions
from ray.serve._private.common import DeploymentID, RequestMetadata
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError
from ray.serve.handle import DeploymentResponse

from deployments import calling
from deployments.calling import Calls, HalfWayError
from resin_core.errors import BusyError, DeadlineError, LLMServerError, ReplicaError, UnknownIdError
from resin_core.llm.protocol import Deadline
from resin_core.llm.streams import closing
from tests.unit.deployments.handles import HANGS, Method, wrapped

LONG_S = 30.0
DEATHS: list[Callable[[], Exception]] = [
    ray.exceptions.RayActorError,
    ray.exceptions.ActorDiedError,
    lambda: ray.exceptions.ActorUnavailableError("away", b"0" * 16),
    lambda: ray.exceptions.NodeDiedError("node"),
    lambda: ray.exceptions.OwnerDiedError("0" * 56, "", ""),
    ray.exceptions.WorkerCrashedError,
    lambda: ray.exceptions.OutOfMemoryError("memory"),
    lambda: DeploymentUnavailableError(DeploymentID("planner")),
    lambda: ReplicaUnavailableError("planner#1"),
]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_PAUSE_S", 0.0)


async def all_of(calls: Calls, method: Method, deadline_s: float = LONG_S) -> list[Any]:
    async with closing(calls.stream(method, Deadline.after(deadline_s), "question")) as items:
        return [item async for item in items]


async def either(way: str, calls: Calls, method: Method, deadline_s: float = LONG_S) -> Any:
    """The result of a call, or of a stream of one item."""
    if way == "one":
        return await calls.one(method, Deadline.after(deadline_s), "question")
    (item,) = await all_of(calls, method, deadline_s)
    return item


both = pytest.mark.parametrize("way", ["one", "stream"])


@both
async def test_a_result_is_passed_on_and_its_call_is_left_alone(way: str) -> None:
    method, calls = Method("plan"), Calls(4)
    assert await either(way, calls, method) == "plan"
    assert (method.arguments, method.cancelled, calls.lost) == ([("question",)], [False], 0)


@both
@pytest.mark.parametrize("death", DEATHS)
async def test_a_call_whose_replica_died_is_made_again(way: str, death: Callable[[], Exception]) -> None:
    method, calls = Method(death(), wrapped(death()), "plan"), Calls(3)
    assert await either(way, calls, method) == "plan"
    assert (len(method.arguments), set(method.arguments), calls.lost) == (3, {("question",)}, 2)


@both
async def test_the_last_try_is_the_last(way: str) -> None:
    method, calls = Method(ray.exceptions.RayActorError()), Calls(3)
    with pytest.raises(ReplicaError, match="3 replicas in turn") as caught:
        await either(way, calls, method)
    assert type(caught.value) is ReplicaError
    assert isinstance(caught.value.__cause__, ray.exceptions.RayActorError)
    assert (len(method.arguments), calls.lost) == (3, 3)


@both
@pytest.mark.parametrize(
    "error",
    [UnknownIdError("no such document"), LLMServerError("it failed", 503, 7.0), DeadlineError("late"), BusyError("b")],
)
async def test_a_replicas_own_error_comes_as_it_was_raised_and_only_once(way: str, error: Exception) -> None:
    method, calls = Method(wrapped(error)), Calls(4)
    with pytest.raises(type(error)) as caught:
        await either(way, calls, method)
    assert caught.value is error
    assert not isinstance(caught.value, ray.exceptions.RayTaskError)
    assert (len(method.arguments), calls.lost) == (1, 0)


@both
async def test_an_error_that_is_not_ours_is_not_tried_again(way: str) -> None:
    for error in (wrapped(ValueError("bug")), RuntimeError("no router")):
        method = Method(error)
        with pytest.raises(type(error)) as caught:
            await either(way, Calls(4), method)
        assert caught.value is error
        assert len(method.arguments) == 1


@both
async def test_a_timeout_of_the_replicas_own_is_no_deadline(way: str) -> None:
    method = Method(wrapped(TimeoutError("storage does not answer")))
    with pytest.raises(TimeoutError) as caught:
        await either(way, Calls(4), method)
    assert not isinstance(caught.value, DeadlineError)


@both
async def test_a_full_queue_is_said_to_be_busy(way: str) -> None:
    method, calls = Method(BackPressureError(5, 5)), Calls(4)
    with pytest.raises(BusyError, match="busy"):
        await either(way, calls, method)
    assert (len(method.arguments), calls.lost) == (1, 0)


@pytest.mark.parametrize(
    ("refused", "raised"),
    [
        (BackPressureError(5, 5), BusyError),
        (DeploymentUnavailableError(DeploymentID("planner")), ReplicaError),
    ],
)
async def test_serves_own_response_to_a_call_that_reached_no_replica(
    refused: Exception, raised: type[Exception]
) -> None:
    class Refusing:
        def remote(self) -> DeploymentResponse[Any]:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            future.set_exception(refused)
            return DeploymentResponse(future, RequestMetadata("r", "r"))

    with pytest.raises(raised):
        await Calls(2).one(Refusing(), Deadline.after(LONG_S))


@both
async def test_the_deadline_ends_the_call(way: str) -> None:
    method, calls = Method(HANGS), Calls(4)
    with pytest.raises(DeadlineError, match=r"strategies\.deadline_s"):
        await either(way, calls, method, 0.02)
    assert (method.cancelled, calls.lost) == ([True], 0)


@both
async def test_after_the_deadline_nothing_is_called(way: str) -> None:
    method = Method("plan")
    with pytest.raises(DeadlineError):
        await either(way, Calls(4), method, -1.0)
    assert method.arguments == []


@both
async def test_no_pause_is_longer_than_the_time_left(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_PAUSE_S", 100.0)
    monkeypatch.setattr(calling, "_MOST_PAUSE_S", 100.0)
    method = Method(ray.exceptions.RayActorError())
    begun = time.monotonic()
    with pytest.raises(DeadlineError):
        await either(way, Calls(20), method, 0.05)
    assert time.monotonic() - begun < 5.0


async def test_pauses_grow_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    with pytest.raises(ReplicaError):
        await Calls(20).one(Method(ray.exceptions.RayActorError()), Deadline.after(LONG_S))
    assert len(pauses) == 19
    assert 0.05 <= pauses[0] <= 0.1 < 1.0 <= pauses[-1] <= 2.0


@both
async def test_a_caller_that_is_cancelled_cancels_its_call(way: str) -> None:
    method = Method(HANGS)
    task = asyncio.create_task(either(way, Calls(4), method))
    await method.begun.wait()
    await asyncio.sleep(0.01)
    assert method.cancelled == [False]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert method.cancelled == [True]


async def test_a_stream_yields_all_in_order() -> None:
    method = Method(("a", "b", "c"))
    assert await all_of(Calls(4), method) == ["a", "b", "c"]
    assert method.cancelled == [False]


async def test_a_stream_that_has_begun_is_not_begun_again() -> None:
    method, calls = Method(("a", ray.exceptions.RayActorError())), Calls(4)
    seen: list[str] = []
    with pytest.raises(HalfWayError) as caught:
        async for item in calls.stream(method, Deadline.after(LONG_S)):
            seen.append(item)
    assert isinstance(caught.value, ReplicaError)
    assert (seen, len(method.arguments), calls.lost) == (["a"], 1, 1)


async def test_an_error_after_the_beginning_is_the_replicas_own() -> None:
    error = UnknownIdError("gone")
    with pytest.raises(UnknownIdError) as caught:
        await all_of(Calls(4), Method(("a", wrapped(error))))
    assert caught.value is error


async def test_a_reader_that_stops_cancels_the_stream() -> None:
    method = Method(("a", "b"))
    async with closing(Calls(4).stream(method, Deadline.after(LONG_S))) as items:
        assert await anext(items) == "a"
    assert method.cancelled == [True]


async def test_the_deadline_holds_between_items_too() -> None:
    method = Method(("a", HANGS))
    seen: list[str] = []
    with pytest.raises(DeadlineError):
        async for item in Calls(4).stream(method, Deadline.after(0.05)):
            seen.append(item)
    assert (seen, method.cancelled) == (["a"], [True])


async def test_the_time_a_reader_takes_is_not_cut_off_in_its_hands() -> None:
    """A reader slower than the deadline gets what it asks for next as an error, and is not cancelled itself."""
    items = Calls(4).stream(Method(("a", "b")), Deadline.after(0.02))
    assert await anext(items) == "a"
    await asyncio.sleep(0.04)
    with pytest.raises(DeadlineError):
        await anext(items)
