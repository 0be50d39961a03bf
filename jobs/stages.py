"""The stages of the indexing job as Ray Data runs them: each takes Arrow rows and gives Arrow rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs import rows
from jobs.work import WorkFolder
from resin_core.config import EncoderSection, IndexingSection, LLMSection
from resin_core.encoder import SentenceEncoder
from resin_core.indexing.document import index_document
from resin_core.indexing.extract import together
from resin_core.indexing.keys import document_key
from resin_core.llm.build import OpenChatModel
from resin_core.llm.context import count_tokens_estimate
from resin_core.readers.read import read_source
from resin_core.readers.rejects import ReadDocument
from resin_core.readers.sources import SourceFile
from resin_core.records import Reject
from resin_core.store import schema
from resin_core.store.manifest import FileEntry
from resin_core.store.writer import IndexWriter

_STAGED_ROWS = 256
_STAGED_CHARS = 8_000_000


class Read:
    """Source files to staged documents and reject parts; the row it gives says where they are."""

    def __init__(self, work: WorkFolder, writer: IndexWriter, settings: IndexingSection) -> None:
        self._work, self._writer, self._settings = work, writer, settings

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """One row a staged part: path, documents, rejects (entries as JSON)."""
        for line in batch.column("file").to_pylist():
            yield from self._file(SourceFile.model_validate_json(line))

    def _file(self, file: SourceFile) -> Iterator[pa.Table]:
        documents: list[ReadDocument] = []
        rejects: list[Reject] = []
        size = part = 0
        for item in read_source(file, self._settings.max_document_bytes):
            if isinstance(item, Reject):
                rejects.append(item)
            else:
                documents.append(item)
                size += len(item.document.text)
            if len(documents) + len(rejects) >= _STAGED_ROWS or size >= _STAGED_CHARS:
                yield self._flush(file, part, documents, rejects)
                documents, rejects, size, part = [], [], 0, part + 1
        if documents or rejects:
            yield self._flush(file, part, documents, rejects)

    def _flush(self, file: SourceFile, part: int, documents: list[ReadDocument], rejects: list[Reject]) -> pa.Table:
        path = ""
        if documents:
            keys = [document_key(read.document) for read in documents]
            path = self._work.stage(f"{file.path}\x1f{part}", rows.staged(documents, keys))
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
    """Documents to passages, units and rejects, with many model calls in flight; finished documents are kept."""

    def __init__(self, work: WorkFolder, llm: LLMSection, settings: IndexingSection, tally: Any) -> None:
        self._work, self._llm, self._settings, self._tally = work, llm, settings, tally
        self._model: OpenChatModel | None = None

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """One row a document; a document whose result was kept by an earlier run costs no call.

        Raises the first document's error as it is; calls for the others then end, and their results are not kept.
        """
        documents = rows.documents_of(batch)
        keys = batch.column("key").to_pylist()
        parts = await together([self._one(key, doc) for key, doc in zip(keys, documents, strict=True)])
        return pa.concat_tables(parts)

    async def _one(self, key: str, document: Any) -> pa.Table:
        kept = await asyncio.to_thread(self._work.kept, key)
        if kept is not None:
            self._tally.add.remote(rows.flat(kept, "units").num_rows)
            return rows.marked_resumed(kept)
        found = await index_document(document, self._open(), self._settings)
        row = rows.indexed_row(key, found, count_tokens_estimate(document.text))
        await asyncio.to_thread(self._work.keep, key, row)
        self._tally.add.remote(len(found.units))
        return row

    def _open(self) -> OpenChatModel:
        # Made on first use, inside the loop that will own its connections.
        if self._model is None:
            if self._llm.base_url is None:
                raise RuntimeError("the extraction stage needs llm.base_url")
            self._model = OpenChatModel(self._llm, self._llm.base_url)
        return self._model


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
        reasons = [
            f"{stage}:{reason}"
            for stage, reason in zip(
                rejects.column("stage").to_pylist(), rejects.column("reason").to_pylist(), strict=True
            )
        ]
        counts = {name: sum(batch.column(name).to_pylist()) for name in rows.COUNTS}
        return pa.table(
            {
                "entries": pa.array([entries], pa.list_(pa.string())),
                "documents": pa.array([batch.num_rows], pa.int64()),
                "passages": pa.array([tables["passages"].num_rows], pa.int64()),
                "kinds": pa.array([units.column("kind").to_pylist()], pa.list_(pa.string())),
                "reasons": pa.array([reasons], pa.list_(pa.string())),
                **{name: pa.array([value], pa.int64()) for name, value in counts.items()},
            }
        )


def entry_of(line: str) -> FileEntry:
    """A part's entry from its JSON form."""
    return FileEntry.model_validate_json(line)


def read_staged(work: WorkFolder, path: str, todo: pa.Array) -> pa.Table:
    """The staged documents of one part that are still to do."""
    import pyarrow.compute as pc

    with work.open(PurePosixPath(path)) as file:
        table = pq.read_table(file)
    return table.filter(pc.is_in(table.column("doc_id"), value_set=todo)).drop_columns(["place"])
