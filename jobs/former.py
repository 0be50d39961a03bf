"""Where the current generation holds an earlier form of a document to be indexed: by its id, else by its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.work import WorkFolder
from resin_core.indexing.carry import Former
from resin_core.store import schema
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, Manifest
from resin_core.store.parts import read_part

TABLES = ("documents", "passages", "units", "rejects")
_PLACES = pa.schema([("doc_id", pa.large_string()), ("former", pa.large_string()), ("parts", pa.list_(pa.int32()))])


def nothing() -> pa.Table:
    """Places for an index that has nothing to carry over."""
    return _PLACES.empty_table()


def find(folder: IndexFolder, manifest: Manifest, work: WorkFolder, paths: Sequence[str], todo: pa.Array) -> pa.Table:
    """For each document to do that has a former one: doc_id, former (its id) and parts (numbers of files).

    A document whose id is new may have been renamed or moved: then the former is one with the same text. What was made
    with another model, prompt or setting is no former one. Reads ids and hashes only.
    """
    known = _columns(folder, manifest.entries("documents"), ["doc_id", "content_hash", "extraction"])
    known = known.filter(pc.equal(known.column("extraction"), work.results))
    wanted = pa.concat_tables([_staged(work, path, todo) for path in paths])
    ids = known.column("doc_id")
    same_id = pc.index_in(wanted.column("doc_id"), value_set=ids)
    same_text = pc.index_in(wanted.column("content_hash"), value_set=known.column("content_hash"))
    former = pc.take(ids, pc.coalesce(same_id, same_text))
    pairs = pa.table({"doc_id": wanted.column("doc_id"), "former": former}).filter(pc.is_valid(former))
    needed = pc.unique(pairs.column("former"))
    holders: dict[str, list[int]] = {doc_id: [] for doc_id in needed.to_pylist()}
    for number, entry in enumerate(manifest.files):
        if entry.name in TABLES and holders:
            held = pc.unique(read_part(folder, entry, ["doc_id"]).column("doc_id"))
            for doc_id in held.filter(pc.is_in(held, value_set=needed)).to_pylist():
                holders[doc_id].append(number)
    parts = [holders[doc_id] for doc_id in pairs.column("former").to_pylist()]
    return pairs.append_column("parts", pa.array(parts, pa.list_(pa.int32()))).cast(_PLACES)


def attach(folder: IndexFolder, manifest: Manifest | None, batch: pa.Table, places: pa.Table) -> pa.Table:
    """Staged rows, with what there is of their former documents as nested columns former_*: empty lists for others."""
    here = places.filter(pc.is_in(places.column("doc_id"), value_set=batch.column("doc_id"))).to_pylist()
    former = {place["doc_id"]: place["former"] for place in here}
    numbers = sorted({number for place in here for number in place["parts"]})
    wanted = pa.array(sorted(set(former.values())), pa.large_string())
    entries = [manifest.files[number] for number in numbers] if manifest is not None else []
    order = [former.get(doc_id) for doc_id in batch.column("doc_id").to_pylist()]
    for name in TABLES:
        found = [read_part(folder, entry) for entry in entries if entry.name == name]
        table = pa.concat_tables([schema.SCHEMAS[name].empty_table(), *found])
        table = table.filter(pc.is_in(table.column("doc_id"), value_set=wanted))
        batch = batch.append_column(f"former_{name}", _nested(name, table, order))
    return batch


def former_of(batch: pa.Table, row: int) -> Former | None:
    """The former document of one row, or None."""
    tables = {name: _table(batch, name, row) for name in TABLES}
    documents = list(schema.records_of("documents", tables["documents"]))
    if not documents:
        return None
    return Former(
        documents[0], *(tuple(schema.records_of(name, tables[name])) for name in ("passages", "units", "rejects"))
    )


def _staged(work: WorkFolder, path: str, todo: pa.Array) -> pa.Table:
    with work.open(path) as file:
        table = pq.read_table(file, columns=["doc_id", "content_hash"])
    return table.filter(pc.is_in(table.column("doc_id"), value_set=todo))


def _columns(folder: IndexFolder, entries: Iterable[FileEntry], names: list[str]) -> pa.Table:
    empty = schema.SCHEMAS["documents"].empty_table().select(names)
    return pa.concat_tables([empty, *(read_part(folder, entry, names) for entry in entries)])


def _nested(name: str, table: pa.Table, order: Sequence[str | None]) -> pa.Array:
    kind = pa.struct(list(schema.SCHEMAS[name]))
    structs = table.to_struct_array()
    rows = pa.concat_arrays([pa.array([], kind), *getattr(structs, "chunks", [structs])])
    places: dict[str, list[int]] = {}
    for at, doc_id in enumerate(table.column("doc_id").to_pylist()):
        places.setdefault(doc_id, []).append(at)
    taken = [places.get(doc_id, []) if doc_id is not None else [] for doc_id in order]
    offsets = [0]
    for one in taken:
        offsets.append(offsets[-1] + len(one))
    values = rows.take(pa.array([at for one in taken for at in one], pa.int64()))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _table(batch: pa.Table, name: str, row: int) -> pa.Table:
    return pa.Table.from_struct_array(batch.column(f"former_{name}")[row].values)
