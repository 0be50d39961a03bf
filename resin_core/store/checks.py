"""What the tables of one generation must say about each other, for files already known to be whole.

Every check yields (path of the file at fault, what is wrong). Raises IndexCorruptError when a part cannot be read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from resin_core.ids import content_hash, sentence_id
from resin_core.records import UnitKind
from resin_core.store import vectors as faiss_store
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, Manifest, manifest_path
from resin_core.store.parts import positions, read_column, read_part, read_parts, starts_of
from resin_core.store.schema import TABLES, vectors_of
from resin_core.store.writer import NORM_TOLERANCE

Found = Iterator[tuple[str, str]]
_Int64 = npt.NDArray[np.int64]
_HELD_PARTS = 2


def content_problems(folder: IndexFolder, manifest: Manifest) -> Found:
    """Every disagreement within the generation."""
    yield from _counts(folder, manifest)
    documents = _Documents(folder, manifest.entries("documents"))
    yield from documents.problems()
    sentences = _Sentences(folder, manifest.entries("sentences"), documents)
    yield from sentences.problems()
    passages = manifest.entries("passages")
    spans = _Spans(folder, passages, "passage_id")
    yield from spans.repeats()
    for entry in passages:
        yield from _texts(folder, entry, "text", "passage_id", documents, sentences)
    for entry in manifest.entries("units"):
        yield from _texts(folder, entry, "evidence_quote", "unit_id", documents, sentences)
        yield from _inside(folder, entry, spans)
    yield from _vectors(folder, manifest)


class _Documents:
    """Documents' ids and lengths, and their texts a few parts at a time."""

    def __init__(self, folder: IndexFolder, entries: Sequence[FileEntry]) -> None:
        self.folder, self.entries, self.starts = folder, entries, starts_of(entries)
        self.ids = read_column(folder, entries, "doc_id")
        self.lengths = np.zeros(len(self.ids), np.int64)
        self._held: OrderedDict[int, pa.ChunkedArray] = OrderedDict()
        self._last: tuple[int, str] = (-1, "")

    def problems(self) -> Found:
        yield from _repeats(self.ids, self.entries, "doc_id")
        for start, entry in zip(self.starts, self.entries, strict=False):
            table = read_part(self.folder, entry, ["doc_id", "text", "content_hash"])
            for offset in range(table.num_rows):
                doc_id, text, stated = (table.column(i)[offset].as_py() for i in range(3))
                self.lengths[start + offset] = len(text)
                if content_hash(text) != stated:
                    yield entry.path, f"document {doc_id!r}: content_hash does not fit the text"

    def text(self, row: int) -> str:
        if self._last[0] != row:
            part = int(np.searchsorted(self.starts, row, side="right")) - 1
            if part not in self._held:
                self._held[part] = read_part(self.folder, self.entries[part], ["text"])["text"]
                if len(self._held) > _HELD_PARTS:
                    self._held.popitem(last=False)
            self._held.move_to_end(part)
            self._last = (row, self._held[part][row - int(self.starts[part])].as_py())
        return self._last[1]


class _Sentences:
    """Offsets of every sentence, found by document row and number."""

    def __init__(self, folder: IndexFolder, entries: Sequence[FileEntry], documents: _Documents) -> None:
        self._entries, self._documents, self._starts = entries, documents, starts_of(entries)
        tables = read_parts(folder, entries, ["number", "char_start", "char_end"])
        joined = [np.concatenate([np.empty(0, np.int64), *(table[i].to_numpy() for table in tables)]) for i in range(3)]
        self.numbers, self.char_starts, self.char_ends = joined
        self.rows = positions(read_column(folder, entries, "doc_id"), documents.ids)
        keys = (self.rows << 32) + self.numbers
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def problems(self) -> Found:
        known = self.rows >= 0
        limit = np.where(known, np.append(self._documents.lengths, 0)[self.rows], 0)
        outside = known & ~((self.char_starts >= 0) & (self.char_starts <= self.char_ends) & (self.char_ends <= limit))
        repeated = np.zeros(len(known), bool)
        repeated[self._order[1:]] = self._keys[1:] == self._keys[:-1]
        for wrong, message in (
            (~known, "belongs to no document of the index"),
            (outside, "is not a span of its document"),
            (known & repeated, "stands twice"),
        ):
            for row in np.flatnonzero(wrong):
                part = int(np.searchsorted(self._starts, row, side="right")) - 1
                yield (
                    self._entries[part].path,
                    f"sentence {self.numbers[row]} (row {row - self._starts[part]}) {message}",
                )

    def span(self, doc_row: int, number: int) -> tuple[int, int] | None:
        key = (doc_row << 32) + number
        at = int(np.searchsorted(self._keys, key))
        if at == len(self._keys) or self._keys[at] != key:
            return None
        row = self._order[at]
        return int(self.char_starts[row]), int(self.char_ends[row])


