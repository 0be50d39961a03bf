from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import ray.exceptions

from deployments import calling
from deployments.adapters import RemoteComposer, RemotePlanner, RemoteRetriever
from deployments.calling import Calls
from resin_core.errors import DeadlineError, LLMReplyError, ReplicaError
from resin_core.llm.protocol import Deadline
from resin_core.llm.streams import closing
from resin_core.records import Hop, QueryPlan, UnitKind
from resin_core.strategies.ports import Composed, Planned, Retrieved, Selected, Solved
from tests.asking import ALBA, ROWS

LONG_S = 30.0
ENDED = Composed(text="The lamp costs $12 [1].", citations=())
DIES = ray.exceptions.RayActorError()


class Call:
    """What one call of a handle's method comes to: steps to yield, errors to raise; awaited, the first one."""

    def __init__(self, steps: tuple[Any, ...]) -> None:
        self._items = self._run(steps)
        self.cancelled = False

    async def _run(self, steps: tuple[Any, ...]) -> AsyncIterator[Any]:
        for step in steps:
            if isinstance(step, Exception):
                raise step
            yield step

    def __await__(self) -> Any:
        return anext(self._items).__await__()

    def __aiter__(self) -> Call:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._items)

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """A deployment's handle: every method notes its arguments; its calls have the scripts in turn."""

    def __init__(self, *scripts: Any) -> None:
        self._scripts = [script if isinstance(script, tuple) else (script,) for script in scripts]
        self.asked: list[tuple[str, bool, tuple[Any, ...]]] = []
        self.calls: list[Call] = []

    def options(self, *, stream: bool) -> _Streaming:
        assert stream
        return _Streaming(self)

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name, streaming=False)

    def begin(self, name: str, streaming: bool, arguments: tuple[Any, ...]) -> Call:
        self.asked.append((name, streaming, arguments))
        self.calls.append(Call(self._scripts[len(self.calls)]))
        return self.calls[-1]


class _Streaming:
    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> _Method:
        return _Method(self._handle, name, streaming=True)


class _Method:
    def __init__(self, handle: Handle, name: str, streaming: bool) -> None:
        self._handle, self._name, self._streaming = handle, name, streaming

    def remote(self, *arguments: Any) -> Call:
        return self._handle.begin(self._name, self._streaming, arguments)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_PAUSE_S", 0.0)


async def composed(
    handle: Handle, streaming: bool = True, attempts: int = 2, seen: list[Any] | None = None
) -> list[Any]:
    """All pieces; `seen` holds those that came before an error."""
    found: list[Any] = [] if seen is None else seen
    composer = RemoteComposer(handle, Calls(attempts), streaming)
    async with closing(composer.compose("Which?", [ALBA], True, Deadline.after(LONG_S))) as pieces:
        async for piece in pieces:
            found.append(piece)
    return found


async def test_pieces_come_as_they_are_written() -> None:
    handle = Handle(("The lamp ", "costs $12.", ENDED))
    assert await composed(handle) == ["The lamp ", "costs $12.", ENDED]
    ((name, streaming, arguments),) = handle.asked
    assert (name, streaming, arguments[:3]) == ("compose", True, ("Which?", [ALBA], True))
    assert 0 < arguments[3] <= LONG_S


@pytest.mark.parametrize(
    ("second", "passed_on"),
    [
        (("The lamp ", "costs ", "$12."), ["The lamp ", "costs", " ", "$12."]),
        (("T", "he l", "amp costs $12."), ["The lamp ", "costs", " $12."]),
        (("The lamp costs", " $12."), ["The lamp ", "costs", " $12."]),
        (("The lamp costs",), ["The lamp ", "costs"]),
    ],
)
async def test_an_answer_begun_again_is_passed_on_from_where_it_broke_off(
    second: tuple[str, ...], passed_on: list[str]
) -> None:
    handle = Handle(("The lamp ", "costs", DIES), (*second, ENDED))
    assert await composed(handle) == [*passed_on, ENDED]
    assert [arguments[:3] for _, _, arguments in handle.asked] == [("Which?", [ALBA], True)] * 2


async def test_a_second_loss_may_come_earlier_or_later_than_the_first() -> None:
    handle = Handle(("The lamp ", DIES), ("The ", DIES), ("The lamp costs", DIES), ("The lamp costs $12.", ENDED))
    assert await composed(handle) == ["The lamp ", "costs", " $12.", ENDED]


