"""Deleting documents: what goes, what is shared, what is refused."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from resin_core.errors import IndexBusyError, IndexCorruptError, IndexMissingError, InputError, StoreError
from resin_core.ids import digest
from resin_core.store import revise
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import read_current, read_manifest
from resin_core.store.parts import read_column, read_part
from resin_core.store.reader import IndexReader
from resin_core.store.revise import delete_documents, kept_entries
from resin_core.store.schema import TABLES, to_table
from resin_core.store.verify import verify
from resin_core.store.work_paths import replies_of
from resin_core.store.writer import IndexWriter

ID_COLUMNS = {"doc_id", "unit_id", "reject_id"}


def _texts(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


def _ids(built, *numbers):
    return [built.corpus.documents[number].doc_id for number in numbers]


def test_nothing_of_a_deleted_document_is_left(built):
    gone = _ids(built, 0, 3)
    before = {entry.path: (built.uri / entry.path).stat().st_mtime_ns for entry in built.manifest.files}
    report = delete_documents(built.uri, gone)
    assert report.model_dump() == {
        "generation": read_current(IndexFolder.at(built.uri)),
        "former_generation": built.manifest.generation,
        "deleted": 2,
        "passages": 4,
        "units": 8,
        "total_documents": 5,
        "total_units": 20,
    }
    assert verify(built.uri) == []
    reader = IndexReader.open(built.uri)
    assert reader.generation == report.generation
    rest = [document.doc_id for document in built.corpus.documents if document.doc_id not in gone]
    assert sorted(document.doc_id for document in reader.iter_documents()) == sorted(rest)
    for kept in (reader.iter_passages(), reader.iter_units(), reader.iter_rejects()):
        assert {record.doc_id for record in kept} == set(rest)
    assert all(reader.sentences(doc_id) == [] for doc_id in gone)
    lost = [unit.unit_id for unit in built.corpus.units if unit.doc_id in gone]
    found = reader.search(built.corpus.vectors, (), 100)
    assert {c.unit.unit_id for row in found for c in row}.isdisjoint(lost)
    # No file of the former generation was touched: it is whole until it is collected.
    assert {path: (built.uri / path).stat().st_mtime_ns for path in before} == before
    assert len(list(IndexReader.open(built.uri, built.manifest.generation).iter_documents())) == 7


def test_vectors_and_records_that_stay_are_as_they_were(built):
    delete_documents(built.uri, _ids(built, 1))
    reader = IndexReader.open(built.uri)
    stays = [i for i, unit in enumerate(built.corpus.units) if unit.doc_id != _ids(built, 1)[0]]
    for row, at in zip(reader.search(built.corpus.vectors[stays], (), 1), stays, strict=True):
        assert (row[0].unit, round(row[0].score, 5)) == (built.corpus.units[at], 1.0)


def test_parts_that_lose_nothing_are_shared(tmp_path, corpus_of, parts_of, stamp):
    """Each document in parts of its own."""
    writer, corpus = IndexWriter(tmp_path), corpus_of(6)
    writer.publish(parts_of(writer, corpus, parts=6), stamp)
    former = read_manifest(writer.folder)
    delete_documents(tmp_path, [corpus.documents[2].doc_id])
    shared = {entry.path for entry in former.files} & {entry.path for entry in read_manifest(writer.folder).files}
    for name in ("documents", "sentences"):
        assert len(shared & {entry.path for entry in former.entries(name)}) == 5


def test_only_parts_with_a_loss_are_read_whole(built, monkeypatch):
    read, held, most, lock = [], [0], [0], threading.Lock()

    def watched(folder, entry, columns=None):
        if columns is None:
            with lock:
                held[0] += 1
                most[0] = max(most[0], held[0])
                read.append(entry.path)
            time.sleep(0.01)
            with lock:
                held[0] -= 1
        else:
            assert set(columns) <= ID_COLUMNS
        return read_part(folder, entry, columns)

    monkeypatch.setattr(revise, "read_part", watched)
    writer = IndexWriter(built.uri)
    gone = _ids(built, 0)
    kept = kept_entries(writer, built.manifest, pa.array(gone, pa.large_string()), [])
    shared = {entry.path for entry in kept} & {entry.path for entry in built.manifest.files}
    assert set(read).isdisjoint(shared)
    assert len(read) == len(set(read)) == sum(entry.name in TABLES for entry in built.manifest.files) - len(shared)
    assert 1 <= most[0] <= 3


def test_ids_are_searched_in_runs_of_parts(built, monkeypatch):
    monkeypatch.setattr(revise, "_IDS_AT_ONCE", 10)
    gone = pa.array(_ids(built, 0, 4), pa.large_string())
    everything = kept_entries(IndexWriter(built.uri), built.manifest, gone, [])
    monkeypatch.undo()
    assert everything == kept_entries(IndexWriter(built.uri), built.manifest, gone, [])
    units = read_column(IndexFolder.at(built.uri), [entry for entry in everything if entry.name == "units"], "unit_id")
    assert len(units) == 20


def test_all_deleted_is_a_valid_index_that_finds_nothing(built):
    report = delete_documents(built.uri, [document.doc_id for document in built.corpus.documents])
    assert (report.total_documents, report.total_units, report.deleted) == (0, 0, 7)
    assert verify(built.uri) == []
    reader = IndexReader.open(built.uri)
    assert reader.search(built.corpus.vectors[:2], (), 5) == [[], []]
    assert list(reader.iter_documents()) == []
    with pytest.raises(InputError, match="no document"):
        delete_documents(built.uri, _ids(built, 0))


@pytest.mark.parametrize("known", [0, 2])
def test_unknown_ids_change_nothing(built, known):
    work = built.uri / replies_of("key", _ids(built, 0)[0])
    work.mkdir(parents=True)
    (work / "reply.json").write_text("paid")
    before = _texts(built.uri)
    with pytest.raises(InputError, match=rf"no document 'nowhere' .*\(2 of {2 + known} ids are unknown\)"):
        delete_documents(built.uri, [*_ids(built, *range(known)), "nowhere", "notes/1.md ", "nowhere"])
    assert _texts(built.uri) == before


def test_without_ids_nothing_is_done(built):
    with pytest.raises(InputError, match="no document id is given"):
        delete_documents(built.uri, [])
    assert read_current(IndexFolder.at(built.uri)) == built.manifest.generation


def test_the_same_id_twice_counts_once(built):
    assert delete_documents(built.uri, _ids(built, 1) * 2).deleted == 1


def test_an_id_that_only_rejects_know_is_deleted(built, stamp):
    writer = IndexWriter(built.uri)
    reject = built.corpus.rejects[0].model_copy(update={"doc_id": "unread", "reject_id": "only", "raw": "its text"})
    writer.publish([*built.entries, writer.write_table("rejects", to_table("rejects", [reject]))], stamp)
    report = delete_documents(built.uri, ["unread"])
    assert (report.deleted, report.total_documents) == (0, 7)
    assert "only" not in {one.reject_id for one in IndexReader.open(built.uri).iter_rejects()}


def test_no_index(tmp_path):
    with pytest.raises(IndexMissingError):
        delete_documents(tmp_path / "none", ["a"])
    assert not (tmp_path / "none").exists()


def test_a_part_that_cannot_be_read_stops_it(built):
    entry = built.manifest.entries("units")[0]
    (built.uri / entry.path).write_bytes(b"x" * entry.bytes)
    with pytest.raises(IndexCorruptError, match="cannot be read"):
        delete_documents(built.uri, _ids(built, 0))
    assert read_current(IndexFolder.at(built.uri)) == built.manifest.generation


def test_another_run_that_publishes_meanwhile_wins(built, stamp, monkeypatch):
    def slow(*arguments):
        IndexWriter(built.uri).publish(built.entries, stamp)
        return kept_entries(*arguments)

    monkeypatch.setattr(revise, "kept_entries", slow)
    with pytest.raises(IndexBusyError, match=r"another run published generation g2-.*run the same command again"):
        delete_documents(built.uri, _ids(built, 0))
    assert read_manifest(IndexFolder.at(built.uri)).number == 2
    assert verify(built.uri) == []


class TestUnfinishedWork:
    """What runs left of a deleted document."""

    @staticmethod
    def write(root: Path, path: str, age_s: float = 0) -> Path:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("its text")
        os.utime(file, (time.time() - age_s,) * 2)
        return file

    def test_replies_of_the_document_go_under_every_key(self, built):
        gone, stays = _ids(built, 0, 1)
        lost = [self.write(built.uri, f"{replies_of(key, gone)}/{name}") for key in ("k1", "k2") for name in ("a", "b")]
        kept = [self.write(built.uri, f"{replies_of('k1', stays)}/a"), self.write(built.uri, "work/replies-k1/zz/zz/a")]
        # In the same folder of two hex as the deleted one.
        kept.append(self.write(built.uri, f"work/replies-k1/{digest((gone,))[:2]}/{'0' * 16}/a"))
        delete_documents(built.uri, [gone])
        assert [path.exists() for path in (*lost, *kept)] == [False] * 4 + [True] * 3

    def test_staging_goes_when_nothing_was_staged_for_an_hour(self, built):
        old = self.write(built.uri, "work/staged-old/a.parquet", 3700)
        mixed = [self.write(built.uri, f"work/staged-new/{n}.parquet", age) for n, age in ((1, 3700), (2, 3500))]
        delete_documents(built.uri, _ids(built, 0))
        assert not old.parent.exists()
        assert all(path.exists() for path in mixed)

    def test_work_that_cannot_be_removed_is_an_error_before_anything_is_published(self, built, monkeypatch):
        self.write(built.uri, f"{replies_of('k1', _ids(built, 0)[0])}/a")

        def refuse(_folder, path):
            raise StoreError(f"cannot delete {path}")

        monkeypatch.setattr(IndexFolder, "remove_folder", refuse)
        with pytest.raises(StoreError, match="cannot delete work/replies-k1"):
            delete_documents(built.uri, _ids(built, 0))
        assert read_current(IndexFolder.at(built.uri)) == built.manifest.generation


def test_the_folder_of_a_documents_replies():
    assert replies_of("k", "a/b.md") == f"work/replies-k/{digest(('a/b.md',))[:2]}/{digest(('a/b.md',))}"
    assert len(digest(("a/b.md",))) == 16
