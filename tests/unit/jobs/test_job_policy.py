"""When a run stops itself, and that a budget shared out is never exceeded."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import policy
from jobs.orders import ActorReport, Verdict
from jobs.watch import Watch
from resin_core.config import IndexingSection, LLMSection
from resin_core.llm.budget import cost_of
from resin_core.records import Usage

SETTINGS = IndexingSection()


def report(**values: object) -> ActorReport:
    return ActorReport(**{"client": "a", **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reports", "stop"),
    [
        ([], ""),
        ([report()], ""),
        ([report(failing_s=44.0, silent_s=60.0)], ""),
        ([report(failing_s=46.0, silent_s=60.0, cause="connection refused")], "endpoint"),
        # A reply came while other calls failed: the endpoint is there.
        ([report(failing_s=46.0, silent_s=2.0)], ""),
        ([report(failing_s=46.0, silent_s=60.0), report(client="b", silent_s=1.0)], ""),
        ([report(refused_s=599.0, silent_s=700.0)], ""),
        ([report(refused_s=601.0, silent_s=700.0, cause="HTTP 429")], "endpoint"),
        ([report(fatal="HTTP 401"), report(client="b")], "fatal"),
    ],
)
def test_a_lost_model_is_told_from_a_bad_moment(reports: list[ActorReport], stop: str) -> None:
    found = policy.of_endpoint(reports, SETTINGS)
    assert found.stop == stop
    if stop:
        assert any(one.cause in found.message or one.fatal in found.message for one in reports)
        assert "the same command goes on from there" in found.message


@pytest.mark.parametrize(
    ("reports", "stop"),
    [
        ([report(documents=19, failed=19)], ""),
        ([report(documents=20, failed=4, units=1)], ""),
        ([report(documents=20, failed=5, units=9, causes=("a: HTTP 500", "b: no reply"))], "failures"),
        ([report(documents=12, failed=3, units=9), report(client="b", documents=8, failed=2)], "failures"),
        ([report(documents=20)], "zero-yield"),
        ([report(documents=20), report(client="b", documents=1, units=1)], ""),
    ],
)
def test_ratios_are_judged_when_enough_is_done(reports: list[ActorReport], stop: str) -> None:
    found = policy.of_yield(reports, SETTINGS)
    assert found.stop == stop
    assert all(cause in found.message for one in reports for cause in one.causes)


def test_a_run_that_failed_altogether_is_not_published_however_small() -> None:
    assert policy.of_run(report(documents=3, failed=3, causes=("x: HTTP 500",)), SETTINGS).stop == "failures"
    assert policy.of_run(report(documents=3, failed=2, units=1), SETTINGS) == Verdict()


def test_the_nearer_of_two_budgets_counts() -> None:
    llm = LLMSection(prompt_price=10.0, completion_price=20.0)
    used = Usage(llm_calls=1, prompt_tokens=100_000, completion_tokens=50_000)
    assert cost_of(used, llm) == pytest.approx(2.0)
    assert policy.price_of(IndexingSection(), llm)(used) == 0.0
    assert policy.price_of(IndexingSection(max_llm_tokens=300_000), llm)(used) == pytest.approx(0.5)
    both = IndexingSection(max_llm_tokens=300_000, max_cost=2.5)
    assert policy.price_of(both, llm)(used) == pytest.approx(0.8)


def test_only_when_no_actor_can_go_on_is_a_budget_used_up() -> None:
    limited = IndexingSection(max_llm_tokens=1000, max_cost=2.0)
    some = [report(starved=True, prompt_tokens=400, completion_tokens=500, llm_calls=3), report(client="b")]
    assert policy.starved(some, limited, LLMSection()) == Verdict()
    found = policy.starved(some[:1], limited, LLMSection(prompt_price=1000.0))
    assert found.stop == "budget"
    assert "900 of indexing.max_llm_tokens = 1,000 tokens and 0.4 of indexing.max_cost = 2 are used" in found.message


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1), st.booleans()), max_size=60))
def test_what_clients_may_spend_together_is_never_more_than_all(steps: list[tuple[int, float, bool]]) -> None:
    """Each client spends up to what it was last told, whenever it hears of it."""
    allowances = policy.Allowances()
    granted: dict[str, float] = {}
    spent: dict[str, float] = {}
    for number, share, lost in steps:
        client = str(number)
        spent[client] = spent.get(client, 0.0) + share * (granted.get(client, 0.0) - spent.get(client, 0.0))
        if lost and client in granted:
            allowances.grant(client, spent[client])
            allowances.lost(client)
            granted[client] = spent[client]
            continue
        granted[client] = allowances.grant(client, spent[client])
        assert sum(granted.values()) <= 1 + 1e-9
        assert granted[client] >= spent[client] - 1e-12


def test_the_last_client_gets_all_that_is_left() -> None:
    allowances = policy.Allowances()
    assert allowances.grant("a", 0.0) == 1.0
    assert allowances.grant("b", 0.0) == 0.0
    assert allowances.grant("a", 0.1) == pytest.approx(0.1 + 0.9 / 2)
    assert allowances.grant("b", 0.0) == pytest.approx(0.45)
    allowances.lost("b")
    granted = [allowances.grant("a", 0.2) for _ in range(3)]
    assert granted[-1] == pytest.approx(0.2 + 0.8 / 2)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(clock: Clock, monkeypatch: pytest.MonkeyPatch, **values: object) -> Watch:
    monkeypatch.setattr(Watch, "_tell_metrics", lambda self: None)
    return Watch(IndexingSection(**values), LLMSection(max_concurrency=8), clock)  # type: ignore[arg-type]


def test_the_watch_shares_the_limit_and_passes_orders_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    one = watch(clock, monkeypatch)
    assert one.report(report(waiting=20)).limit == 8
    assert one.report(report(client="b", waiting=20)).limit == 0
    limits = []
    for _ in range(4):
        limits = [one.report(report(client=name, in_use=4, waiting=20)).limit for name in "ab"]
    assert limits == [4, 4]
    assert math.isinf(one.report(report(waiting=20)).allowance)
    one.halt("enough")
    assert one.report(report()).stop == "told"
    assert one.verdict(1, 0, 1) == Verdict("told", "enough")


def test_an_actor_that_is_gone_keeps_no_other_from_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    one = watch(clock, monkeypatch)
    one.report(report(client="gone", documents=5, units=3))
    clock.now = 30.0
    orders = one.report(report(failing_s=50.0, silent_s=50.0, cause="down"))
    assert orders.stop == "endpoint"
    assert one.read() == (5, 3)


def test_a_budget_gives_what_is_left_and_then_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    one = watch(Clock(), monkeypatch, max_llm_tokens=1000)
    assert one.report(report()).allowance == 1.0
    orders = one.report(report(spent=0.97, starved=True, prompt_tokens=970))
    assert orders.stop == "budget"
    assert "970 of indexing.max_llm_tokens = 1,000 tokens" in one.verdict(0, 0, 0).message
