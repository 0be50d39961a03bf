"""Replicas killed under load: no question may fail, and with one client retry none when ingress replicas die too.

    python -m tests.benchmarks.bench_replicas [--kills 50] [--ingress-kills 5] [--rate 20] [--seed 7]

Two replicas of each deployment. First random ones, the ingress excepted, are killed with SIGKILL while questions come
at a fixed rate and nobody asks twice. Then ingress replicas are killed, and a client whose request was lost asks once
more. Exit 1 when a question failed, or was answered without evidence.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.killing.model import ModelProcess
from tests.benchmarks.serving.load import Asked, Load
from tests.benchmarks.serving.served import Served, indexed

_SCALED = ("planner", "retriever", "composer", "encoder")
_LATENCY_S = 0.1


def main() -> int:
    """Runs, prints, and says whether no question was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ingress-kills", type=int, default=5)
    parser.add_argument("--rate", type=float, default=20.0, help="questions a second")
    parser.add_argument("--gap", type=float, nargs=2, default=(6.0, 12.0), help="seconds between kills, least and most")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="resin-replicas-") as name:
        folder = Path(name)
        index = indexed(folder, 100)
        model = ModelProcess(256)
        model.start(folder / "calls.log", _LATENCY_S)
        replicas = {"min_replicas": 2, "max_replicas": 2}
        serving = {"max_requests": 2000, **dict.fromkeys((*_SCALED, "ingress"), replicas)}
        try:
            with Served(index, model, serving, folder / "serve.log") as served:
                print("replicas: " + ", ".join(f"{len(pids)} {part}" for part, pids in served.replicas().items()))
                gap = (options.gap[0], options.gap[1])
                calm = asyncio.run(_fire(served, rng, gap, 2, options.rate, (), 0))
                inner = asyncio.run(_fire(served, rng, gap, options.kills, options.rate, (*_SCALED, "slots"), 0))
                outer = asyncio.run(_fire(served, rng, gap, options.ingress_kills, options.rate, ("ingress",), 1))
        finally:
            model.stop()
    return report(calm, inner, outer, options.kills, options.ingress_kills)


async def _fire(
    served: Served,
    rng: random.Random,
    gap: tuple[float, float],
    kills: int,
    rate: float,
    parts: tuple[str, ...],
    retries: int,
) -> Load:
    """Questions at that rate while `kills` replicas of these deployments die; no `parts`: in peace."""
    busy = True
    async with Load(served.url, {"include_trace": False}, retries) as load:
        asking = asyncio.create_task(load.rate(rate, lambda: busy))
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(*gap))
            if parts:
                _kill_one(served, rng, parts)
        await asyncio.sleep(gap[1])
        busy = False
        await asking
    return load


def _kill_one(served: Served, rng: random.Random, parts: tuple[str, ...]) -> None:
    alive = [(part, pid) for part, pids in served.replicas().items() if part in parts for pid in pids]
    if not alive:
        return
    part, pid = rng.choice(sorted(alive))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    print(f"{time.strftime('%X')} killed {part} {pid}", file=sys.stderr)


def report(calm: Load, inner: Load, outer: Load, kills: int, ingress_kills: int) -> int:
    """Prints the figures; 0 when nothing was lost."""
    lost = 0
    for name, load in (
        ("in peace", calm),
        (f"{kills} replicas killed, no retry", inner),
        (f"{ingress_kills} ingress replicas killed, one retry", outer),
    ):
        failed = [asked for asked in load.done if not asked.ok or not asked.body["evidence"]]
        lost += len(failed)
        again = sum(asked.tries > 1 for asked in load.done)
        print(f"{name}: {len(load.done)} questions, {len(failed)} failed, {again} asked twice, {_times(load.done)}")
        for asked in failed[:5]:
            print(f"  FAILED after {asked.seconds:.1f} s: {asked.status} {asked.error[:300]}")
    return 1 if lost else 0


def _times(done: list[Asked]) -> str:
    seconds = sorted(asked.seconds for asked in done)
    late = seconds[len(seconds) * 99 // 100]
    return f"p50 {statistics.median(seconds):.2f} s, p99 {late:.2f} s, most {seconds[-1]:.2f} s"


if __name__ == "__main__":
    sys.exit(main())
