"""The indexing job against the least time that its model allows, and the driver's memory as the corpus grows.

    python -m tests.benchmarks.bench_index [--documents 2500] [--latency 3] [--slots 32] [--skip-memory]

A scripted model of fixed latency and slots answers each call; no more than slots / latency calls a second are possible.
Every document is one call and two passages. Prints the wall time of `resin index`, start of Ray and publishing
included, over calls x latency / slots (at most 1.10), and the peak memory of the driver at ten times the corpus over
that at one time (at most 1.2), for which the model answers at once. A script; keep the machine quiet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.killing.model import ModelProcess

MOST_WALL = 1.10
MOST_MEMORY = 1.2
_SMALL = 300
# The command as it is, in a process that says at its end how large it grew (kilobytes on Linux).
_DRIVER = """
import resource, sys
from resin_core.cli.main import main
status = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


def write_corpus(path: Path, documents: int) -> Path:
    """JSONL; each document is one window of five sentences with numbers of its own."""
    with path.open("w", encoding="utf-8") as out:
        for number in range(documents):
            names = [f"Basin {number}-{at}" for at in range(5)]
            text = " ".join(f"{name} holds {number + 7 * at} cubic metres of water." for at, name in enumerate(names))
            out.write(json.dumps({"id": f"b{number:06}", "title": f"Basin {number}", "text": text}) + "\n")
    return path


def run(source: Path, place: Path, model: ModelProcess, slots: int) -> tuple[dict[str, Any], float, int]:
    """One `resin index`: its report, wall seconds, and the driver's peak memory in bytes."""
    settings = [f"llm.base_url={model.base_url}", "llm.model=scripted", f"llm.max_concurrency={slots}"]
    command = [sys.executable, "-c", _DRIVER, "index", str(source), "--index", str(place), "--json"]
    started = time.monotonic()
    done = subprocess.run(
        [*command, *(part for one in settings for part in ("--set", one))], capture_output=True, text=True, check=False
    )
    wall_s = time.monotonic() - started
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout), wall_s, int(done.stderr.split()[-1]) * 1024


def main() -> int:
    """Runs, prints, and says whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2500)
    parser.add_argument("--latency", type=float, default=3.0)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--skip-memory", action="store_true")
    options = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory(prefix="resin-bench-") as name:
        folder, model = Path(name), ModelProcess(options.slots)
        model.start(folder / "calls.log", options.latency)
        try:
            source = write_corpus(folder / "corpus.jsonl", options.documents)
            report, wall_s, _ = run(source, folder / "index", model, options.slots)
            least_s = report["llm_calls"] * options.latency / options.slots
            ratio = wall_s / least_s
            met &= ratio <= MOST_WALL
            print(
                f"{report['documents']} documents, {report['passages']} passages, {report['llm_calls']} calls of "
                f"{options.latency:g} s in {options.slots} slots: wall {wall_s:.1f} s, least {least_s:.1f} s, ratio "
                f"{ratio:.3f} (target {MOST_WALL})"
            )
        finally:
            model.stop()
        if not options.skip_memory:
            met &= memory(folder, options.slots)
    return 0 if met else 1


def memory(folder: Path, slots: int) -> bool:
    """The driver's memory at one and ten times a corpus."""
    model = ModelProcess()
    model.start(folder / "more.log", 0.0)
    try:
        peaks = []
        for times in (1, 10):
            source = write_corpus(folder / f"times{times}.jsonl", _SMALL * times)
            report, wall_s, peak = run(source, folder / f"index{times}", model, slots)
            peaks.append(peak)
            print(f"{report['documents']} documents, {wall_s:.0f} s: the driver took {peak / 2**20:.0f} MiB")
    finally:
        model.stop()
    print(f"memory of the driver at ten times the corpus: {peaks[1] / peaks[0]:.3f} (target {MOST_MEMORY})")
    return peaks[1] / peaks[0] <= MOST_MEMORY


if __name__ == "__main__":
    sys.exit(main())
