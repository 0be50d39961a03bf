from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from deployments.http.problems import status_of
from deployments.metrics import PASSAGES, SECONDS, AnswerMetrics, Makers, outcome_of, outcome_of_failure
from resin_core import errors
from resin_core.errors import ResinError
from resin_core.records import Trace, TraceEvent, Usage
from tests.asking import QUESTION, REPLIES, Asked, asked

LONG_AGO = Trace(trace_id="t1", question="q", strategy="resin", generation="g1-000000000000", events=())
ONE = Usage(llm_calls=1, prompt_tokens=30, completion_tokens=7)


class Kept:
    """Metrics that note what is recorded: name and tags to the values, in order."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, frozenset[tuple[str, str]]], list[float]] = {}
        self.keys: dict[str, tuple[str, ...]] = {}
        self.bounds: dict[str, list[float]] = {}
        self.kinds: dict[str, str] = {}

    def makers(self) -> Makers:
        return Makers(*(self._maker(kind) for kind in ("inc", "set", "observe")))

    def of(self, name: str, **tags: str) -> list[float]:
        return self.values.get((name, frozenset(tags.items())), [])

    def tags(self, name: str) -> list[dict[str, str]]:
        return [dict(tags) for known, tags in self.values if known == name]

    def _maker(self, method: str) -> Any:
        def make(name: str, description: str, tag_keys: tuple[str, ...], boundaries: list[float] | None = None) -> Any:
            assert description and name not in self.keys
            self.keys[name], self.kinds[name] = tag_keys, method
            if boundaries is not None:
                self.bounds[name] = boundaries

            def record(value: float, tags: dict[str, str]) -> None:
                # As Ray's do: each declared tag is given, and counters go up only.
                assert set(tags) == set(tag_keys) and all(isinstance(tag, str) for tag in tags.values())
                assert method != "inc" or value > 0
                self.values.setdefault((name, frozenset(tags.items())), []).append(value)

            return type("Metric", (), {method: staticmethod(record)})()

        return make


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def metrics(kept: Kept) -> AnswerMetrics:
    return AnswerMetrics(kept.makers())


def told(metrics: AnswerMetrics, question: Asked, failure: str = "") -> None:
    metrics.answered(question.recorder.trace(), question.answer, "default", failure)


def kinds_of_error() -> list[type[ResinError]]:
    return [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ResinError)]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "ok"), (304, "ok"), (400, "bad_request"), (404, "bad_request"), (413, "bad_request"),
        (422, "bad_request"), (401, "unauthorised"), (403, "unauthorised"), (429, "busy"), (499, "cancelled"),
        (500, "failed"), (502, "failed"), (503, "unavailable"), (504, "deadline"),
    ],
)  # fmt: skip
def test_outcomes_of_statuses(status: int, outcome: str) -> None:
    assert outcome_of(status) == outcome


@pytest.mark.parametrize("kind", kinds_of_error())
def test_a_failed_question_and_its_response_have_the_same_outcome(kind: type[ResinError]) -> None:
    error = kind.__new__(kind)
    assert outcome_of_failure(f"{kind.__name__}: as it went: {error}") == outcome_of(status_of(error))


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        ("", "ok"),
        ("cancelled", "cancelled"),
        ("KeyError: 'x'", "failed"),
        ("annotations: x", "failed"),
        ("Any", "failed"),
    ],
)
def test_outcomes_of_what_is_no_error_of_ours(failure: str, outcome: str) -> None:
    assert outcome_of_failure(failure) == outcome


async def test_an_answer_is_counted_with_its_stages_calls_and_evidence(metrics: AnswerMetrics, kept: Kept) -> None:
    question = await asked(hop_solvers=True, derivation="always")
    told(metrics, question)
    assert kept.of("resin_answers", index="default", strategy="resin", outcome="ok") == [1]
    assert {tags["stage"] for tags in kept.tags("resin_stage_seconds")} == {
        "plan", "retrieve", "select", "compose", "solve", "first_token", "total",
    }  # fmt: skip
    assert kept.of("resin_stage_seconds", stage="total") == [question.answer.timings_s["total"]]
    assert len(kept.of("resin_stage_seconds", stage="solve")) == 2
    assert kept.of("resin_evidence_passages", index="default") == [len(question.answer.evidence)]
    usage = question.recorder.usage
    for name, total in [
        ("resin_llm_calls", usage.llm_calls),
        ("resin_llm_prompt_tokens", usage.prompt_tokens),
        ("resin_llm_completion_tokens", usage.completion_tokens),
    ]:
        found = [sum(values) for (known, _), values in kept.values.items() if known == name]
        assert len(found) == 3 and sum(found) == total > 0
    assert {tags["prompt_id"] for tags in kept.tags("resin_llm_calls")} == {
        event.prompt_id for event in question.recorder.trace().events if event.prompt_id
    }
    assert not kept.tags("resin_fallbacks")


async def test_a_plan_that_fell_back_is_counted(metrics: AnswerMetrics, kept: Kept) -> None:
    told(metrics, await asked(instead={"plan": "no plan at all"}))
    assert kept.of("resin_fallbacks", kind="plan") == [1]
    assert kept.of("resin_fallbacks", kind="call") == [1]


@pytest.mark.parametrize("reply", ["nothing", '{"keep": []}'])
async def test_a_selection_that_failed_is_counted(metrics: AnswerMetrics, kept: Kept, reply: str) -> None:
    told(metrics, await asked(instead={"select": reply}, select="always"))
    assert kept.of("resin_fallbacks", kind="select") == [1]


async def test_a_selection_that_worked_is_none(metrics: AnswerMetrics, kept: Kept) -> None:
    told(metrics, await asked(select="always"))
    assert not kept.tags("resin_fallbacks")


async def test_a_withdrawn_answer_is_counted(metrics: AnswerMetrics, kept: Kept) -> None:
    question = await asked(instead={"answer": "Mister Zebedee Quux said so [1]."})
    (composed,) = question.stage("compose")
    assert "withdrawn" in composed["derivation"]
    told(metrics, question)
    assert kept.of("resin_fallbacks", kind="withdrawn") == [1]


def test_a_failed_call_of_unknown_cost_is_a_call(metrics: AnswerMetrics, kept: Kept) -> None:
    event = TraceEvent(stage="plan.call", started_s=0, seconds=1, prompt_id="plan", model="m", failure="no reply")
    metrics.answered(LONG_AGO.model_copy(update={"events": (event,)}), None, "default", "cancelled")
    assert kept.of("resin_llm_calls", prompt_id="plan", model="m") == [1]
    assert kept.of("resin_fallbacks", kind="call") == [1]
    assert not kept.tags("resin_llm_prompt_tokens")


def test_a_question_without_an_answer_counts_by_its_failure(metrics: AnswerMetrics, kept: Kept) -> None:
    event = TraceEvent(stage="compose", started_s=0.5, seconds=2.5, failure="DeadlineError: too late")
    trace = LONG_AGO.model_copy(update={"events": (event,)})
    metrics.answered(trace, None, "default", "DeadlineError: too late")
    metrics.answered(trace, None, "other", "cancelled")
    assert kept.of("resin_answers", index="default", strategy="resin", outcome="deadline") == [1]
    assert kept.of("resin_answers", index="other", strategy="resin", outcome="cancelled") == [1]
    assert kept.of("resin_stage_seconds", stage="compose") == [2.5, 2.5]
    # Latency is that of answers, else it would say how long callers waited in vain.
    assert not kept.of("resin_stage_seconds", stage="total") and not kept.tags("resin_evidence_passages")


async def test_an_answer_whose_audit_was_cut_off_is_an_answer(metrics: AnswerMetrics, kept: Kept) -> None:
    told(metrics, await asked(), "cancelled")
    assert kept.of("resin_answers", index="default", strategy="resin", outcome="ok") == [1]


async def test_no_tag_repeats_the_question_or_names_a_trace(metrics: AnswerMetrics, kept: Kept) -> None:
    question = await asked(hop_solvers=True, select="always", derivation="always")
    told(metrics, question)
    tags = json.dumps([dict(found) for _, found in kept.values])
    for secret in (QUESTION, REPLIES["answer"], "Alba", question.recorder.trace_id):
        assert secret not in tags


def test_requests_count_by_route_and_outcome(metrics: AnswerMetrics, kept: Kept) -> None:
    metrics.seen("/v1/answer", 200, 1.5)
    metrics.seen("/v1/answer", 429, 0.01)
    metrics.seen("/v1/answer", 200, 0.5)
    assert kept.of("resin_requests", route="/v1/answer", outcome="ok") == [1, 1]
    assert kept.of("resin_requests", route="/v1/answer", outcome="busy") == [1]
    assert kept.of("resin_request_seconds", route="/v1/answer") == [1.5, 0.01, 0.5]


def test_totals_become_increments(metrics: AnswerMetrics, kept: Kept) -> None:
    for lost, dropped in [(0, 0), (2, 0), (2, 5), (3, 5)]:
        metrics.state(lost, dropped)
    assert kept.of("resin_replicas_lost") == [2, 1]
    assert kept.of("resin_traces_dropped") == [5]


def test_the_generation_served_and_the_one_before_it(metrics: AnswerMetrics, kept: Kept) -> None:
    old, new = "g6-0123456789ab", "g7-ba9876543210"
    metrics.serving({"default": old, "law": "g1-0123456789ab"})
    metrics.serving({"default": old, "law": "g1-0123456789ab"})
    metrics.serving({"default": new, "law": "g1-0123456789ab"})
    assert kept.of("resin_generation", index="default", generation=old) == [6, 6, 0]
    assert kept.of("resin_generation", index="default", generation=new) == [7]
    assert kept.of("resin_generation", index="law", generation="g1-0123456789ab") == [1, 1, 1]


def test_the_series_of_a_metric_are_bounded(metrics: AnswerMetrics, kept: Kept) -> None:
    for number in range(3000):
        call = TraceEvent(stage="plan.call", started_s=0, seconds=1, prompt_id="p", model=f"m{number}", usage=ONE)
        metrics.answered(LONG_AGO.model_copy(update={"events": (call,)}), None, "default")
    assert len(kept.tags("resin_llm_calls")) <= 501
    assert sum(sum(values) for (name, _), values in kept.values.items() if name == "resin_llm_calls") == 3000
    assert len(kept.of("resin_llm_calls", prompt_id="other", model="other")) >= 2499


async def test_a_metric_that_cannot_be_recorded_fails_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        return object()

    metrics = AnswerMetrics(Makers(broken, broken, broken))
    question = await asked()
    told(metrics, question)
    told(metrics, question)
    assert [record.message for record in caplog.records] == ["an answer cannot be measured: AttributeError"]


def test_bounds_of_histograms_are_positive_and_rise(kept: Kept) -> None:
    AnswerMetrics(kept.makers())
    assert {name for name, kind in kept.kinds.items() if kind == "observe"} == set(kept.bounds)
    for bounds in (SECONDS, PASSAGES):
        assert bounds[0] > 0 and list(bounds) == sorted(set(bounds))


async def test_ray_takes_them_all(caplog: pytest.LogCaptureFixture) -> None:
    """Ray checks names, tags and values when they are recorded, also where none runs."""
    metrics = AnswerMetrics()
    told(metrics, await asked(hop_solvers=True, derivation="always"))
    metrics.seen("/v1/answer", 200, 1.5)
    metrics.state(1, 1)
    metrics.serving({"default": "g6-0123456789ab"})
    assert not caplog.records
