"""The stages of the indexing job as Ray Data runs them: each takes Arrow rows and gives Arrow rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs import former, rows
from jobs.extraction import Extractor
from jobs.vllm_rounds import KeptOnly
from jobs.work import WorkFolder
from resin_core.config import EncoderSection, IndexingSection, LLMSection
from resin_core.encoder import SentenceEncoder
from resin_core.errors import LLMRequestError, StoppedError
from resin_core.indexing.extract import together
from resin_core.indexing.keys import document_key
from resin_core.llm.build import OpenChatModel, open_chat_model
from resin_core.llm.context import count_tokens_estimate
from resin_core.readers.read import read_source
from resin_core.readers.rejects import ReadDocument
from resin_core.readers.sources import SourceFile
from resin_core.records import Document, Reject
from resin_core.store import schema
from resin_core.store.manifest import FileEntry, Manifest
from resin_core.store.writer import IndexWriter

STAGED_ROWS = 64
_STAGED_CHARS = 8_000_000


class Read:
    """Source files to staged documents and reject parts; the row it gives says where they are."""

    def __init__(self, work: WorkFolder, writer: IndexWriter, settings: IndexingSection) -> None:
        self._work, self._writer, self._settings = work, writer, settings

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """One row a staged part: path, documents, rejects (entries as JSON). Small files share a part."""
        documents: list[ReadDocument] = []
        rejects: list[Reject] = []
        size = part = 0
        files = [SourceFile.model_validate_json(line) for line in batch.column("file").to_pylist()]
        for item in chain.from_iterable(read_source(file, self._settings.max_document_bytes) for file in files):
            if isinstance(item, Reject):
                rejects.append(item)
            else:
                documents.append(item)
                size += len(item.document.text)
            if len(documents) + len(rejects) >= STAGED_ROWS or size >= _STAGED_CHARS:
                yield self._flush(f"{files[0].path}\x1f{part}", documents, rejects)
                documents, rejects, size, part = [], [], 0, part + 1
        if documents or rejects:
            yield self._flush(f"{files[0].path}\x1f{part}", documents, rejects)

    def _flush(self, name: str, documents: list[ReadDocument], rejects: list[Reject]) -> pa.Table:
        path = ""
        if documents:
            keys = [document_key(read.document) for read in documents]
            path = self._work.stage(name, rows.staged(documents, keys))
        entry = ""
        if rejects:
            entry = self._writer.write_table("rejects", schema.to_table("rejects", rejects)).model_dump_json()
        reasons = [f"{reject.stage}:{reject.reason}" for reject in rejects]
        return pa.table(
            {
                "path": pa.array([path], pa.string()),
                "documents": pa.array([len(documents)], pa.int64()),
                "rejects": pa.array([entry], pa.string()),
                "reasons": pa.array([reasons], pa.list_(pa.string())),
            }
        )


class Extract:
    """Documents to passages, units and rejects, with many model calls in flight, each reply kept as it comes."""

    def __init__(self, work: WorkFolder, llm: LLMSection, settings: IndexingSection, watch: Any) -> None:
        self._work, self._llm, self._settings, self._watch = work, llm, settings, watch
        self._extractor: Extractor | None = None

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """One row a document; none for those that a stopped run left undone, which the driver finds missing.

        Raises StoreError when a reply cannot be kept; calls for the other documents then end.
        """
        documents = rows.documents_of(batch)
        keys = batch.column("key").to_pylist()
        parts = await together([self._one(batch, at, keys[at], document) for at, document in enumerate(documents)])
        return pa.concat_tables([rows.no_row(), *(part for part in parts if part is not None)])

    async def _one(self, batch: pa.Table, at: int, key: str, document: Document) -> pa.Table | None:
        extractor = self._open()
        if extractor.stopped:
            return None
        try:
            found, resumed = await extractor.index(document, former.former_of(batch, at))
        except (StoppedError, LLMRequestError):
            # The watch hears of it and ends the run with its reason; what other documents still do is not cut off.
            return None
        return rows.indexed_row(key, found, self._work.results, count_tokens_estimate(document.text), resumed)

    def _open(self) -> Extractor:
        # Made on first use, inside the loop that will own its connections.
        if self._extractor is None:
            self._extractor = Extractor(self._llm, self._settings, self._work.replies, self._watch, self._model())
        return self._extractor

    def _model(self) -> OpenChatModel | KeptOnly:
        if self._settings.engine == "vllm":
            return KeptOnly(self._llm.model)
        if self._llm.base_url is None:
            raise RuntimeError("the extraction stage needs llm.base_url")
        return open_chat_model(self._llm, self._llm.base_url)


class Embed:
    """Adds the vectors of a batch's units: one list of float32 rows a document, in unit order."""

    def __init__(self, settings: EncoderSection) -> None:
        self._encoder = SentenceEncoder(settings)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """One `encode` for the whole batch."""
        units = batch.column("units").combine_chunks()
        texts = rows.flat(batch, "units").column("retrieval_text").to_pylist()
        vectors = self._encoder.encode(texts)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1), pa.float32()), self._encoder.dimension)
        lengths = units.value_lengths().to_numpy()
        offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
        return batch.append_column("vectors", pa.ListArray.from_arrays(offsets, flat))


