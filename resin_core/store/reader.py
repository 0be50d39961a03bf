"""Answers from one published generation. Nothing it opened changes under it: files are immutable."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from resin_core.errors import EncoderError, IndexCorruptError, IndexMismatchError, UnknownIdError
from resin_core.records import Candidate, Document, Passage, ReasoningUnit, Reject, Sentence, UnitKind
from resin_core.store import vectors as faiss_store
from resin_core.store.filesystem import IndexFolder, Location
from resin_core.store.gpu import on_gpu
from resin_core.store.lazily import Lazily
from resin_core.store.manifest import Manifest, read_manifest
from resin_core.store.parts import IdIndex, Rows, opened, read_part, read_parts
from resin_core.store.schema import record_of, records_of
from resin_core.store.sources import Documents, Sentences, SourceName

_KINDS = tuple(UnitKind)


class IndexReader:
    """One generation: units, passages and FAISS at hand, documents and sentences on demand. Safe for many threads."""

    def __init__(self, folder: IndexFolder, manifest: Manifest, device: str = "cpu") -> None:
        """Loads the generation of that manifest; use `open`. Raises IndexCorruptError."""
        self.folder = folder
        self.manifest = manifest
        self.generation = manifest.generation
        self._check_sizes()
        self._units = Rows(read_parts(folder, manifest.entries("units")))
        self._passages = Rows(read_parts(folder, manifest.entries("passages")))
        self.faiss_index = faiss_store.load(folder, manifest.entry("faiss"), manifest.stamp.dimension)
        if device == "cuda":
            self.faiss_index = on_gpu(self.faiss_index)
        self._unit_rows = self._load_unit_rows()
        self._documents = Documents(folder, manifest.entries("documents"))
        self._sentences = Sentences(folder, manifest.entries("sentences"))
        self._unit_index = Lazily(lambda: IdIndex(self._units.column("unit_id")))
        self._passage_index = Lazily(lambda: IdIndex(self._passages.column("passage_id")))
        self._kind_codes = Lazily(self._load_kind_codes)
        self._selectors: dict[frozenset[UnitKind], faiss_store.Selector | None] = {}
        self._selectors_lock = threading.Lock()

    @classmethod
    def open(cls, location: Location | IndexFolder, generation: str | None = None, device: str = "cpu") -> IndexReader:
        """The index at a path or URI; by default its newest generation. `device` cuda: vectors on a GPU as well.

        Raises IndexMissingError, IndexFormatError (written by a newer Resin) or IndexCorruptError (a file is missing,
        of another size, or unreadable; `verify` checks every byte).
        """
        folder = IndexFolder.at(location)
        return cls(folder, read_manifest(folder, generation), device)

    def check_encoder(self, name: str, dimension: int) -> None:
        """Raises IndexMismatchError unless the index was made with this encoder."""
        stamp = self.manifest.stamp
        if (name, dimension) != (stamp.encoder, stamp.dimension):
            raise IndexMismatchError(
                f"the index at {self.folder} was made with encoder {stamp.encoder!r} ({stamp.dimension} dimensions), "
                f"but encoder.model is {name!r} ({dimension} dimensions); set encoder.model to {stamp.encoder!r}, "
                "or build the index again with resin index"
            )

    def search(self, vectors: npt.NDArray[np.float32], kinds: Sequence[UnitKind], top_k: int) -> list[list[Candidate]]:
        """For each query vector (n, d) its best `top_k` units by cosine, of these kinds only (none given: of all).

        Equal scores are ordered by unit id. Fewer come back when the index holds fewer. Raises IndexMismatchError for
        another dimension, EncoderError for vectors that are not finite, ValueError for top_k below 1.
        """
        if top_k < 1:
            raise ValueError(f"top_k is {top_k}; ask for at least 1")
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        dimension = self.manifest.stamp.dimension
        if queries.ndim != 2 or queries.shape[1] != dimension:
            raise IndexMismatchError(
                f"query vectors of shape {queries.shape} do not fit the index at {self.folder}, made with encoder "
                f"{self.manifest.stamp.encoder!r}: expected (n, {dimension}); set encoder.model to that encoder"
            )
        if not np.isfinite(queries).all():
            raise EncoderError("query vectors hold NaN or infinity; check the encoder's model and precision")
        found = faiss_store.search(self.faiss_index, queries, top_k, self._selector(kinds))
        return [self._candidates(rows, scores, top_k) for rows, scores in found]

    def unit(self, unit_id: str) -> ReasoningUnit:
        """The unit of that id. Raises UnknownIdError when there is none."""
        found = self._unit_index.get().find(unit_id)
        if not found:
            raise UnknownIdError(f"no unit {unit_id!r} in the index at {self.folder}")
        return self._unit(found[0])

    def passage(self, passage_id: str) -> Passage:
        """The passage of that id. Raises UnknownIdError when there is none."""
        found = self.passages([passage_id])
        if not found:
            raise UnknownIdError(f"no passage {passage_id!r} in the index at {self.folder}")
        return found[passage_id]

    def passages(self, passage_ids: Iterable[str]) -> dict[str, Passage]:
        """The passages of these ids, in the order given; ids that are not there are left out."""
        index = self._passage_index.get()
        rows = {passage_id: index.find(passage_id) for passage_id in passage_ids}
        return {key: record_of(Passage, self._passages.values(at[0])) for key, at in rows.items() if at}

    def passages_of(self, doc_id: str) -> list[Passage]:
        """The passages of a document, in the order of their spans; none for an unknown document."""
        rows = np.flatnonzero(pc.equal(self._passages.column("doc_id"), doc_id).to_numpy(zero_copy_only=False))
        found = [record_of(Passage, self._passages.values(int(row))) for row in rows]
        return sorted(found, key=lambda passage: passage.char_start)

    def document(self, doc_id: str) -> Document:
        """The whole document. Raises UnknownIdError when there is none of that id."""
        return self._documents.get(doc_id)

    def source_names(self, doc_ids: Iterable[str]) -> dict[str, SourceName]:
        """Title and URI of these documents, without reading their texts; unknown ids are left out."""
        return self._documents.names(doc_ids)

    def sentences(self, doc_id: str) -> list[Sentence]:
        """The document's sentences by number; none for an unknown document."""
        return self._sentences.get(doc_id)

    def warm(self) -> None:
        """Load now what would be loaded at first use, so that the first question is no slower than the next."""
        for part in (self._unit_index, self._passage_index, self._kind_codes):
            part.get()
        self._documents.warm()
        self._sentences.warm()

    def iter_documents(self) -> Iterator[Document]:
        """Every document, read part by part."""
        return self._stream("documents")

    def iter_passages(self) -> Iterator[Passage]:
        """Every passage, read part by part."""
        return self._stream("passages")

    def iter_units(self) -> Iterator[ReasoningUnit]:
        """Every unit, read part by part."""
        return self._stream("units")

    def iter_rejects(self) -> Iterator[Reject]:
        """Every reject, read part by part."""
        return self._stream("rejects")

    def _stream(self, name: str) -> Iterator[Any]:
        for entry in self.manifest.entries(name):
            with opened(self.folder, entry) as parquet:
                for batch in parquet.iter_batches(batch_size=1024):
                    yield from records_of(name, batch)

    def _candidates(self, rows: npt.NDArray[np.int64], scores: npt.NDArray[np.float64], top_k: int) -> list[Candidate]:
        unit_rows = self._unit_rows[rows].tolist()
        ids = [self._units.value(row, "unit_id") for row in unit_rows]
        ranked = sorted(zip(scores.tolist(), ids, unit_rows, strict=True), key=lambda item: (-item[0], item[1]))
        return [
            Candidate(unit=self._unit(row), score=score, rank=rank)
            for rank, (score, _, row) in enumerate(ranked[:top_k], start=1)
        ]

    def _unit(self, row: int) -> ReasoningUnit:
        unit: ReasoningUnit = record_of(ReasoningUnit, self._units.values(row))
        return unit

    def _selector(self, kinds: Sequence[UnitKind]) -> faiss_store.Selector | None:
        wanted = frozenset(UnitKind(kind) for kind in kinds)
        if not wanted or len(wanted) == len(_KINDS):
            return None
        with self._selectors_lock:
            if wanted not in self._selectors:
                mask = np.isin(self._kind_codes.get(), [_KINDS.index(kind) for kind in wanted])
                self._selectors[wanted] = None if mask.all() else faiss_store.Selector(mask)
            return self._selectors[wanted]

    def _load_kind_codes(self) -> npt.NDArray[np.int8]:
        codes = pc.index_in(self._units.column("kind"), value_set=pa.array(_KINDS, type=pa.large_string()))
        return np.asarray(pc.fill_null(codes, -1).to_numpy(), dtype=np.int8)[self._unit_rows]

    def _load_unit_rows(self) -> npt.NDArray[np.int64]:
        entry = self.manifest.entry("unit_rows")
        rows = np.asarray(read_part(self.folder, entry)["unit_row"].to_numpy(), dtype=np.int64)
        total = len(self._units)
        if (
            len(rows) != total
            or self.faiss_index.ntotal != total
            or (total and not 0 <= rows.min() <= rows.max() < total)
        ):
            raise IndexCorruptError(
                entry.path,
                f"{self.folder.full(entry.path)} does not fit the index: {len(rows)} rows for {total} units and "
                f"{self.faiss_index.ntotal} vectors; run resin index again",
            )
        return rows

    def _check_sizes(self) -> None:
        sizes = self.folder.sizes(entry.path for entry in self.manifest.files)
        for entry in self.manifest.files:
            if sizes[entry.path] != entry.bytes:
                found = (
                    "is missing" if sizes[entry.path] is None else f"has {sizes[entry.path]} bytes, not {entry.bytes}"
                )
                message = f"{self.folder.full(entry.path)} {found}; restore it or run resin index again"
                raise IndexCorruptError(entry.path, message)
