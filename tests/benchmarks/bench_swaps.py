"""Generations swapped under load: no question may fail, and no answer may mix two of them.

    python -m tests.benchmarks.bench_swaps [--swaps 200] [--clients 16] [--seed 7]

Four generations of one index are published, in each of which every sentence names its edition. While clients ask, the
pointer of the index is set to one of them at random, newer or older, again and again. Every sentence that an answer
was composed from must then be of the edition of the generation that the answer names. Exit 1 when one is not, when a
question failed, or when too few of the swaps were seen by an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import read_current, write_current
from resin_core.store.reader import IndexReader
from tests.benchmarks.killing.model import ModelProcess
from tests.benchmarks.serving.load import Load
from tests.benchmarks.serving.served import Served, indexed

_EDITIONS = 4
_REFRESH_S = 0.2
_GAP_S = (0.3, 1.0)


def main() -> int:
    """Runs, prints, and says whether all answers were whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swaps", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="resin-swaps-") as name:
        folder = Path(name)
        sentences: dict[str, set[str]] = {}
        for edition in range(_EDITIONS):
            index = indexed(folder, options.documents, edition=f" in edition {edition}")
            sentences[read_current(IndexFolder.at(index))] = _units(index)
        model = ModelProcess(64)
        model.start(folder / "calls.log", 0.1)
        replicas = {"min_replicas": 2, "max_replicas": 2}
        serving = {"refresh_s": _REFRESH_S, "retriever": replicas, "ingress": replicas}
        try:
            with Served(index, model, serving, folder / "serve.log") as served:
                load = asyncio.run(_swapping(served, IndexFolder.at(index), list(sentences), options))
        finally:
            model.stop()
    return report(load, sentences, options.swaps)


def _units(index: Path) -> set[str]:
    """Ids of all passages of the generation: they come from the text, so each edition has its own."""
    return {passage.passage_id for passage in IndexReader.open(index).iter_passages()}


async def _swapping(served: Served, folder: IndexFolder, generations: list[str], options: argparse.Namespace) -> Load:
    rng, busy, current = random.Random(options.seed), True, generations[-1]
    async with Load(served.url) as load:

        async def client() -> None:
            while busy:
                await load.ask()

        clients = [asyncio.create_task(client()) for _ in range(options.clients)]
        for _ in range(options.swaps):
            await asyncio.sleep(rng.uniform(*_GAP_S))
            current = rng.choice([generation for generation in generations if generation != current])
            write_current(folder, current)
        await asyncio.sleep(2)
        busy = False
        await asyncio.gather(*clients)
    return load


def report(load: Load, passages: dict[str, set[str]], swaps: int) -> int:
    """Prints the figures; 0 when all is well."""
    failed = [asked for asked in load.done if not asked.ok]
    mixed = 0
    for asked in load.done:
        if asked.ok:
            own = passages[asked.body["generation"]]
            used = [item["passage_id"] for part in ("evidence", "pool", "citations") for item in asked.body[part]]
            mixed += not used or not own.issuperset(used)
    ordered = [asked.body["generation"] for asked in sorted(load.done, key=lambda one: one.began_s) if asked.ok]
    seen = sum(one != other for one, other in pairwise(ordered))
    print(
        f"{swaps} swaps among {len(passages)} generations, {len(load.done)} questions: {len(failed)} failed, {mixed} "
        f"mixed or empty; the generation of one answer differs from that of the one before {seen} times"
    )
    for asked in failed[:5]:
        print(f"  FAILED after {asked.seconds:.1f} s: {asked.status} {asked.error[:300]}")
    return 1 if failed or mixed or seen < swaps // 4 else 0


if __name__ == "__main__":
    sys.exit(main())
