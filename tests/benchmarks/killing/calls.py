"""What the model's log says of a job: which calls were asked again, and whether a kill explains each of them.

A call may be asked again when it was in flight at a kill: begun before the kill had taken full effect, and not ended
`stored_within_s` or more before it. The last means that a reply counts as in flight until its client has had that
long to store it. Between a kill and its full effect lie the deaths of those who depended on the victim: the workers
of a killed driver or node go on for a moment, and may even begin calls.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STORED_WITHIN_S = 0.25


@dataclass(frozen=True)
class Kill:
    """A kill at `at_s` on the monotonic clock, whose dependents had all ended at `settled_s`."""

    kind: str
    victim: str
    at_s: float
    settled_s: float


@dataclass(frozen=True)
class Call:
    """One request to the model. `outcome` is the server's word for its end, or lost when the server died first."""

    call: str
    digest: str
    title: str
    started_s: float
    ended_s: float = math.inf
    outcome: str = "lost"

    @property
    def answered(self) -> bool:
        """Whether the whole reply was sent."""
        return self.outcome == "done"


@dataclass(frozen=True)
class Repeat:
    """A call that was asked again; `kill` is the number of the kill that explains it, None when none does.

    `answered`: an earlier one had been answered in full, so that money was paid twice.
    """

    call: Call
    earlier: Call
    answered: bool
    kill: int | None


@dataclass
class Account:
    """A job's calls. `in_flight[i]` and `repeated[i]` belong to kill i; `repeated` counts answered repeats only."""

    calls: int = 0
    distinct: int = 0
    torn_lines: int = 0
    in_flight: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)

    @property
    def paid_twice(self) -> int:
        """Calls answered before and asked again."""
        return sum(repeat.answered for repeat in self.repeats)

    def problems(self) -> list[str]:
        """What no kill explains, one line each."""
        found = []
        for repeat in self.repeats:
            if repeat.kill is None:
                before = "answered" if repeat.answered else repeat.earlier.outcome
                found.append(f"a call for {repeat.call.title!r} was asked again: {before} before, in flight at no kill")
        for at, (repeated, most) in enumerate(zip(self.repeated, self.in_flight, strict=True)):
            if repeated > most:
                found.append(f"kill {at}: {repeated} calls repeated, but only {most} were in flight")
        return found


def read_log(path: Path) -> tuple[list[Call], int]:
    """The calls in the order of their starts, and how many lines a killed server left unfinished."""
    calls: dict[str, Call] = {}
    torn = 0
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
            if line["event"] == "start":
                calls[line["id"]] = Call(line["id"], line["digest"], line["title"], line["time"])
            else:
                begun = calls[line["id"]]
                calls[line["id"]] = Call(
                    begun.call, begun.digest, begun.title, begun.started_s, line["time"], line["outcome"]
                )
        except (ValueError, KeyError, TypeError):
            torn += 1
    return sorted(calls.values(), key=lambda call: call.started_s), torn


def account(
    calls: Sequence[Call], kills: Sequence[Kill], stored_within_s: float = STORED_WITHIN_S, torn_lines: int = 0
) -> Account:
    """Every call after the first with the same digest, held against the kills."""
    ended = [_ended(call, kills) for call in calls]
    found = Account(calls=len(ended), torn_lines=torn_lines)
    found.in_flight = [sum(_in_flight(call, kill, stored_within_s) for call in ended) for kill in kills]
    found.repeated = [0] * len(kills)
    by_digest: dict[str, list[Call]] = {}
    for call in ended:
        before = by_digest.setdefault(call.digest, [])
        if before:
            repeat = _repeat(call, before, kills, stored_within_s)
            found.repeats.append(repeat)
            if repeat.kill is not None and repeat.answered:
                found.repeated[repeat.kill] += 1
        before.append(call)
    found.distinct = len(by_digest)
    return found


def ends(calls: Iterable[Call]) -> int:
    """How many were answered in full."""
    return sum(call.answered for call in calls)


def _repeat(call: Call, before: list[Call], kills: Sequence[Kill], stored_within_s: float) -> Repeat:
    answered = any(earlier.answered and earlier.ended_s <= call.started_s for earlier in before)
    # The last one asked had itself to be explained, so only it matters here.
    earlier = before[-1]
    explaining = [
        at
        for at, kill in enumerate(kills)
        if kill.at_s <= call.started_s and _in_flight(earlier, kill, stored_within_s)
    ]
    return Repeat(call, earlier, answered, explaining[-1] if explaining else None)


def _in_flight(call: Call, kill: Kill, stored_within_s: float) -> bool:
    return call.started_s <= kill.settled_s and call.ended_s >= kill.at_s - stored_within_s


def _ended(call: Call, kills: Sequence[Kill]) -> Call:
    """A call without an end was lost when its server was killed."""
    if call.ended_s < math.inf:
        return call
    deaths = [kill.settled_s for kill in kills if kill.kind == "model" and kill.settled_s >= call.started_s]
    end = min(deaths, default=math.inf)
    return Call(call.call, call.digest, call.title, call.started_s, end, "lost")
