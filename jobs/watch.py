"""The run's watch: one Ray actor that hears from every extraction actor and tells each how far it may go.

Its state is rebuilt from the next reports should it die: they hold totals, not changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jobs import policy
from jobs.orders import SILENT_S, ActorReport, Orders, Verdict
from resin_core.config import IndexingSection, LLMSection
from resin_core.llm.sharing import Shares

_EVERY_S = 0.5


class Watch:
    """Progress, failure policy, budget and the shared limit of calls in flight, over all extraction actors."""

    def __init__(self, settings: IndexingSection, llm: LLMSection, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._llm, self._clock = settings, llm, clock
        self._shares = Shares(llm.max_concurrency, stale_s=SILENT_S, clock=clock)
        self._allowances = policy.Allowances()
        self._limited = settings.max_llm_tokens is not None or settings.max_cost is not None
        self._reports: dict[str, ActorReport] = {}
        self._heard: dict[str, float] = {}
        self._verdict = Verdict()
        self._metrics: Any = None

    def report(self, report: ActorReport) -> Orders:
        """Takes one actor's report and gives its orders."""
        client = report.client
        self._reports[client], self._heard[client] = report, self._clock()
        for gone in [other for other in self._silent() if other != client]:
            self._allowances.lost(gone)
        limit = self._shares.report(client, report.in_use, report.waiting, report.overloads)
        allowance = self._allowances.grant(client, report.spent) if self._limited else float("inf")
        self._judge()
        self._tell_metrics()
        return Orders(limit=limit, allowance=allowance, stop=self._verdict.stop)

    def halt(self, message: str) -> None:
        """Ends the run for a reason from outside it."""
        if not self._verdict.stop:
            self._verdict = Verdict("told", message)

    def verdict(self, finished: int, failed: int, units: int) -> Verdict:
        """Why the run stops or, once its rows are counted, is not worth publishing; else the empty verdict."""
        if not self._verdict.stop and failed:
            causes = tuple(cause for report in self._reports.values() for cause in report.causes)
            whole = ActorReport("", documents=finished, failed=failed, units=units, causes=causes)
            self._verdict = policy.of_run(whole, self._settings)
        return self._verdict

    def read(self) -> tuple[int, int]:
        """Documents and units so far."""
        reports = self._reports.values()
        return sum(one.documents for one in reports), sum(one.units for one in reports)

    def _silent(self) -> list[str]:
        now = self._clock()
        return [client for client, heard in self._heard.items() if now - heard > SILENT_S]

    def _judge(self) -> None:
        if self._verdict.stop:
            return
        gone = set(self._silent())
        living = [report for client, report in self._reports.items() if client not in gone]
        found = policy.of_endpoint(living, self._settings)
        if not found.stop:
            # Of the whole run: what an actor that died had done is included.
            found = policy.of_yield(self._reports.values(), self._settings)
        if not found.stop and self._limited:
            found = policy.starved(living, self._settings, self._llm)
        self._verdict = found

    def _tell_metrics(self) -> None:
        if self._metrics is None:
            self._metrics = _gauges()
        for name, gauge in self._metrics.items():
            gauge.set(sum(getattr(report, name) for report in self._reports.values()))


def _gauges() -> dict[str, Any]:
    """Ray metrics, read where the cluster's others are."""
    from ray.util.metrics import Gauge

    told = {
        "documents": "Documents finished by this run.",
        "failed": "Documents with a call that was given up.",
        "units": "Reasoning units extracted.",
        "llm_calls": "Calls to the language model.",
        "prompt_tokens": "Prompt tokens used.",
        "completion_tokens": "Completion tokens used.",
        "in_use": "Calls in flight.",
        "overloads": "Answers that asked for fewer calls (429, 503).",
    }
    return {name: Gauge(f"resin_index_{name}", description=text) for name, text in told.items()}


@contextmanager
def followed(watch: Any, tell: Callable[[int, int], None], halted: Callable[[], str]) -> Iterator[None]:
    """Until the block is left: tells of the watch's counts when they change, and hands on that the run is to stop.

    `halted` gives the reason to stop, or "". A watch that is gone for a moment (its node died) is asked again.
    """
    import ray

    over = threading.Event()

    def follow() -> None:
        last, told = (0, 0), False
        while not over.wait(_EVERY_S):
            try:
                if not told and (reason := halted()):
                    ray.get(watch.halt.remote(reason), timeout=10)
                    told = True
                now = ray.get(watch.read.remote(), timeout=10)
            except ray.exceptions.RayError:
                continue
            if now > last:
                last = now
                tell(*now)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)
