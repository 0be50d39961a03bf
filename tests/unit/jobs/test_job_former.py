"""Where an earlier form of a document is found, and that it arrives whole at the extraction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from jobs import former, rows
from jobs.work import WorkFolder
from resin_core.indexing.document import Indexed
from resin_core.indexing.keys import document_key
from resin_core.readers.rejects import ReadDocument
from resin_core.store.manifest import FileEntry, Manifest, Stamp
from resin_core.store.writer import IndexWriter

Make = Callable[..., Indexed]


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    return WorkFolder(tmp_path, "run", "results")


def stage(work: WorkFolder, name: str, *found: Indexed) -> str:
    read = [ReadDocument(document=one.document, place="p") for one in found]
    return work.stage(name, rows.staged(read, [document_key(one.document) for one in found]))


def write(work: WorkFolder, *found: Indexed, extraction: str = "results") -> list[FileEntry]:
    writer = IndexWriter(work.folder)
    batch = pa.concat_tables([rows.indexed_row("k", one, extraction, 0) for one in found])
    tables = {name: rows.flat(batch, name) for name in rows.NESTED}
    return [writer.write_table(name, table) for name, table in tables.items() if table.num_rows]


def generation(entries: list[FileEntry]) -> Manifest:
    stamp = Stamp(encoder="e", dimension=4, resin_version="0")
    made = {"number": 1, "created_at": "2026-01-01T00:00:00+00:00", "counts": {}, "units_by_kind": {}}
    return Manifest(stamp=stamp, files=tuple(entries), **made)


def ids(*doc_ids: str) -> pa.Array:
    return pa.array(doc_ids, pa.large_string())


def staged(work: WorkFolder, path: str) -> pa.Table:
    import pyarrow.parquet as pq

    with work.open(path) as file:
        return pq.read_table(file).drop_columns(["place"])


def test_a_former_document_is_found_by_id_and_else_by_text(work: WorkFolder, indexed: Make) -> None:
    entries = [
        *write(work, indexed("a", units=2, rejects=1), indexed("moved", "Of another place.", units=1)),
        *write(work, indexed("b", "Something else.", units=1)),
    ]
    manifest = generation(entries)
    new = [
        indexed("b", "Something new.", text="A new text."),
        indexed("new name", "Of another place."),
        indexed("unknown", "Nobody knows this."),
        indexed("a", text="Not to do."),
    ]
    paths = [stage(work, "one", *new[:2]), stage(work, "two", *new[2:])]
    places = former.find(work.folder, manifest, work, paths, ids("b", "new name", "unknown"))
    assert {place["doc_id"]: place["former"] for place in places.to_pylist()} == {"b": "b", "new name": "moved"}
    batch = former.attach(work.folder, manifest, staged(work, paths[0]), places)
    first, second = former.former_of(batch, 0), former.former_of(batch, 1)
    assert first is not None
    assert second is not None
    assert (first.document.doc_id, [unit.doc_id for unit in first.units], first.rejects) == ("b", ["b"], ())
    assert second.document.text == new[1].document.text
    assert [passage.doc_id for passage in second.passages] == ["moved"]
    other = former.attach(work.folder, manifest, staged(work, paths[1]), places)
    assert [former.former_of(other, row) for row in (0, 1)] == [None, None]


def test_rejects_come_along(work: WorkFolder, indexed: Make) -> None:
    manifest = generation(write(work, indexed("a", units=1, rejects=2), indexed("b", rejects=1)))
    path = stage(work, "one", indexed("a", text="Changed."))
    places = former.find(work.folder, manifest, work, [path], ids("a"))
    found = former.former_of(former.attach(work.folder, manifest, staged(work, path), places), 0)
    assert found is not None
    assert [reject.doc_id for reject in found.rejects] == ["a", "a"]


def test_what_another_model_made_is_no_former(work: WorkFolder, indexed: Make) -> None:
    manifest = generation(write(work, indexed("a", units=1), extraction="another"))
    path = stage(work, "one", indexed("a", text="Changed."), indexed("moved"))
    assert former.find(work.folder, manifest, work, [path], ids("a", "moved")).num_rows == 0


def test_without_an_index_there_is_nothing_to_carry(work: WorkFolder, indexed: Make) -> None:
    batch = former.attach(work.folder, None, staged(work, stage(work, "one", indexed("a"))), former.nothing())
    assert former.former_of(batch, 0) is None
    assert rows.documents_of(batch)[0].doc_id == "a"