async def test_an_answer_that_comes_out_otherwise_is_not_mixed_with_the_first() -> None:
    handle, seen = Handle(("The lamp ", DIES), ("The ", "price ", ENDED)), list[Any]()
    with pytest.raises(ReplicaError, match="otherwise"):
        await composed(handle, seen=seen)
    assert seen == ["The lamp "]
    assert len(handle.calls) == 2 and handle.calls[1].cancelled


async def test_an_answer_that_ends_before_what_was_passed_on_came_out_otherwise() -> None:
    handle, seen = Handle(("The lamp ", "costs", DIES), ("The lamp ", ENDED)), list[Any]()
    with pytest.raises(ReplicaError, match="otherwise"):
        await composed(handle, seen=seen)
    assert seen == ["The lamp ", "costs"]


async def test_replicas_that_are_lost_one_after_the_other_half_way() -> None:
    handle, seen = Handle(*[("The lamp ", DIES)] * 4), list[Any]()
    with pytest.raises(ReplicaError, match="4 replicas in turn") as caught:
        await composed(handle, seen=seen)
    assert type(caught.value) is ReplicaError, "what is not in the tree of errors is not told apart in metrics"
    assert seen == ["The lamp "]


async def test_replicas_that_are_lost_before_they_write_are_tried_so_often_as_any_call() -> None:
    handle = Handle(*[DIES] * 2)
    with pytest.raises(ReplicaError, match="2 replicas in turn"):
        await composed(handle, attempts=2)
    assert len(handle.calls) == 2


async def test_a_failure_of_the_model_is_not_tried_again() -> None:
    error = LLMReplyError("empty", "nothing came", "")
    task_error = ray.exceptions.RayTaskError("compose", "tb", error, proctitle="p", pid=1, ip="127.0.0.1")
    handle, seen = Handle(("The lamp ", task_error.as_instanceof_cause())), list[Any]()
    with pytest.raises(LLMReplyError) as caught:
        await composed(handle, seen=seen)
    assert caught.value is error
    assert len(handle.calls) == 1


async def test_a_reader_that_leaves_cancels_the_composition() -> None:
    handle = Handle(("The lamp ", "costs $12.", ENDED))
    composer = RemoteComposer(handle, Calls(2), streaming=True)
    async with closing(composer.compose("Which?", [ALBA], False, Deadline.after(LONG_S))) as pieces:
        assert await anext(pieces) == "The lamp "
    assert handle.calls[0].cancelled


async def test_without_a_stream_the_composition_comes_in_one_message() -> None:
    handle = Handle(DIES, ENDED)
    assert await composed(handle, streaming=False) == [ENDED]
    for name, streaming, arguments in handle.asked:
        assert (name, streaming, arguments[:3]) == ("compose_whole", False, ("Which?", [ALBA], True))
    assert len(handle.asked) == 2


@pytest.mark.parametrize("streaming", [True, False])
async def test_no_composition_begins_after_the_deadline(streaming: bool) -> None:
    handle = Handle()
    composer = RemoteComposer(handle, Calls(2), streaming)
    with pytest.raises(DeadlineError):
        await anext(composer.compose("Which?", [ALBA], False, Deadline.after(-1.0)))
    assert handle.asked == []


async def test_the_other_calls_hand_over_what_the_ports_are_given_and_the_time_left() -> None:
    deadline, calls = Deadline.after(LONG_S), Calls(2)
    hop = Hop(subquestion="Which?")
    planned, found = Planned(plan=QueryPlan(hops=(hop,))), Retrieved(candidates=(), passages={})
    chosen, solved = Selected(passages=(ALBA,), reason="chosen"), Solved(hop=1, answer="$12")
    handle = Handle(planned, found, chosen, solved)
    assert await RemotePlanner(handle, calls).plan("Which?", 4, deadline) == planned
    retriever = RemoteRetriever(handle, calls, "notes", "g3-0123456789ab")
    assert await retriever.search(("a", "b"), [UnitKind.RULE], 5, deadline) == found
    composer = RemoteComposer(handle, calls, streaming=True)
    assert await composer.select("Which?", (ALBA,), 500, deadline) == chosen
    assert await composer.solve(1, hop, ROWS[0], deadline) == solved
    assert [(name, arguments[:-1]) for name, _, arguments in handle.asked] == [
        ("plan", ("Which?", 4)),
        ("search", ("notes", "g3-0123456789ab", ["a", "b"], (UnitKind.RULE,), 5)),
        ("select", ("Which?", [ALBA], 500)),
        ("solve", (1, hop, list(ROWS[0]))),
    ]
    assert all(0 < arguments[-1] <= LONG_S for _, _, arguments in handle.asked)