class _Spans:
    """Ids, documents and offsets of every passage."""

    def __init__(self, folder: IndexFolder, entries: Sequence[FileEntry], column: str) -> None:
        self._entries, self._column = entries, column
        self.ids = read_column(folder, entries, column)
        self.doc_ids = read_column(folder, entries, "doc_id")
        tables = read_parts(folder, entries, ["char_start", "char_end"])
        self.char_starts, self.char_ends = (
            np.concatenate([np.empty(0, np.int64), *(table[i].to_numpy() for table in tables)]) for i in range(2)
        )

    def repeats(self) -> Found:
        return _repeats(self.ids, self._entries, self._column)


def _counts(folder: IndexFolder, manifest: Manifest) -> Found:
    path = manifest_path(manifest.generation)
    for name in TABLES:
        rows = sum(entry.rows for entry in manifest.entries(name))
        if manifest.counts.get(name) != rows:
            yield path, f"counts.{name} is {manifest.counts.get(name)}, its files hold {rows} rows"
    counted = pc.value_counts(read_column(folder, manifest.entries("units"), "kind")).to_pylist()
    kinds = {kind.value: 0 for kind in UnitKind} | {item["values"]: item["counts"] for item in counted}
    if kinds != manifest.units_by_kind:
        yield path, f"units_by_kind is {manifest.units_by_kind}, the units are {kinds}"


def _texts(
    folder: IndexFolder, entry: FileEntry, quote: str, key: str, documents: _Documents, sentences: _Sentences
) -> Found:
    table = read_part(folder, entry, [key, "doc_id", "char_start", "char_end", quote, "sentence_ids"])
    doc_rows = positions(table["doc_id"], documents.ids)
    # In the order of the documents, so that each documents part is read once for this part.
    for offset in np.argsort(doc_rows, kind="stable").tolist():
        name, doc_id, start, end, text, sentence_ids = (
            table.column(column)[offset].as_py()
            for column in (key, "doc_id", "char_start", "char_end", quote, "sentence_ids")
        )
        row = int(doc_rows[offset])
        label = f"{key} {name!r}"
        if row < 0:
            yield entry.path, f"{label}: document {doc_id!r} is not in the index"
            continue
        if not 0 <= start <= end or documents.text(row)[start:end] != text:
            yield entry.path, f"{label}: {quote} is not the text of {doc_id!r} at {start}:{end}"
        spans = []
        for sentence in sentence_ids:
            number = sentence.rpartition("#s")[2]
            whole = number.isdecimal() and len(number) < 10 and sentence_id(doc_id, int(number)) == sentence
            span = sentences.span(row, int(number)) if whole else None
            if span is None:
                yield entry.path, f"{label}: sentence {sentence!r} does not exist in document {doc_id!r}"
            else:
                spans.append(span)
        if not sentence_ids:
            yield entry.path, f"{label}: names no sentence"
        elif len(spans) == len(sentence_ids) and not (min(spans)[0] <= start and end <= max(s[1] for s in spans)):
            yield entry.path, f"{label}: its sentences do not cover {start}:{end}"


