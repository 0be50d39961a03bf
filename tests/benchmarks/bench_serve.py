"""The endpoint's own share of the time: answers a second against what the model allows, and milliseconds by stage.

    python -m tests.benchmarks.bench_serve [--latency 1] [--slots 64] [--clients 32] [--seconds 120]

A scripted model of fixed latency and slots plans and composes every answer (two calls in turn). Each client asks its
next question when it has its answer. Prints answers a second over what the model alone allows (at least 0.9), and the
median of an answer's wall time less its model calls (at most 60 ms on two cores, on which server, model and clients
run). Exit 1 when a target is missed or a question failed. Keep the machine quiet.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.killing.model import ModelProcess
from tests.benchmarks.serving.load import Load
from tests.benchmarks.serving.served import Served, indexed

LEAST_RATE = 0.9
MOST_OWN_S = 0.060
_WARM_S = 10.0
_STAGES = ("plan", "retrieve", "select", "compose")


def main() -> int:
    """Runs, prints, and says whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--documents", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="resin-serve-") as name:
        folder = Path(name)
        index = indexed(folder, options.documents)
        model = ModelProcess(options.slots)
        model.start(folder / "calls.log", options.latency)
        serving = {"max_requests": 4 * options.clients}
        try:
            with Served(index, model, serving, folder / "serve.log") as served:
                load = asyncio.run(_under_load(served, options.clients, options.seconds, 2 * options.latency))
        finally:
            model.stop()
    return report(load, options.latency, options.slots, options.clients, options.seconds)


async def _under_load(served: Served, clients: int, seconds: float, within_s: float) -> Load:
    async with Load(served.url, {"include_trace": True}) as load:
        # Independent clients do not ask in step.
        await load.clients(clients, _WARM_S + seconds, within_s)
        end = min(asked.began_s for asked in load.done) + _WARM_S
        load.done = [asked for asked in load.done if asked.began_s >= end]
    return load


def report(load: Load, latency_s: float, slots: int, clients: int, seconds: float) -> int:
    """Prints the figures; 0 when the targets are met."""
    good = [asked for asked in load.done if asked.ok]
    failed = [asked for asked in load.done if not asked.ok]
    for asked in failed[:5]:
        print(f"FAILED: {asked.status} {asked.error}")
    if not good:
        return 1
    calls = statistics.mean(asked.body["usage"]["llm_calls"] for asked in good)
    allowed = min(slots, clients) / (calls * latency_s)
    span_s = max(asked.began_s + asked.seconds for asked in good) - min(asked.began_s for asked in good)
    rate = len(good) / span_s
    own = [asked.seconds - latency_s * asked.body["usage"]["llm_calls"] for asked in good]
    print(
        f"{clients} clients, {seconds:g} s, model calls of {latency_s:g} s in {slots} slots: {len(good)} answers, "
        f"{len(failed)} failures, {calls:.2f} calls an answer"
    )
    print(
        f"answers/s {rate:.2f}, the model alone allows {allowed:.2f}: ratio {rate / allowed:.3f} (least {LEAST_RATE})"
    )
    print(f"wall less model time: p50 {_ms(own, 50)}, p95 {_ms(own, 95)} (p50 at most {1000 * MOST_OWN_S:.0f} ms)")
    parts = {stage: [_own_of(asked.body, stage, latency_s) for asked in good] for stage in _STAGES}
    parts["outside the strategy"] = [asked.seconds - asked.body["timings_s"]["total"] for asked in good]
    for name, values in parts.items():
        print(f"  {name}: p50 {_ms(values, 50)}, p95 {_ms(values, 95)}")
    met = rate / allowed >= LEAST_RATE and statistics.median(own) <= MOST_OWN_S and not failed
    return 0 if met else 1


def _own_of(body: dict[str, Any], stage: str, latency_s: float) -> float:
    """A stage's time less that of its model calls."""
    events = body["trace"]["events"]
    seconds = sum(event["seconds"] for event in events if event["stage"] == stage)
    calls = sum(event["usage"]["llm_calls"] for event in events if event["stage"] == f"{stage}.call")
    return float(seconds - latency_s * calls)


def _ms(values: list[float], percent: int) -> str:
    ranked = sorted(values)
    return f"{1000 * ranked[min(len(ranked) - 1, len(ranked) * percent // 100)]:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
