"""Search through the index reader against the bare FAISS index it holds.

Run: python -m tests.benchmarks.bench_search [units]     (default 1,000,000, which takes 4 GB of disk)

Builds an index of synthetic unit vectors through the real writer, part by part, opens the real reader, and times single
queries in interleaved pairs. The target is a ratio of medians of at most 1.2.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resin_core.records import UnitKind
from resin_core.store.manifest import FileEntry, Stamp
from resin_core.store.reader import IndexReader
from resin_core.store.schema import SCHEMAS, vectors_table
from resin_core.store.writer import IndexWriter

DIMENSION = 384
PART_ROWS = 5000
UNITS_PER_PASSAGE = 4
WORDS = [
    "the",
    "river",
    "museum",
    "opened",
    "signed",
    "treaty",
    "north",
    "harbour",
    "council",
    "engineer",
    "theory",
    "city",
]


def _phrases(rng: np.random.Generator, rows: int, words: int) -> pa.Array:
    drawn = pa.array(WORDS).take(pa.array(rng.integers(0, len(WORDS), rows * words)))
    columns = [drawn.take(pa.array(np.arange(i, rows * words, words))) for i in range(words)]
    return pc.binary_join_element_wise(*columns, " ")


def _labels(prefix: str, numbers: np.ndarray, suffix: str = "") -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), suffix, "")


def _lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)


def _table(name: str, rows: int, given: dict[str, pa.Array]) -> pa.Table:
    """The given columns; the others hold what an optional field mostly holds."""
    empty = {"list": _lists(pa.array([], pa.string())), "text": pa.array([""] * rows)}
    columns = []
    for field in SCHEMAS[name]:
        if field.name in given:
            columns.append(given[field.name])
        elif pa.types.is_list(field.type):
            columns.append(pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), empty["list"].values))
        else:
            columns.append(empty["text"])
    return pa.table(columns, names=SCHEMAS[name].names)


def _write_part(writer: IndexWriter, start: int, rows: int) -> list[FileEntry]:
    rng = np.random.default_rng(start)
    numbers = np.arange(start, start + rows)
    quotes = _phrases(rng, rows, 14)
    kinds = pa.array([kind.value for kind in UnitKind]).take(pa.array(numbers % len(UnitKind)))
    doc_ids = _labels("corpus/doc-", numbers // 20, ".md")
    char_starts = (numbers % 20) * 100
    unit_ids = _labels("u", numbers + 10**15)
    units = {
        "unit_id": unit_ids,
        "kind": kinds,
        "subject": _phrases(rng, rows, 2),
        "predicate": _phrases(rng, rows, 1),
        "canonical_predicate": _phrases(rng, rows, 1),
        "object": _phrases(rng, rows, 3),
        "polarity": pa.array(["positive"] * rows),
        "confidence": pa.array(np.ones(rows)),
        "aliases": _lists(_phrases(rng, rows, 2)),
        "evidence_quote": quotes,
        "char_start": pa.array(char_starts),
        "char_end": pa.array(char_starts + pc.utf8_length(quotes).to_numpy()),
        "passage_id": _labels("p", numbers // UNITS_PER_PASSAGE + 10**15),
        "doc_id": doc_ids,
        "sentence_ids": _lists(pc.binary_join_element_wise(doc_ids, _labels("#s", numbers % 20 + 1), "")),
        "retrieval_text": pc.binary_join_element_wise(quotes, _phrases(rng, rows, 6), ". "),
    }
    first = np.arange(0, rows, UNITS_PER_PASSAGE)
    chosen = pa.array(first)
    passages = {
        "passage_id": units["passage_id"].take(chosen),
        "doc_id": doc_ids.take(chosen),
        "sentence_ids": units["sentence_ids"].take(chosen),
        "char_start": units["char_start"].take(chosen),
        "char_end": units["char_end"].take(chosen),
        "text": _phrases(rng, len(first), 60),
        "semantic": pa.array(np.ones(len(first), bool)),
    }
    vectors = rng.standard_normal((rows, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [
        writer.write_table("units", _table("units", rows, units)),
        writer.write_table("passages", _table("passages", len(first), passages)),
        writer.write_table("vectors", vectors_table(unit_ids, vectors)),
    ]


def build(location: Path, units: int) -> None:
    """Write and publish an index of that many units."""
    writer = IndexWriter(location)
    entries = [
        entry
        for start in range(0, units, PART_ROWS)
        for entry in _write_part(writer, start, min(PART_ROWS, units - start))
    ]
    writer.publish(entries, Stamp(encoder="synthetic", dimension=DIMENSION, resin_version="0"))


def time_pairs(reader: IndexReader, pairs: int) -> tuple[list[float], list[float]]:
    """Seconds of each search through the reader and of the same search on its FAISS object, taken in turns."""
    rng = np.random.default_rng(7)
    ours: list[float] = []
    bare: list[float] = []
    for number in range(pairs + 3):
        query = rng.standard_normal((1, DIMENSION), dtype=np.float32)
        query /= np.linalg.norm(query)
        steps = [
            (ours, lambda q=query: reader.search(q, (), 10)),
            (bare, lambda q=query: reader.faiss_index.search(q, 10)),
        ]
        for times, step in steps if number % 2 else reversed(steps):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
    return ours[3:], bare[3:]  # the first few also bring the mapped file into memory


def main() -> None:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--pairs", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="resin-bench-") as folder:
        began = time.perf_counter()
        build(Path(folder), options.units)
        built = time.perf_counter()
        reader = IndexReader.open(folder)
        opened = time.perf_counter()
        reader.warm()
        warmed = time.perf_counter()
        ours, bare = time_pairs(reader, options.pairs)
        threads = faiss.omp_get_max_threads()
        p50, raw = float(np.median(ours)), float(np.median(bare))
        print(f"units {options.units:,} x {DIMENSION}, {len(reader.manifest.files)} files, {threads} FAISS threads")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        for name, value in (
            ("build s", built - began),
            ("open s", opened - built),
            ("warm s", warmed - opened),
            ("reader p50 ms", p50 * 1e3),
            ("faiss p50 ms", raw * 1e3),
            ("ratio of p50s", p50 / raw),
            ("p50 of the pairs' differences, ms", float(np.median(np.subtract(ours, bare))) * 1e3),
            ("peak GB", peak),
        ):
            print(f"{name:<34} {value:>9.3f}")


if __name__ == "__main__":
    main()
