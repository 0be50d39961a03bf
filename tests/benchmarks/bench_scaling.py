"""Planner, retriever and composer scale apart: each is stressed in turn, and only that one may grow much.

    python -m tests.benchmarks.bench_scaling [--seconds 60]

The model takes long to plan, then long to compose, then searches alone come; after each, the replicas of the three
deployments are counted. Exit 1 unless the one under stress has more replicas than the other two had at that time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.killing.model import ModelProcess
from tests.benchmarks.serving.load import Load
from tests.benchmarks.serving.served import Served, indexed

PARTS = ("planner", "retriever", "composer")
_CLIENTS = 12


def main() -> int:
    """Runs, prints, and says whether each scaled by itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each stress, at most")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="resin-scaling-") as name:
        folder = Path(name)
        index = indexed(folder, 60)
        replicas = {"min_replicas": 1, "max_replicas": 4, "target_ongoing": 2.0, "upscale_delay_s": 2.0}
        replicas |= {"downscale_delay_s": 5.0}
        serving = dict.fromkeys(PARTS, replicas)
        model = ModelProcess(64)
        log = folder / "calls.log"
        model.start(log, 0.05)
        try:
            with Served(index, model, serving, folder / "serve.log") as served:
                return asyncio.run(_stressed(served, model, log, options.seconds))
        finally:
            model.stop()


async def _stressed(served: Served, model: ModelProcess, log: Path, seconds: float) -> int:
    failed = []
    for part in PARTS:
        model.stop()
        slow = {"planner": "plan", "composer": "compose"}.get(part)
        model.start(log, 0.05, slow=(slow, 3.0) if slow else None)
        await _settled(served)
        before = _counts(served)
        async with Load(served.url, path="/v1/search" if part == "retriever" else "/v1/answer") as load:
            stress = asyncio.create_task(load.clients(_CLIENTS, seconds))
            most = before
            while not stress.done():
                await asyncio.sleep(1)
                counts = _counts(served)
                most = counts if counts[part] > most[part] else most
            bad = sum(asked.status != 200 for asked in load.done)
        told = ", ".join(f"{name} {before[name]} -> {most[name]}" for name in PARTS)
        print(f"{part} under stress: {told}; {len(load.done)} requests, {bad} failed")
        if most[part] <= max(most[name] for name in PARTS if name != part) or bad:
            failed.append(part)
    for part in failed:
        print(f"OFF: {part} did not scale apart from the others")
    return 1 if failed else 0


async def _settled(served: Served) -> None:
    """Until each is back at one replica."""
    for _ in range(120):
        if all(count <= 1 for count in _counts(served).values()):
            return
        await asyncio.sleep(1)


def _counts(served: Served) -> dict[str, int]:
    found = served.replicas()
    return {part: len(found.get(part, ())) for part in PARTS}


if __name__ == "__main__":
    sys.exit(main())
