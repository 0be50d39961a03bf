"""What of the current generation stays: unchanged parts are shared, parts with replaced documents are rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.work import WorkFolder
from resin_core.errors import DuplicateIdError
from resin_core.indexing.keys import content_key
from resin_core.llm.patient import GAVE_UP
from resin_core.readers.sources import SourceFile
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, Manifest, Stamp
from resin_core.store.parts import read_part
from resin_core.store.revise import kept_entries
from resin_core.store.writer import IndexWriter


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
    folder: IndexFolder, manifest: Manifest | None, work: WorkFolder, paths: Sequence[str], forced: Sequence[str] = ()
) -> pa.Array:
    """Ids of staged documents that the current generation does not already hold: same content, same extraction key.

    A document of which a call was given up (the endpoint failed on it) counts as not held: the same command tries
    again. Those of `forced` are done in any case.
    """
    known = pa.array([], pa.string())
    if manifest is not None:
        failed = pa.array(sorted(failed_documents(folder, manifest) | set(forced)), pa.large_string())
        keys = (_keys(folder, entry, work.results, failed) for entry in manifest.entries("documents"))
        known = pa.concat_arrays([known, *keys])
    found: list[pa.ChunkedArray] = []
    for path in paths:
        with work.folder.open(path) as file:
            table = pq.read_table(file, columns=["doc_id", "key"])
        keep = pc.invert(pc.is_in(table.column("key"), value_set=known))
        found.append(table.filter(keep).column("doc_id"))
    chunks = [chunk for column in found for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_string())


def publish(
    writer: IndexWriter,
    current: Manifest | None,
    entries: Sequence[FileEntry],
    replaced: pa.Array,
    stamp: Stamp,
    blocks: Sequence[Any] = (),
) -> Manifest:
    """The next generation: new parts, and what the current one holds of other documents and sources.

    `blocks` are references to the source files that were read (see `jobs.sources`). Raises StoreError kinds.
    """
    everything = list(entries)
    if current is not None:
        new_rejects = [entry for entry in entries if entry.name == "rejects"]
        everything += kept_entries(writer, current, replaced, new_rejects, _paths(blocks))
    return writer.publish(everything, stamp, based_on=None if current is None else current.generation)


def _paths(blocks: Sequence[Any]) -> pa.Array:
    import ray

    lines = [line for block in ray.get(list(blocks)) for line in block.column("file").to_pylist()]
    return pa.array([SourceFile.model_validate_json(line).path for line in lines], pa.large_string())


def failed_documents(folder: IndexFolder, manifest: Manifest) -> set[str]:
    """Documents of a generation with a call that was given up."""
    failed: set[str] = set()
    for entry in manifest.entries("rejects"):
        table = read_part(folder, entry, ["doc_id", "reason"])
        failed |= set(table.filter(pc.starts_with(table.column("reason"), GAVE_UP)).column("doc_id").to_pylist())
    return failed


def _keys(folder: IndexFolder, entry: FileEntry, extraction: str, without: pa.Array) -> pa.Array:
    """The content keys of one part's documents, made without reading their texts."""
    table = read_part(folder, entry, ["doc_id", "title", "uri", "metadata", "content_hash", "extraction"])
    held = pc.and_(
        pc.equal(table.column("extraction"), extraction),
        pc.invert(pc.is_in(table.column("doc_id"), value_set=without)),
    )
    columns = (column.to_pylist() for column in table.filter(held).itercolumns())
    keys = [
        content_key(doc_id, title, uri, content_hash, dict(metadata))
        for doc_id, title, uri, metadata, content_hash, _ in zip(*columns, strict=True)
    ]
    return pa.array(keys, pa.string())
