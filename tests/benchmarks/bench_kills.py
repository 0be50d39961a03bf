"""Kills under a running indexing job: nothing may be lost, and nothing paid for twice but what was in flight.

    python -m tests.benchmarks.bench_kills [--kills 50] [--documents 1000] [--seed 7] [--out DIR]

An undisturbed run on a two-node Ray cluster is the reference. Then the same job runs while the driver, a worker, the
second node or the model server is killed at random moments; when it ends before all kills are dealt, it starts over in
a new folder. Exit 1 when an index differs, is unsound or missing, or a call was repeated that no kill explains. An
undisturbed run takes about a minute, all of it perhaps fifteen on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.killing.report import as_json, as_text
from tests.benchmarks.killing.runs import Outcome, Plan, experiment


def main() -> int:
    """Runs, prints, and says whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=Plan.kills)
    parser.add_argument("--documents", type=int, default=Plan.documents)
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--latency", type=float, default=Plan.latency_s, help="seconds of each model call")
    parser.add_argument("--slots", type=int, default=Plan.slots, help="model calls worked on at once")
    parser.add_argument("--gap", type=float, nargs=2, default=Plan.gap_s, help="seconds between kills, least and most")
    parser.add_argument("--stored-within", type=float, default=Plan.stored_within_s, help="time to store a reply, s")
    parser.add_argument("--out", type=Path, default=None, help="folder for indexes and logs; unset: a temporary one")
    options = parser.parse_args()
    plan = Plan(
        documents=options.documents,
        kills=options.kills,
        seed=options.seed,
        gap_s=tuple(options.gap),
        latency_s=options.latency,
        slots=options.slots,
        stored_within_s=options.stored_within,
    )
    if options.out is not None:
        return finish(plan, options.out)
    with tempfile.TemporaryDirectory(prefix="resin-kills-") as folder:
        return finish(plan, Path(folder))


def finish(plan: Plan, out: Path) -> int:
    """One experiment with its report; 0 when nothing is off."""
    began = time.monotonic()
    outcome = experiment(plan, out, lambda said: print(f"[{time.monotonic() - began:6.0f} s] {said}", file=sys.stderr))
    problems = outcome.problems() + too_small(outcome)
    (out / "kills.json").write_text(json.dumps(as_json(outcome), indent=2), encoding="utf-8")
    print(as_text(outcome))
    print(json.dumps({"kills": sum(len(job.kills) for job in outcome.jobs), "problems": problems}))
    return 1 if problems else 0


def too_small(outcome: Outcome) -> list[str]:
    """The corpus must give two passages a document, or the kills fall on too little work."""
    passages = outcome.counts.get("passages", 0)
    if passages >= 2 * outcome.plan.documents:
        return []
    return [f"{passages} passages from {outcome.plan.documents} documents, fewer than two each"]


if __name__ == "__main__":
    sys.exit(main())
