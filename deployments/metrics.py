"""What the ingress counts and measures, as Ray metrics: Prometheus reads them where it reads Ray's, with ray_ before.

Counters get _total behind their name there. Tags come from code and configuration and are bounded in number; no
question, document or trace is named by one. Recording costs some microseconds a value and never fails an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from resin_core import errors
from resin_core.records import Answer, Trace, TraceEvent
from resin_core.store.manifest import generation_number

log = logging.getLogger("resin.metrics")
# From a search in memory to an answer of a small model on a CPU.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
# The first bound is for buffers without a passage.
PASSAGES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 50.0)
# Names of models are what endpoints say of themselves; beyond so many series of a metric all are one.
_MAX_SERIES = 500
_OTHER = "other"
_UNCHOSEN = ("selection failed", "selection kept nothing")
_CANCELLED = "cancelled"

_BY_STATUS = {
    401: "unauthorised",
    403: "unauthorised",
    429: "busy",
    499: "cancelled",
    503: "unavailable",
    504: "deadline",
}
# The first that fits counts, as with the status of an error.
_BY_ERROR: tuple[tuple[type[errors.ResinError], str], ...] = (
    (errors.NotReadyError, "unavailable"),
    (errors.BusyError, "busy"),
    (errors.LLMRateLimitError, "unavailable"),
    (errors.DeadlineError, "deadline"),
    (errors.UnknownIdError, "bad_request"),
    (errors.ConfigError, "bad_request"),
    (errors.InputError, "bad_request"),
    (errors.ReplicaError, "unavailable"),
)


def outcome_of(status: int) -> str:
    """What an HTTP status says of a request: ok, bad_request, unauthorised, busy, deadline, unavailable, failed or
    cancelled (499: the client left).
    """
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return "ok" if status < 400 else "bad_request" if status < 500 else "failed"


def outcome_of_failure(failure: str) -> str:
    """The same of a question's failure: empty, "cancelled", or the error's class, a colon and its message."""
    if failure in ("", _CANCELLED):
        return failure or "ok"
    kind = getattr(errors, failure.partition(":")[0], None)
    if not (isinstance(kind, type) and issubclass(kind, errors.ResinError)):
        return "failed"
    return next((outcome for base, outcome in _BY_ERROR if issubclass(kind, base)), "failed")


class Makers(NamedTuple):
    """What makes metrics: called with name, description and tag_keys, a histogram's with boundaries too."""

    counter: Callable[..., Any]
    gauge: Callable[..., Any]
    histogram: Callable[..., Any]

    @classmethod
    def of_ray(cls) -> Makers:
        """Ray's own."""
        from ray.util.metrics import Counter, Gauge, Histogram

        return cls(Counter, Gauge, Histogram)


