"""Documents and sentences of one generation, by document id, read when first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resin_core.errors import UnknownIdError
from resin_core.ids import sentence_id
from resin_core.records import Document, Sentence
from resin_core.store.filesystem import IndexFolder
from resin_core.store.lazily import Lazily
from resin_core.store.manifest import FileEntry
from resin_core.store.parts import IdIndex, Rows, opened, read_parts, starts_of
from resin_core.store.schema import records_of


class SourceName(NamedTuple):
    """What a document is called and where it came from."""

    title: str
    uri: str


class Documents:
    """Documents by id. Ids, titles and URIs are held once asked for; texts are read one row group at a time."""

    def __init__(self, folder: IndexFolder, entries: Sequence[FileEntry]) -> None:
        self._folder, self._entries, self._starts = folder, entries, starts_of(entries)
        self._index = Lazily(self._load)

    def names(self, doc_ids: Iterable[str]) -> dict[str, SourceName]:
        """Title and URI of each document that is there."""
        rows, index = self._index.get()
        found = {doc_id: index.find(doc_id) for doc_id in doc_ids}
        return {
            doc_id: SourceName(rows.value(at[0], "title"), rows.value(at[0], "uri"))
            for doc_id, at in found.items()
            if at
        }

    def get(self, doc_id: str) -> Document:
        """The whole document. Raises UnknownIdError when there is none of that id."""
        found = self._index.get()[1].find(doc_id)
        if not found:
            raise UnknownIdError(f"no document {doc_id!r} in the index at {self._folder}")
        part = int(np.searchsorted(self._starts, found[0], side="right")) - 1
        offset = found[0] - int(self._starts[part])
        with opened(self._folder, self._entries[part]) as parquet:
            group = 0
            while offset >= parquet.metadata.row_group(group).num_rows:
                offset -= parquet.metadata.row_group(group).num_rows
                group += 1
            document: Document = next(records_of("documents", parquet.read_row_group(group).slice(offset, 1)))
        return document

    def warm(self) -> None:
        """Load what `names` and `get` look up in."""
        self._index.get()

    def _load(self) -> tuple[Rows, IdIndex]:
        rows = Rows(read_parts(self._folder, self._entries, ["doc_id", "title", "uri"]))
        return rows, IdIndex(rows.column("doc_id"))


class Sentences:
    """Sentences by document id: numbers and offsets are held once asked for (20 bytes a sentence)."""

    def __init__(self, folder: IndexFolder, entries: Sequence[FileEntry]) -> None:
        self._folder, self._entries = folder, entries
        self._index = Lazily(self._load)

    def get(self, doc_id: str) -> list[Sentence]:
        """The document's sentences by number; none for an unknown document."""
        columns, ends, index = self._index.get()
        found = []
        for run in index.find(doc_id):
            start = int(ends[run - 1]) if run else 0
            found += list(zip(*(column[start : ends[run]].tolist() for column in columns), strict=True))
        return [
            Sentence(sentence_id=sentence_id(doc_id, number), number=number, char_start=start, char_end=end)
            for number, start, end in sorted(found)
        ]

    def warm(self) -> None:
        """Load what `get` looks up in."""
        self._index.get()

    def _load(self) -> tuple[tuple[Any, ...], Any, IdIndex]:
        tables = read_parts(self._folder, self._entries)
        # A document's sentences stand together, so its id is kept once for each run of rows and not once a row.
        encoded = [pc.run_end_encode(chunk) for table in tables for chunk in table["doc_id"].chunks if len(chunk)]
        lengths = [np.diff(runs.run_ends.to_numpy(), prepend=0) for runs in encoded]
        ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths]), dtype=np.int64)
        columns = tuple(
            np.concatenate([np.empty(0, kind), *(table[name].to_numpy() for table in tables)])
            for name, kind in (("number", np.int32), ("char_start", np.int64), ("char_end", np.int64))
        )
        return columns, ends, IdIndex(pa.chunked_array([runs.values for runs in encoded], type=pa.large_string()))
