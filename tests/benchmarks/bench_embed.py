"""How much of the raw encoder's speed `SentenceEncoder.encode` keeps. A script; run it on a quiet machine.

    python tests/benchmarks/bench_embed.py [--texts 2000] [--rounds 3] [--precision bf16]

Both sides share one loaded model, the same texts and the same batch size, and take turns, so that a slow minute of the
machine hits both. Prints sentences a second and the ratio (target: at least 0.9). Texts are sentences of HolisQA when
the public data folder is there (RESIN_DATA, default ../shared/data), else made up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from resin_core.config.sections import EncoderSection
from resin_core.encoder import SentenceEncoder

TARGET = 0.9


def made_up(count: int) -> list[str]:
    """Sentences like those of reasoning units, of mixed length, the same at each run."""
    choose = random.Random(7)
    things = ["The pump", "A copper pipe", "The night train", "The harbour office", "Each new member", "The north dam"]
    acts = ["is larger than", "was built by", "depends on", "causes a fall of", "must be checked before", "is part of"]
    ends = ["the old mill", "the water level in spring", "the second floor of the town hall", "its own weight", "2019"]
    tails = ["", " in dry years", ", unless the council has said otherwise by the end of the month", " at 40 degrees"]
    return [
        f"{choose.choice(things)} {n} {choose.choice(acts)} {choose.choice(ends)}{choose.choice(tails)}."
        for n in range(count)
    ]


def sentences(count: int) -> tuple[list[str], str]:
    """The texts and where they come from."""
    corpus = Path(os.environ.get("RESIN_DATA", "../shared/data")) / "holisqa" / "biology" / "corpus.jsonl"
    if not corpus.is_file():
        return made_up(count), "made up"
    found: list[str] = []
    with corpus.open(encoding="utf-8") as lines:
        for line in lines:
            found += [f"{part}." for part in json.loads(line)["text"].split(". ") if len(part) > 20]
            if len(found) >= count:
                return found[:count], str(corpus)
    return found, str(corpus)


def timed(work: Callable[[], object]) -> float:
    """Seconds of wall time."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> int:
    """Measure and print; status 1 when the ratio misses the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    arguments = parser.parse_args()
    import torch

    encoder = SentenceEncoder(EncoderSection(precision=arguments.precision))
    raw = encoder._model
    texts, origin = sentences(arguments.texts)
    size = EncoderSection().batch_size

    def raw_encode() -> object:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            return raw.encode(texts, batch_size=size, normalize_embeddings=True, show_progress_bar=False)

    encoder.encode(texts[:size])  # warm up
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        theirs.append(timed(raw_encode))
        ours.append(timed(lambda: encoder.encode(texts)))
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(f"{len(texts)} texts ({origin}), {arguments.precision}, {torch.get_num_threads()} threads")
    print(f"raw     {len(texts) / statistics.median(theirs):8.1f} sentences/s")
    print(f"resin   {len(texts) / statistics.median(ours):8.1f} sentences/s")
    print(f"ratio   {ratio:8.3f} (target {TARGET})")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