def _inside(folder: IndexFolder, entry: FileEntry, spans: _Spans) -> Found:
    table = read_part(folder, entry, ["unit_id", "passage_id", "doc_id", "char_start", "char_end"])
    rows = positions(table["passage_id"], spans.ids)
    known = np.flatnonzero(rows >= 0)
    at = rows[known]
    starts, ends = (table[name].to_numpy()[known] for name in ("char_start", "char_end"))
    outside = (starts < spans.char_starts[at]) | (ends > spans.char_ends[at])
    other = pc.not_equal(table["doc_id"].take(pa.array(known)), spans.doc_ids.take(pa.array(at)))
    foreign = np.asarray(other.to_numpy(), dtype=bool)
    for wrong, message in (
        (np.flatnonzero(rows < 0), "is not in the index"),
        (known[outside], "does not hold its span"),
        (known[foreign], "is of another document"),
    ):
        for offset in wrong.tolist():
            unit, passage = (table[name][offset].as_py() for name in ("unit_id", "passage_id"))
            yield entry.path, f"unit_id {unit!r}: passage {passage!r} {message}"


def _vectors(folder: IndexFolder, manifest: Manifest) -> Found:
    units, parts = manifest.entries("units"), manifest.entries("vectors")
    unit_ids = read_column(folder, units, "unit_id")
    carried = read_column(folder, parts, "unit_id")
    yield from _repeats(unit_ids, units, "unit_id")
    yield from _repeats(carried, parts, "unit_id")
    rows = positions(carried, unit_ids)
    yield from _missing(rows, carried, parts, "vector of {!r} has no unit")
    yield from _missing(positions(unit_ids, carried), unit_ids, units, "unit_id {!r}: has no vector")
    entry = manifest.entry("unit_rows")
    if not np.array_equal(read_part(folder, entry)["unit_row"].to_numpy(), rows):
        yield entry.path, "does not lead from the vectors to their units"
    index = faiss_store.load(folder, manifest.entry("faiss"), manifest.stamp.dimension)
    yield from _faiss_rows(folder, manifest, index)


def _faiss_rows(folder: IndexFolder, manifest: Manifest, index: Any) -> Found:
    parts, dimension = manifest.entries("vectors"), manifest.stamp.dimension
    path = manifest.entry("faiss").path
    starts = starts_of(parts)
    if index.ntotal != starts[-1]:
        yield path, f"holds {index.ntotal} vectors, the vectors files {starts[-1]}"
        return
    for start, entry in zip(starts.tolist(), parts, strict=False):
        table = read_part(folder, entry)
        if table.schema.field("vector").type.list_size != dimension:
            yield entry.path, f"holds vectors of another dimension than {dimension}"
            continue
        block = vectors_of(table["vector"], dimension)
        norms = np.linalg.norm(block, axis=1)
        for offset in np.flatnonzero(~(np.abs(norms - 1) <= NORM_TOLERANCE)).tolist():
            yield (
                entry.path,
                f"vector of {table['unit_id'][offset].as_py()!r} has length {norms[offset]:.4g}, expected 1",
            )
        if len(block):
            stored = index.reconstruct_n(start, len(block))
            for offset in np.flatnonzero((stored != block).any(axis=1)).tolist():
                yield path, f"row {start + offset} is not the vector of {table['unit_id'][offset].as_py()!r}"


def _missing(rows: _Int64, ids: pa.ChunkedArray, entries: Sequence[FileEntry], message: str) -> Found:
    yield from _at(np.flatnonzero(rows < 0), ids, entries, message)


def _repeats(ids: pa.ChunkedArray, entries: Sequence[FileEntry], column: str) -> Found:
    rows = np.flatnonzero(positions(ids, ids) != np.arange(len(ids)))
    yield from _at(rows, ids, entries, f"{column} {{!r}} stands more than once")


def _at(rows: _Int64, ids: pa.ChunkedArray, entries: Sequence[FileEntry], message: str) -> Found:
    starts = starts_of(entries)
    for row in rows.tolist():
        part = int(np.searchsorted(starts, row, side="right")) - 1
        yield entries[part].path, message.format(ids[row].as_py())
