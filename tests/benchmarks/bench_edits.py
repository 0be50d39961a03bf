"""What an edit and a deletion cost, and whether they are exact.

    python -m tests.benchmarks.bench_edits [--documents 2000] [--seed 7]

Indexes a synthetic corpus with a scripted model that answers at once, edits one sentence in each of one document in a
hundred, and indexes again: the model may be called for at most 1.1 % of what the full build called it for. Then one
document is deleted: `resin search` must not find it, `resin verify` must pass, and a reader that was opened before the
edit must still answer from its own generation. Exit 1 when one of these fails.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from resin_core.store.reader import IndexReader
from tests.benchmarks.killing import corpus
from tests.benchmarks.killing.job import write_config
from tests.benchmarks.killing.model import ModelProcess

MOST_CALLS = 0.011
_SLOTS = 16
_ONE_IN = 100
_NUMBER = re.compile(r"(?<= )\d+(?= (tonnes|litres|crowns|days))")


def edit(folder: Path, one_in: int = _ONE_IN) -> list[str]:
    """Changes one number in one sentence of every `one_in`-th document; the ids of those documents."""
    edited = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for at, line in enumerate(lines):
            record = json.loads(line)
            number = re.fullmatch(r"doc-(\d+)", record["id"])
            if number is None or int(number[1]) % one_in != one_in // 2:
                continue
            text, changes = _NUMBER.subn(lambda found: str(int(found[0]) + 1000), record["text"], count=1)
            if changes:
                edited.append(record["id"])
                lines[at] = json.dumps({**record, "text": text})
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return edited


def resin(*words: str) -> subprocess.CompletedProcess[str]:
    """One command, which must end well or with a failure as its result."""
    done = subprocess.run([sys.executable, "-m", "resin_core", *words], capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise SystemExit(done.stderr[-2000:])
    return done


def index(sources: Path, place: Path, config: Path) -> tuple[dict[str, Any], float]:
    """One `resin index`: its report and its wall seconds."""
    began = time.monotonic()
    done = resin("index", str(sources), "--index", str(place), "--config", str(config), "--json")
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout), time.monotonic() - began


def found(place: Path, config: Path, query: str) -> set[str]:
    """The documents of the best candidates for a query."""
    done = resin("search", query, "--index", str(place), "--config", str(config), "--json")
    return {candidate["unit"]["doc_id"] for candidate in json.loads(done.stdout)["candidates"]}


def main() -> int:
    """Runs, prints, and says whether all held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="resin-edits-") as name:
        folder, model = Path(name), ModelProcess()
        model.start(folder / "calls.log", 0.0)
        try:
            config = write_config(folder / "config.yaml", model.base_url, _SLOTS, {"window_sentences": 6})
            sources = corpus.write(folder / "sources", options.documents, options.seed)
            problems = check(sources, folder / "index", config)
        finally:
            model.stop()
    for problem in problems:
        print(f"OFF: {problem}")
    return 1 if problems else 0


def check(sources: Path, place: Path, config: Path) -> list[str]:
    """Builds, edits and deletes; what did not hold."""
    problems = []
    full, full_s = index(sources, place, config)
    size = f"{full['documents']} documents, {full['passages']} passages"
    print(f"full build: {size}, {full['llm_calls']} calls, {full_s:.0f} s")
    reader = IndexReader.open(place)
    before = sorted(unit.unit_id for unit in reader.iter_units())
    edited = edit(sources)
    again, again_s = index(sources, place, config)
    share = again["llm_calls"] / full["llm_calls"]
    print(
        f"{len(edited)} documents edited in one sentence: {again['llm_calls']} calls, {share:.2%} of the full build "
        f"(target {MOST_CALLS:.1%}), {again['documents']} documents read, {again['reused']} reused, {again_s:.0f} s"
    )
    if not edited or share > MOST_CALLS:
        problems.append("the edits cost too many calls")
    if again["documents"] != len(edited):
        problems.append(f"{again['documents']} documents were read again instead of {len(edited)}")
    victim = edited[0]
    document = IndexReader.open(place).document(victim)
    query = document.text.partition(".")[0]
    if victim not in found(place, config, query):
        problems.append("the search does not find the document that it is to lose")
    began = time.monotonic()
    resin("delete", victim, "--index", str(place), "--config", str(config))
    print(f"deletion of one document: {time.monotonic() - began:.1f} s")
    if victim in found(place, config, query):
        problems.append(f"the search still finds {victim} after its deletion")
    if resin("verify", "--index", str(place)).returncode:
        problems.append("resin verify fails")
    if sorted(unit.unit_id for unit in reader.iter_units()) != before or reader.document(victim).doc_id != victim:
        problems.append("the reader opened before the edit has lost its generation")
    return problems


if __name__ == "__main__":
    sys.exit(main())
