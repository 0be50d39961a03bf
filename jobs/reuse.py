"""What of the current generation stays: unchanged parts are shared, parts with replaced documents are rewritten."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.work import WorkFolder
from resin_core.errors import DuplicateIdError
from resin_core.indexing.keys import document_key
from resin_core.store import schema
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, Manifest
from resin_core.store.parts import read_part
from resin_core.store.writer import IndexWriter

_BY_DOCUMENT = ("documents", "sentences", "passages", "units", "rejects")


def refuse_duplicates(work: WorkFolder, paths: Sequence[str]) -> None:
    """Raises DuplicateIdError with both places. Reads two columns, not the texts."""
    tables = []
    for path in paths:
        with work.folder.open(path) as file:
            tables.append(pq.read_table(file, columns=["doc_id", "place"]))
    if not tables:
        return
    table = pa.concat_tables(tables)
    counts = table.group_by("doc_id").aggregate([("doc_id", "count")])
    repeated = counts.filter(pc.greater(counts.column("doc_id_count"), 1)).column("doc_id")
    if len(repeated):
        doc_id = min(repeated.to_pylist())
        places = table.filter(pc.equal(table.column("doc_id"), doc_id)).column("place").to_pylist()
        raise DuplicateIdError(doc_id, places[0], places[1])


def to_do(
    folder: IndexFolder, manifest: Manifest | None, same_extraction: bool, work: WorkFolder, paths: Sequence[str]
) -> pa.Array:
    """Ids of staged documents that the current generation does not already hold with the same content."""
    known: set[str] = set()
    if manifest is not None and same_extraction:
        for entry in manifest.entries("documents"):
            known |= {document_key(document) for document in schema.records_of("documents", read_part(folder, entry))}
    found: list[pa.ChunkedArray] = []
    for path in paths:
        with work.folder.open(path) as file:
            table = pq.read_table(file, columns=["doc_id", "key"])
        keep = pc.invert(pc.is_in(table.column("key"), value_set=pa.array(sorted(known), pa.string())))
        found.append(table.filter(keep).column("doc_id"))
    chunks = [chunk for column in found for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_string())


def kept_entries(
    writer: IndexWriter, manifest: Manifest, replaced: pa.Array, new_rejects: Sequence[FileEntry]
) -> list[FileEntry]:
    """The current generation's parts without the replaced documents; a part that loses nothing is shared as it is."""
    folder = writer.folder
    gone = [
        part.filter(pc.is_in(part.column("doc_id"), value_set=replaced)).column("unit_id")
        for part in (read_part(folder, entry, ["doc_id", "unit_id"]) for entry in manifest.entries("units"))
    ]
    chunks = [chunk for column in gone for chunk in column.chunks]
    units = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_string())
    again = [read_part(folder, entry, ["reject_id"]).column("reject_id") for entry in new_rejects]
    rejected = pa.concat_arrays([c for column in again for c in column.chunks]) if again else None
    entries = []
    for entry in manifest.files:
        if entry.name in _BY_DOCUMENT:
            part = read_part(folder, entry)
            drop = pc.is_in(part.column("doc_id"), value_set=replaced)
            if entry.name == "rejects" and rejected is not None:
                drop = pc.or_(drop, pc.is_in(part.column("reject_id"), value_set=rejected))
        elif entry.name == "vectors":
            part = read_part(folder, entry)
            drop = pc.is_in(part.column("unit_id"), value_set=units)
        else:
            continue
        if not pc.any(drop).as_py():
            entries.append(entry)
            continue
        rest = part.filter(pc.invert(drop))
        if rest.num_rows:
            entries.append(writer.write_table(entry.name, rest))
    return entries
