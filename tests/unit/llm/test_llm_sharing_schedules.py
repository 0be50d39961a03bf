"""What no schedule of reports may bring about: a slot given out twice, a client without a share."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from resin_core.llm.sharing import Shares, divided


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Worker:
    """A client with a real limit; its report and the answer to it take their time."""

    limit: int = 0
    running: int = 0
    backlog: int = 0
    overloads: int = 0
    answer: int | None = None


STEP = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["report"] * 4 + ["answer"] * 4 + ["begin"] * 3 + ["end"] * 2 + ["overload", "wait", "vanish"]),
    st.integers(0, 12),
)


@settings(max_examples=100, deadline=None)
@given(total=st.integers(1, 12), steps=st.lists(STEP, min_size=60, max_size=100))
def test_no_schedule_gives_a_slot_out_twice(total, steps):
    clock = Clock()
    shares = Shares(total, stale_s=10, clock=clock)
    workers = [Worker() for _ in range(3)]
    # The most each may have running: it reported that, was told that, or works under that until it is told otherwise.
    held: dict[str, int] = {}

    def report(number: int) -> int:
        worker, name, known = workers[number], f"w{number}", shares.granted
        had, others = known.get(name, 0), sum(held[other] for other in known if other != name)
        all_had = others + (held[name] if name in known else 0)
        share = shares.report(name, worker.running, worker.backlog, worker.overloads)
        held[name] = max(had, share, worker.running)
        assert 0 <= share <= max(had, shares.limit - others), "only out of what is surely free, or its own already"
        assert sum(held[other] for other in shares.granted) <= max(shares.limit, all_had)
        return share

    for number, what, amount in steps:
        worker = workers[number]
        if what == "report" and worker.answer is None:
            worker.backlog = amount
            worker.answer = report(number)
        elif what == "answer" and worker.answer is not None:
            worker.limit, worker.answer = worker.answer, None
        elif what == "begin":
            worker.running = max(worker.running, worker.limit)
        elif what == "end":
            worker.running -= min(amount, worker.running)
        elif what == "overload":
            worker.overloads += 1
        elif what == "wait":
            # Everybody is heard from again before stale_s have passed.
            clock.now += amount / 4
            for other, peer in enumerate(workers):
                if f"w{other}" in shares.granted and peer.answer is None:
                    peer.limit = report(other)
                elif peer.answer is not None:
                    peer.limit, peer.answer = peer.answer, None
        elif what == "vanish":
            # The process ends, and its calls with it; its successor knows nothing, and may be taken for it.
            if amount % 2:
                shares.leave(f"w{number}")
            workers[number] = Worker()
        assert sum(peer.running for peer in workers) <= total, "more calls run than the limit ever was"


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(1, 30),
    wanted=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_every_client_has_a_share_within_four_rounds_whatever_went_before(total, wanted, order):
    shares = Shares(max(total, len(wanted)), clock=Clock())
    names = [f"c{at}" for at in range(len(wanted))]
    limits = dict.fromkeys(names, 0)

    def rounds(number: int, demands: list[int]) -> None:
        for _ in range(number):
            turn = list(zip(names, demands, strict=True))
            order.shuffle(turn)
            for name, demand in turn:
                used = min(limits[name], demand)
                limits[name] = shares.report(name, used, demand - used, 0)

    rounds(2, [first for first, _ in wanted])
    then = [second for _, second in wanted]
    # In the first round targets still mix old demands with new; the second tells everybody the right one; in the third
    # the first to report still finds what others may hold until they have heard of it.
    rounds(4, then)
    even = divided(shares.limit, {name: then[names.index(name)] for name in shares.granted})
    assert limits == even and min(even.values()) >= 1
