"""Ten times more questions than can be answered: the rest is refused at once, and nobody who was let in is late.

    python -m tests.benchmarks.bench_overload [--times 10] [--seconds 30]

A scripted model of fixed latency and slots bounds how many answers a second there can be. Questions then come at ten
times that rate, whatever becomes of them. Refusals must be 429 with Retry-After; what was let in must be answered
within its deadline; memory must not grow with what was refused; and seconds after the flood a single question must be
answered as fast as before. Exit 1 when one of these fails.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.benchmarks.killing.model import ModelProcess
from tests.benchmarks.serving.load import Load
from tests.benchmarks.serving.served import Served, indexed

_LATENCY_S = 1.0
_SLOTS = 8
_IN_FLIGHT = 16
_DEADLINE_S = 30.0
_MOST_GROWTH = 200 << 20
_RECOVERED_S = 5.0


def main() -> int:
    """Runs, prints, and says whether the endpoint held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="resin-overload-") as name:
        folder = Path(name)
        index = indexed(folder, 60)
        model = ModelProcess(_SLOTS)
        model.start(folder / "calls.log", _LATENCY_S)
        try:
            with Served(index, model, {"max_requests": _IN_FLIGHT}, folder / "serve.log") as served:
                return asyncio.run(_flood(served, options.times, options.seconds))
        finally:
            model.stop()


async def _flood(served: Served, times: float, seconds: float) -> int:
    async with Load(served.url, timeout_s=2 * _DEADLINE_S) as load:
        await load.clients(_IN_FLIGHT // 2, 5.0)
        calls = statistics.mean(asked.body["usage"]["llm_calls"] for asked in load.done if asked.ok)
        calm_s = (await load.ask()).seconds
        load.done.clear()
        allowed = _SLOTS / (calls * _LATENCY_S)
        before, peak = served.memory(), 0
        end = time.monotonic() + seconds

        async def watch() -> None:
            nonlocal peak
            while time.monotonic() < end:
                peak = max(peak, await asyncio.to_thread(served.memory))
                await asyncio.sleep(1)

        watching = asyncio.create_task(watch())
        await load.rate(times * allowed, lambda: time.monotonic() < end)
        await watching
        flood = list(load.done)
        recovered_s = await _recovered(load, calm_s)
    statuses = Counter(asked.status for asked in flood)
    accepted = [asked.seconds for asked in flood if asked.ok]
    refused = sorted(asked.seconds for asked in flood if asked.status == 429)
    rate = len(accepted) / seconds
    print(
        f"{times:g} times the {allowed:.1f} answers/s that the model allows, for {seconds:g} s: statuses "
        f"{dict(statuses)}, {rate:.1f} answers/s, the slowest after {max(accepted, default=0):.1f} s"
    )
    if refused:
        late = refused[-1 - len(refused) // 100]
        print(f"refusals: p50 {1000 * statistics.median(refused):.0f} ms, p99 {1000 * late:.0f} ms")
    grown = (peak - before) / 2**20
    print(f"memory grew by {grown:.0f} MiB; a single question as before the flood after {recovered_s:.1f} s")
    problems = []
    if set(statuses) - {200, 429}:
        errors = [asked.error[:200] for asked in flood if asked.status not in (200, 429)]
        problems.append(f"statuses beside 200 and 429: {errors[:3]}")
    if not refused or not all(asked.retry_after for asked in flood if asked.status == 429):
        problems.append("refusals without Retry-After, or none at all")
    if max(accepted, default=_DEADLINE_S) >= _DEADLINE_S:
        problems.append("a question that was let in was late, or none was")
    if rate < 0.7 * allowed:
        problems.append("the flood kept the model from being used")
    if peak - before > _MOST_GROWTH:
        problems.append("memory grew with what was refused")
    if recovered_s > _RECOVERED_S:
        problems.append("the endpoint did not recover")
    for problem in problems:
        print(f"OFF: {problem}")
    return 1 if problems else 0


async def _recovered(load: Load, calm_s: float) -> float:
    """Seconds after the flood until a question is answered within 1.5 times the calm time."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        asked = await load.ask()
        if asked.ok and asked.seconds <= 1.5 * calm_s:
            return asked.began_s - began
        await asyncio.sleep(0.2)
    return float("inf")


if __name__ == "__main__":
    sys.exit(main())