class Write:
    """A batch's tables to immutable part files; the row it gives holds their entries and the counts."""

    def __init__(self, writer: IndexWriter, dimension: int) -> None:
        self._writer, self._dimension = writer, dimension

    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row: entries as JSON, counts."""
        tables = {name: rows.flat(batch, name) for name in rows.NESTED}
        entries = [
            self._writer.write_table(name, table).model_dump_json() for name, table in tables.items() if table.num_rows
        ]
        units = tables["units"]
        if units.num_rows:
            flat = pa.concat_arrays([chunk.flatten() for chunk in batch.column("vectors").chunks])
            values = flat.flatten().to_numpy(zero_copy_only=False).reshape(-1, self._dimension)
            ids = units.column("unit_id").combine_chunks()
            entries.append(self._writer.write_table("vectors", schema.vectors_table(ids, values)).model_dump_json())
        rejects = tables["rejects"]
        colon = pa.scalar(":", pa.large_string())
        reasons = pc.binary_join_element_wise(rejects.column("stage"), rejects.column("reason"), colon)
        counts = {name: pc.sum(batch.column(name)) for name in rows.COUNTS}
        return pa.table(
            {
                "entries": pa.array([entries], pa.list_(pa.string())),
                "documents": pa.array([batch.num_rows], pa.int64()),
                "passages": pa.array([tables["passages"].num_rows], pa.int64()),
                "kinds": _counted(units.column("kind")),
                "reasons": _counted(reasons),
                **{name: pa.array([value.as_py() or 0], pa.int64()) for name, value in counts.items()},
            }
        )


def _counted(values: pa.ChunkedArray) -> pa.Array:
    """One row: pairs of a value and how often it stands."""
    pairs = [(str(item["values"]), int(item["counts"])) for item in pc.value_counts(values).to_pylist()]
    return pa.array([pairs], pa.map_(pa.string(), pa.int64()))


def entry_of(line: str) -> FileEntry:
    """A part's entry from its JSON form."""
    return FileEntry.model_validate_json(line)


class Staged:
    """Staged parts to the documents in them that are to do, with what the current generation has of each."""

    def __init__(self, work: WorkFolder, manifest: Manifest | None, todo: Any, places: Any) -> None:
        """`todo` and `places` are references to the ids to do and to what `former.find` gave."""
        import ray

        self._work, self._manifest = work, manifest
        self._todo, self._places = ray.get([todo, places])

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """One table a part."""
        for path in batch.column("path").to_pylist():
            with self._work.open(path) as file:
                table = pq.read_table(file)
            table = table.filter(pc.is_in(table.column("doc_id"), value_set=self._todo)).drop_columns(["place"])
            yield former.attach(self._work.folder, self._manifest, table, self._places)
