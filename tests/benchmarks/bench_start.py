"""Where the time of a cold `resin ask` goes, cause by cause. A script; run it on a quiet machine.

    python -m tests.benchmarks.bench_start [--index URI] [--question Q] [--runs 3] [--cheap]

Each part is measured in a fresh process, so nothing is imported or loaded before; the files are in the disk cache from
the second run on, and the median over the runs is printed. Server and encoder start side by side in `resin ask`: their
times overlap and do not add up to its own. Parts that need what is not here (weights, an index) are named as skipped;
`--cheap` leaves out those that load a model. No status but 0: there is no target to miss, only shares to compare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

Times = dict[str, float]

_SERVER = """
import time
from resin_core.config import load_config
from resin_core.models.server import EmbeddedServer
llm = load_config().llm
began = time.perf_counter()
with EmbeddedServer(llm.embedded, llm.model):
    print(time.perf_counter() - began)
"""
_ENCODER = """
import time
began = time.perf_counter()
import sentence_transformers
imported = time.perf_counter()
from resin_core.config import EncoderSection
from resin_core.encoder import SentenceEncoder
encoder = SentenceEncoder(EncoderSection())
loaded = time.perf_counter()
encoder.encode(["one question"])
print(imported - began, loaded - imported, time.perf_counter() - loaded)
"""
_INDEX = """
import sys, time
began = time.perf_counter()
from resin_core.store.reader import IndexReader
imported = time.perf_counter()
IndexReader.open(sys.argv[1])
print(imported - began, time.perf_counter() - imported)
"""


class FailedError(Exception):
    """A measured process ended badly; its last line says why."""


def run(*arguments: str) -> tuple[float, str]:
    """Seconds of a whole Python process, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise FailedError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
    return seconds, done.stdout


def printed(names: tuple[str, ...], code: str, *arguments: str) -> Times:
    """The seconds that a piece of code measured and printed, by name."""
    return dict(zip(names, map(float, run("-c", code, *arguments)[1].split()), strict=True))


def start() -> Times:
    """Python alone, and the command line up to its help."""
    return {
        "python": run("-c", "pass")[0],
        "resin --help": run("-m", "resin_core", "--help")[0],
        "resin config show": run("-m", "resin_core", "config", "show")[0],
    }


def ask(index: str, question: str) -> Times:
    """The whole of it, its stages by its own clock, and what is left: everything before the question was begun."""
    seconds, out = run("-m", "resin_core", "ask", question, "--index", index, "--json")
    stages: Times = json.loads(out)["timings_s"]
    parts = {f"ask: {name}": value for name, value in stages.items() if name not in ("total", "first_token")}
    # Not a stage but a moment, from when the question was begun; a short answer has none.
    if "first_token" in stages:
        parts["ask: until the first token"] = stages["first_token"]
    return {**parts, "ask: before the first call": seconds - stages["total"], "ask: in all": seconds}


def parts(index: str | None, question: str, cheap: bool) -> tuple[dict[str, Callable[[], Times]], list[str]]:
    """What to measure, and what is skipped, with the reason."""
    from resin_core.config import load_config
    from resin_core.models.resolve import path

    llm = load_config().llm
    chosen: dict[str, Callable[[], Times]] = {"start": start}
    skipped = []
    if cheap:
        return chosen, ["encoder, model server, index, resin ask: --cheap"]
    names = ("import sentence_transformers", "load the encoder", "encode one question")
    chosen["encoder"] = lambda: printed(names, _ENCODER)
    if llm.base_url is not None:
        skipped.append(f"model server: llm.base_url is set ({llm.base_url})")
    elif llm.embedded.model_path is None and path(llm.model, llm.embedded) is None:
        skipped.append(f"model server: no weights here; `resin models pull {llm.model}`")
    else:
        chosen["model server"] = lambda: printed(("start the model server",), _SERVER)
    if index is None:
        skipped.append("index, resin ask: no --index given")
    else:
        chosen["index"] = lambda: printed(("import the store", "open the index"), _INDEX, index)
        if "model server" in chosen or llm.base_url is not None:
            chosen["resin ask"] = lambda: ask(index, question)
        else:
            skipped.append("resin ask: no model")
    return chosen, skipped


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", help="an index to open and ask, for example of resin demo --index URI")
    parser.add_argument("--question", default="What does a single ticket for bus 14 cost?")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cheap", action="store_true", help="only what loads no model")
    arguments = parser.parse_args()
    chosen, skipped = parts(arguments.index, arguments.question, arguments.cheap)
    print(f"{'part':34}  median s   least s   ({arguments.runs} runs, each a fresh process)")
    for name, measure in chosen.items():
        try:
            rounds = [measure() for _ in range(arguments.runs)]
        except FailedError as error:
            print(f"{name:34}  failed: {error}")
            continue
        for part in rounds[-1]:
            seconds = [one[part] for one in rounds if part in one]
            print(f"{part:34} {statistics.median(seconds):9.2f} {min(seconds):9.2f}")
    for line in skipped:
        print(f"skipped {line}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
