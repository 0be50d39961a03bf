"""The next generation from the current one: what stays when documents are replaced or deleted.

Only parts that hold such a document are read whole and written again, a few at a time; of all others one column of
ids is read. Parts that lose nothing are shared by path.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from resin_core.errors import InputError
from resin_core.readers.rejects import ROW_SUFFIX
from resin_core.records import Record
from resin_core.store.filesystem import IndexFolder, Location
from resin_core.store.manifest import FileEntry, Manifest, read_manifest
from resin_core.store.parts import read_column, read_part
from resin_core.store.unfinished import drop_replies, drop_staged
from resin_core.store.writer import IndexWriter

_BY_DOCUMENT = ("documents", "sentences", "passages", "rejects")
_STAGED_S = 3600.0  # staging younger than this may belong to a run that goes on
_READERS = 8
_REWRITERS = 3  # parts held whole at once
_IDS_AT_ONCE = 1 << 20


class DeleteReport(Record):
    """What a deletion took away, and what the index holds now. `deleted` counts documents."""

    generation: str
    former_generation: str
    deleted: int
    passages: int
    units: int
    total_documents: int
    total_units: int


class _Loss(NamedTuple):
    """What one part loses: the rows with these ids in this column."""

    column: str
    ids: pa.Array


class _Rest(NamedTuple):
    """What is left of a part, or None, and the units that went."""

    entry: FileEntry | None
    units: pa.Array


def delete_documents(location: Location | IndexFolder, doc_ids: Sequence[str]) -> DeleteReport:
    """Publish the next generation without these documents: text, sentences, passages, units, vectors and rejects.

    Their unfinished work goes too: kept replies, and staged documents of any run older than an hour. Older
    generations hold the text until they are collected (see gc). An id that stands in rejects only is known too.
    Raises InputError when an id is unknown, IndexBusyError when another run published meanwhile; then the index is
    as it was, except that in the latter case the unfinished work is gone.
    """
    writer = IndexWriter(location)
    manifest = read_manifest(writer.folder)
    wanted = list(dict.fromkeys(doc_ids))
    _refuse_unknown(writer.folder, manifest, wanted)
    # First: a deletion that is cut off after this still knows the documents when it is run again.
    drop_replies(writer.folder, wanted)
    drop_staged(writer.folder, time.time() - _STAGED_S)
    kept = kept_entries(writer, manifest, pa.array(wanted, pa.large_string()), ())
    made = writer.publish(kept, manifest.stamp, based_on=manifest.generation)
    lost = {name: manifest.counts.get(name, 0) - count for name, count in made.counts.items()}
    return DeleteReport(
        generation=made.generation,
        former_generation=manifest.generation,
        deleted=lost["documents"],
        passages=lost["passages"],
        units=lost["units"],
        total_documents=made.counts["documents"],
        total_units=made.counts["units"],
    )


def kept_entries(
    writer: IndexWriter,
    manifest: Manifest,
    replaced: pa.Array,
    new_rejects: Sequence[FileEntry],
    read_again: pa.Array | None = None,
) -> list[FileEntry]:
    """The generation's parts without the replaced documents (ids, large_string), in the manifest's order.

    Rejects that stand in `new_rejects` too are left out, and those of reading the sources in `read_again` (uris,
    large_string). Files that publish makes anew are not among the parts. Raises IndexCorruptError or StoreError.
    """
    folder = writer.folder
    losses: dict[str, list[_Loss]] = {entry.path: [] for entry in manifest.files}

    def search(name: str, column: str, ids: pa.Array) -> None:
        for entry, found in _found(folder, manifest.entries(name), column, ids):
            losses[entry.path].append(_Loss(column, found))

    search("units", "doc_id", replaced)
    units = _rewritten(writer, manifest.entries("units"), losses)
    for name in _BY_DOCUMENT:
        search(name, "doc_id", replaced)
    if new_rejects:
        again = read_column(folder, new_rejects, "reject_id")
        search("rejects", "reject_id", again)
    if read_again is not None and len(read_again):
        search("rejects", "reject_id", _of_reading(folder, manifest.entries("rejects"), read_again))
    gone = pa.chunked_array([rest.units for rest in units.values()], pa.large_string())
    search("vectors", "unit_id", gone)
    others = [entry for name in (*_BY_DOCUMENT, "vectors") for entry in manifest.entries(name)]
    rests = units | _rewritten(writer, others, losses)
    return [rest.entry for entry in manifest.files if (rest := rests.get(entry.path)) and rest.entry]


def _of_reading(folder: IndexFolder, entries: Sequence[FileEntry], uris: pa.Array) -> pa.Array:
    """Ids of the rejects that reading these sources once gave."""
    found = [pa.array([], pa.large_string())]
    for entry in entries:
        table = read_part(folder, entry, ["reject_id", "uri", "stage"])
        # A row of a file is named by the file and, after "#", its number.
        files = pc.replace_substring_regex(table.column("uri"), ROW_SUFFIX, "")
        again = pc.and_(pc.equal(table.column("stage"), "read"), pc.is_in(files, value_set=uris))
        found += table.filter(again).column("reject_id").chunks
    return pa.concat_arrays(found)


def _found(
    folder: IndexFolder, entries: Sequence[FileEntry], column: str, ids: pa.Array
) -> Iterator[tuple[FileEntry, pa.Array]]:
    """Parts whose column holds some of the ids, and those ids. Parts are read in runs of about a million rows."""
    if not len(ids):
        return
    with ThreadPoolExecutor(_READERS) as pool:
        for run in _runs(entries):
            held = list(pool.map(lambda entry: pc.unique(read_part(folder, entry, [column]).column(0)), run))
            # Once for the whole run: each call makes a table of all ids to look for.
            among = pc.is_in(pa.concat_arrays(held), value_set=ids)
            at = 0
            for entry, values in zip(run, held, strict=True):
                here = among.slice(at, len(values))
                at += len(values)
                if pc.any(here).as_py():
                    yield entry, values.filter(here)


def _runs(entries: Sequence[FileEntry]) -> Iterator[list[FileEntry]]:
    run: list[FileEntry] = []
    rows = 0
    for entry in entries:
        if run and rows + entry.rows > _IDS_AT_ONCE:
            yield run
            run, rows = [], 0
        run.append(entry)
        rows += entry.rows
    if run:
        yield run


def _rewritten(writer: IndexWriter, entries: Sequence[FileEntry], losses: dict[str, list[_Loss]]) -> dict[str, _Rest]:
    """By path: each part, or what is written in its place."""

    def rest_of(entry: FileEntry) -> _Rest:
        lost = losses[entry.path]
        if not lost:
            return _Rest(entry, pa.array([], pa.large_string()))
        part = read_part(writer.folder, entry)
        drop = pc.is_in(part.column(lost[0].column), value_set=lost[0].ids)
        for more in lost[1:]:
            drop = pc.or_(drop, pc.is_in(part.column(more.column), value_set=more.ids))
        units = part.filter(drop).column("unit_id").combine_chunks() if entry.name == "units" else []
        rest = part.filter(pc.invert(drop))
        kept = writer.write_table(entry.name, rest) if rest.num_rows else None
        return _Rest(kept, pa.array(units, pa.large_string()))

    with ThreadPoolExecutor(_REWRITERS) as pool:
        return dict(zip((entry.path for entry in entries), pool.map(rest_of, entries), strict=True))


def _refuse_unknown(folder: IndexFolder, manifest: Manifest, wanted: Sequence[str]) -> None:
    if not wanted:
        raise InputError("no document id is given; `resin inspect --documents` lists them")
    ids = pa.array(wanted, pa.large_string())
    known: set[str] = set()
    for name in ("documents", "rejects"):
        for _, found in _found(folder, manifest.entries(name), "doc_id", ids):
            known |= set(found.to_pylist())
    unknown = [doc_id for doc_id in wanted if doc_id not in known]
    if unknown:
        raise InputError(
            f"no document {unknown[0]!r} in the index at {folder} ({len(unknown)} of {len(wanted)} ids are unknown); "
            "nothing was deleted; `resin inspect --documents` lists the ids"
        )