class AnswerMetrics:
    """The metrics of one ingress replica."""

    def __init__(self, makers: Makers | None = None) -> None:
        count, gauge, histogram = makers or Makers.of_ray()
        by_call = ("prompt_id", "model")
        self._requests = _Series(count, "resin_requests", "HTTP requests that have ended.", ("route", "outcome"))
        self._request_seconds = _Series(
            histogram, "resin_request_seconds", "Time to the end of the response.", ("route",), SECONDS
        )
        self._answers = _Series(
            count, "resin_answers", "Questions that were worked on.", ("index", "strategy", "outcome")
        )
        self._stage_seconds = _Series(
            histogram,
            "resin_stage_seconds",
            "Time of a stage; of given answers also the time to the first token and the total.",
            ("stage",),
            SECONDS,
        )
        self._calls = _Series(count, "resin_llm_calls", "Calls to the language model.", by_call)
        self._prompt_tokens = _Series(count, "resin_llm_prompt_tokens", "Prompt tokens used.", by_call)
        self._completion_tokens = _Series(count, "resin_llm_completion_tokens", "Completion tokens used.", by_call)
        self._evidence = _Series(
            histogram, "resin_evidence_passages", "Passages an answer was composed from.", ("index",), PASSAGES
        )
        self._fallbacks = _Series(
            count, "resin_fallbacks", "Answers or calls that took the second best way.", ("kind",)
        )
        self._generation = _Series(
            gauge, "resin_generation", "Number of the generation served; 0: no longer.", ("index", "generation")
        )
        self._lost = _Series(count, "resin_replicas_lost", "Replicas that died under a call.", ())
        self._dropped = _Series(count, "resin_traces_dropped", "Traces that were not kept.", ())
        self._served: dict[str, str] = {}
        self._lost_before = self._dropped_before = 0
        self._failed = False

    def seen(self, route: str, status: int, seconds: float) -> None:
        """An HTTP request has ended. `route` is the template, never the raw path."""
        self._requests.inc(1, route, outcome_of(status))
        self._request_seconds.observe(seconds, route)

    def answered(self, trace: Trace, answer: Answer | None, index: str, failure: str = "") -> None:
        """A question has ended; `failure` as `outcome_of_failure` reads it. Never raises.

        With an answer, what failed or was cut off after it is no failure of the question.
        """
        try:
            self._answered(trace, answer, index, failure)
        except Exception as error:
            # The first says what is wrong; an answer each would only fill the log.
            if not self._failed:
                self._failed = True
                log.warning("an answer cannot be measured: %s", type(error).__name__)

    def state(self, lost: int, dropped: int) -> None:
        """Totals since the start of this replica: replicas lost under calls, and traces that were not kept."""
        self._lost.inc(lost - self._lost_before)
        self._dropped.inc(dropped - self._dropped_before)
        self._lost_before, self._dropped_before = lost, dropped

    def serving(self, generations: Mapping[str, str]) -> None:
        """The generation served of each index. To be told again every few seconds: Ray forgets a gauge that is not."""
        for index, generation in generations.items():
            before = self._served.get(index, generation)
            if before != generation:
                self._generation.set(0, index, before)
            self._served[index] = generation
            self._generation.set(generation_number(generation) or 0, index, generation)

    def _answered(self, trace: Trace, answer: Answer | None, index: str, failure: str) -> None:
        outcome = "ok" if answer is not None else outcome_of_failure(failure or _CANCELLED)
        self._answers.inc(1, index, trace.strategy, outcome)
        for event in trace.events:
            if event.stage.endswith(".call"):
                self._call(event)
            else:
                self._stage_seconds.observe(event.seconds, event.stage)
                for kind in _fallbacks(event):
                    self._fallbacks.inc(1, kind)
        if answer is not None:
            self._evidence.observe(len(answer.evidence), index)
            for stage in ("first_token", "total"):
                if stage in answer.timings_s:
                    self._stage_seconds.observe(answer.timings_s[stage], stage)

    def _call(self, event: TraceEvent) -> None:
        # A failed call whose cost nobody told was a call nevertheless.
        self._calls.inc(max(event.usage.llm_calls, 1), event.prompt_id, event.model)
        self._prompt_tokens.inc(event.usage.prompt_tokens, event.prompt_id, event.model)
        self._completion_tokens.inc(event.usage.completion_tokens, event.prompt_id, event.model)
        if event.failure:
            self._fallbacks.inc(1, "call")


class _Series:
    """One metric; the dicts of its tags are made once."""

    def __init__(
        self,
        make: Callable[..., Any],
        name: str,
        description: str,
        keys: tuple[str, ...],
        bounds: tuple[float, ...] = (),
    ) -> None:
        further = {"boundaries": list(bounds)} if bounds else {}
        self._metric = make(name, description=description, tag_keys=keys, **further)
        self._keys = keys
        self._known: dict[tuple[str, ...], dict[str, str]] = {}

    def inc(self, value: int, *values: str) -> None:
        if value > 0:
            self._metric.inc(value, tags=self._tags(values))

    def observe(self, value: float, *values: str) -> None:
        self._metric.observe(value, tags=self._tags(values))

    def set(self, value: int, *values: str) -> None:
        self._metric.set(value, tags=self._tags(values))

    def _tags(self, values: tuple[str, ...]) -> dict[str, str]:
        tags = self._known.get(values)
        if tags is None:
            if len(self._known) >= _MAX_SERIES:
                values = tuple(_OTHER for _ in values)
            tags = self._known.setdefault(values, dict(zip(self._keys, values, strict=True)))
        return tags


def _fallbacks(event: TraceEvent) -> list[str]:
    """What a stage did instead of what it should have done: its kinds, mostly none."""
    derivation = event.data.get("derivation")
    found = {
        "plan": event.stage == "plan" and bool(event.data.get("fallback")),
        "select": event.stage == "select" and event.data.get("reason") in _UNCHOSEN,
        "withdrawn": event.stage == "compose" and isinstance(derivation, dict) and "withdrawn" in derivation,
    }
    return [kind for kind, happened in found.items() if happened]
