"""One limit over several clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.llm.sharing import Shares, divided


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def settled(shares: Shares, demands: dict[str, int], rounds: int = 3) -> dict[str, int]:
    """Shares after `rounds` reports of each client, which always uses all it may."""
    limits = dict.fromkeys(demands, 0) | shares.granted
    for _ in range(rounds):
        for name, demand in demands.items():
            used = min(limits[name], demand)
            limits[name] = shares.report(name, used, demand - used, 0)
    return limits


# ---- division


@pytest.mark.parametrize(
    ("limit", "demands", "expected"),
    [
        (8, (5, 5), (4, 4)),
        (8, (9, 9, 9), (3, 3, 2)),
        (8, (9, 0), (7, 1)),
        (10, (2, 9, 9), (2, 4, 4)),
        (10, (9, 2, 9, 1), (4, 2, 3, 1)),
        (10, (1, 7), (2, 8)),
        (8, (1,), (8,)),
        (8, (0, 0), (1, 1)),
        (3, (9, 9, 0), (1, 1, 1)),
    ],
)
def test_even_by_demand_with_the_remainder_in_order(limit, demands, expected):
    assert tuple(divided(limit, {f"c{at}": demand for at, demand in enumerate(demands)}).values()) == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 60))
def test_division_is_even_whole_and_no_more_than_the_limit(demands, spare):
    limit = len(demands) + spare
    named = {str(at): demand for at, demand in enumerate(demands)}
    shares = divided(limit, named)
    assert min(shares.values()) >= 1 and sum(shares.values()) <= limit
    assert not any(demands) or sum(shares.values()) == limit
    lacking = [share for name, share in shares.items() if share < named[name]]
    assert not lacking or max(lacking) - min(lacking) <= 1
    if lacking:
        assert max(share for share in shares.values()) <= max(lacking) + 1
        assert all(share <= max(1, named[name]) for name, share in shares.items())


# ---- clients come, work, rest and go


def test_a_single_client_has_it_all_and_a_second_gets_its_half_once_it_is_free(clock):
    shares = Shares(8, clock=clock)
    assert shares.report("a", 0, 20, 0) == 8
    assert shares.report("b", 0, 20, 0) == 0
    assert shares.report("a", 8, 12, 0) == 4, "it is told less than it uses"
    assert shares.report("b", 0, 20, 0) == 0, "a's calls still run"
    assert shares.report("a", 6, 12, 0) == 4
    assert shares.report("b", 0, 20, 0) == 2
    assert shares.report("a", 4, 12, 0) == 4 and shares.report("b", 2, 18, 0) == 4
    assert shares.granted == {"a": 4, "b": 4}


def test_a_share_given_up_is_not_free_before_the_client_has_heard_of_it(clock):
    shares = Shares(8, clock=clock)
    shares.report("a", 0, 20, 0)
    shares.report("b", 0, 20, 0)
    # The answer, 4, is on its way: until it is there a may still begin calls up to 8.
    assert shares.report("a", 0, 20, 0) == 4
    assert shares.report("b", 0, 20, 0) == 0
    assert shares.report("a", 4, 16, 0) == 4
    assert shares.report("b", 0, 20, 0) == 4


def test_an_idle_client_gives_up_its_share_and_gets_it_back(clock):
    shares = Shares(8, clock=clock)
    assert settled(shares, {"a": 9, "b": 9}) == {"a": 4, "b": 4}
    assert settled(shares, {"a": 9, "b": 0}) == {"a": 7, "b": 1}
    assert settled(shares, {"a": 0, "b": 0}) == {"a": 1, "b": 1}
    assert settled(shares, {"a": 9, "b": 9}) == {"a": 4, "b": 4}


def test_a_silent_client_is_dropped_and_its_share_is_free(clock):
    shares = Shares(8, stale_s=10, clock=clock)
    settled(shares, {"a": 9, "b": 9})
    clock.now += 9
    assert shares.report("a", 4, 5, 0) == 4
    clock.now += 1
    assert shares.granted == {"a": 4}
    assert shares.report("a", 4, 5, 0) == 8


def test_a_client_that_leaves_frees_its_share_at_once(clock):
    shares = Shares(8, clock=clock)
    settled(shares, {"a": 9, "b": 9})
    shares.leave("b")
    shares.leave("never seen")
    assert shares.report("a", 4, 5, 0) == 8


def test_with_more_clients_than_the_limit_some_wait_and_all_get_their_turn(clock):
    shares = Shares(2, clock=clock)
    names = [f"c{at}" for at in range(5)]
    limits, turns = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for _ in range(50):
        for name in names:
            limits[name] = shares.report(name, limits[name], 3, 0)
            turns[name] += limits[name]
        assert sum(limits.values()) <= 2
    assert min(turns.values()) >= 5


def test_with_more_clients_than_the_limit_those_with_work_come_first(clock):
    shares = Shares(2, clock=clock)
    assert settled(shares, {"a": 0, "b": 9, "c": 0, "d": 9}, rounds=5) == {"a": 0, "b": 1, "c": 0, "d": 1}


# ---- overload


def test_overloads_halve_the_limit_once_a_cooldown_down_to_one(clock):
    shares = Shares(20, clock=clock)
    assert shares.report("a", 0, 50, 0) == 20
    assert shares.report("a", 20, 30, 3) == 10 and shares.limit == 10 and shares.total == 20
    assert shares.report("a", 10, 40, 4) == 10, "the same burst"
    clock.now += 1
    seen = []
    for count in range(5, 11):
        seen.append(shares.report("a", 0, 50, count))
        clock.now += 0.999
        assert shares.report("a", 0, 50, count) == seen[-1], "no growth within a second, no new overload"
        clock.now += 0.001
    assert seen == [5, 3, 2, 1, 1, 1], "one back for each calm second before the next"


def test_the_limit_comes_back_by_a_twentieth_a_second_up_to_the_total(clock):
    shares = Shares(100, clock=clock)
    shares.report("a", 100, 50, 1)
    assert shares.limit == 50
    clock.now += 0.9
    assert shares.limit == 50
    clock.now += 0.1
    assert shares.limit == 55
    clock.now += 3.5
    assert shares.limit == 70
    clock.now += 0.5
    assert shares.report("a", 0, 200, 1) == 75, "the same count is no new overload"
    clock.now += 100
    assert shares.limit == 100


def test_overloads_within_the_cooldown_hold_the_growth_back(clock):
    shares = Shares(20, clock=clock)
    for count in range(1, 4):
        shares.report("a", 0, 50, count)
        clock.now += 0.3
    clock.now += 0.6
    assert shares.limit == 10
    clock.now += 0.2
    assert shares.limit == 11


def test_a_count_that_falls_is_a_client_begun_anew(clock):
    shares = Shares(20, clock=clock)
    shares.report("a", 0, 50, 9)
    clock.now += 30
    assert shares.report("a", 0, 50, 0) == 20
    assert shares.report("a", 0, 50, 2) == 10
    clock.now += 30
    assert shares.report("a", 0, 50, 1) == 10, "fallen to 1: one since it began anew"


def test_a_halved_limit_takes_from_each_what_is_too_much_and_stops_nobody(clock):
    shares = Shares(8, clock=clock)
    settled(shares, {"a": 9, "b": 9})
    assert shares.report("a", 4, 5, 1) == 2
    assert shares.report("b", 4, 5, 0) == 2
    assert settled(shares, {"a": 9, "b": 9}) == {"a": 2, "b": 2}


# ---- wrong values


@pytest.mark.parametrize("values", [{"total": 0}, {"total": 1, "stale_s": 0}, {"total": 1, "cooldown_s": -1}])
def test_settings_that_cannot_work_are_refused(values):
    with pytest.raises(ValueError, match=f"{[*values][-1]}={[*values.values()][-1]}"):
        Shares(**values)


@pytest.mark.parametrize("counts", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_negative_counts_are_refused_and_leave_no_trace(counts, clock):
    shares = Shares(4, clock=clock)
    with pytest.raises(ValueError, match=r"client 'a': .* none may be negative"):
        shares.report("a", *counts)
    assert shares.granted == {}
