"""Collecting what no kept generation needs."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from resin_core.errors import IndexBusyError, IndexCorruptError, IndexFormatError, IndexMissingError, StoreError
from resin_core.store import gc
from resin_core.store.filesystem import IndexFolder
from resin_core.store.gc import collect
from resin_core.store.lock import exclusive
from resin_core.store.manifest import manifest_path, read_current, write_current
from resin_core.store.reader import IndexReader
from resin_core.store.revise import delete_documents
from resin_core.store.verify import verify
from resin_core.store.writer import IndexWriter

DAY_S = 86400.0


def _later(seconds: float = 2 * DAY_S) -> float:
    return time.time() + seconds


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}


def _put(root: Path, path: str, content: bytes = b"left over", age_s: float = 0) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    os.utime(file, (time.time() - age_s,) * 2)
    return file


@pytest.fixture
def three(built):
    """Three generations: each deletes a document of the one before."""
    generations = [built.manifest.generation]
    generations += [delete_documents(built.uri, [one.doc_id]).generation for one in built.corpus.documents[:2]]
    return built, generations


def test_the_newest_are_kept_and_their_files(three):
    built, generations = three
    size = sum(path.stat().st_size for path in built.uri.rglob("*") if path.is_file())
    report = collect(built.uri, keep=2, grace_s=DAY_S, now=_later())
    assert report.generations_removed == (generations[0],)
    assert report.generations_kept == tuple(generations[1:])
    assert report.files_removed > 0
    assert report.bytes_freed == size - sum(path.stat().st_size for path in built.uri.rglob("*") if path.is_file())
    needed = {
        Path(entry.path).name
        for generation in generations[1:]
        for entry in IndexReader.open(built.uri, generation).manifest.files
    }
    assert _names(built.uri / "files") == needed
    assert verify(built.uri) == []
    with pytest.raises(IndexMissingError):
        IndexReader.open(built.uri, generations[0])


def test_a_deleted_text_is_gone_once_its_generations_are(three):
    built, _ = three

    def held() -> set[str]:
        tables = [pq.read_table(path) for path in (built.uri / "files").glob("*.parquet")]
        return {value for t in tables if "doc_id" in t.column_names for value in t["doc_id"].to_pylist()}

    gone = {document.doc_id for document in built.corpus.documents[:2]}
    assert gone <= held()
    collect(built.uri, keep=1, grace_s=0, now=_later())
    assert held() == {document.doc_id for document in built.corpus.documents[2:]}
    assert len(_names(built.uri / "files")) == len(IndexReader.open(built.uri).manifest.files)


def test_twice_is_once(three):
    built, _ = three
    collect(built.uri, keep=1, grace_s=0, now=_later())
    before = _everything(built.uri)
    report = collect(built.uri, keep=1, grace_s=0, now=_later())
    assert (report.generations_removed, report.files_removed, report.bytes_freed) == ((), 0, 0)
    assert _everything(built.uri) == before


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_keep_counts_by_number(three, keep):
    built, generations = three
    report = collect(built.uri, keep=keep, grace_s=0, now=_later())
    assert report.generations_kept == tuple(generations[-keep:])


def test_the_served_generation_stays_after_a_rollback(three):
    built, generations = three
    write_current(IndexFolder.at(built.uri), generations[0])
    report = collect(built.uri, keep=1, grace_s=0, now=_later())
    assert report.generations_kept == (generations[0], generations[2])
    assert verify(built.uri) == []
    assert len(list(IndexReader.open(built.uri).iter_documents())) == 7


def test_ten_comes_after_nine(built, stamp):
    writer = IndexWriter(built.uri)
    ids = [built.manifest.generation, *(writer.publish(built.entries, stamp).generation for _ in range(10))]
    assert collect(built.uri, keep=2, grace_s=0, now=_later()).generations_kept == tuple(ids[-2:])


def test_young_files_are_left_alone(three):
    built, generations = three
    before = _names(built.uri / "files")
    report = collect(built.uri, keep=1, grace_s=DAY_S)
    assert (report.generations_removed, report.files_removed) == (tuple(generations[:2]), 0)
    assert _names(built.uri / "files") == before
    assert report.bytes_freed > 0  # the manifests


def test_parts_of_a_running_job_outlive_it(built, corpus_of, parts_of, stamp):
    writer = IndexWriter(built.uri)
    entries = parts_of(writer, corpus_of(9))
    collect(built.uri, keep=1, grace_s=60)
    assert writer.publish(entries, stamp).counts["documents"] == 9
    assert verify(built.uri) == []


def test_a_job_whose_parts_were_collected_is_refused(built, corpus_of, parts_of, stamp):
    writer = IndexWriter(built.uri)
    entries = parts_of(writer, corpus_of(9))
    collect(built.uri, keep=1, grace_s=0, now=_later())
    with pytest.raises(StoreError, match="is missing; write that part again"):
        writer.publish(entries, stamp)
    assert read_current(IndexFolder.at(built.uri)) == built.manifest.generation
    assert verify(built.uri) == []


def test_what_killed_runs_left_goes(built):
    tail = f".{'0' * 32}.tmp"
    lost = [
        _put(built.uri, path, age_s=100)
        for path in (f".CURRENT{tail}", f"generations/.g2-0123456789ab.json{tail}", f"files/.units-1.parquet{tail}")
    ]
    lost.append(_put(built.uri, "work/staged-a/1.parquet", age_s=100))
    lost.append(_put(built.uri, f"work/staged-a/.2.parquet{tail}", age_s=100))
    kept = [_put(built.uri, f".CURRENT.{'1' * 32}.tmp"), _put(built.uri, "work/staged-b/1.parquet", age_s=10)]
    kept += [_put(built.uri, "notes.txt", age_s=100), _put(built.uri, "work/replies-k/ab/abc/1.json", age_s=100)]
    report = collect(built.uri, keep=1, grace_s=60)
    assert [path.exists() for path in (*lost, *kept)] == [False] * 5 + [True] * 4
    assert (report.files_removed, report.bytes_freed) == (5, 5 * len(b"left over"))
    assert not (built.uri / "work/staged-a").exists()


def test_replies_go_only_when_asked(built):
    old = [_put(built.uri, f"work/replies-{key}/ab/abc/1.json", age_s=100) for key in ("all-old", "mixed")]
    new = _put(built.uri, "work/replies-mixed/ab/abc/2.json", age_s=10)
    collect(built.uri, keep=1, grace_s=60)
    assert all(path.exists() for path in (*old, new))
    report = collect(built.uri, keep=1, grace_s=60, work=True)
    assert [path.exists() for path in (*old, new)] == [False, False, True]
    assert not (built.uri / "work/replies-all-old").exists()
    assert report.files_removed == 2


@pytest.mark.parametrize("damage", ["garble", "newer", "name", "gone"])
def test_a_kept_manifest_that_cannot_be_read_stops_it(three, damage):
    built, generations = three
    path = built.uri / manifest_path(generations[1])
    if damage == "garble":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "newer":
        path.write_bytes(b'{"format_version": 99}')
    elif damage == "name":
        path.rename(path.with_name("backup.json"))
    else:
        write_current(IndexFolder.at(built.uri), "g2-aaaaaaaaaaaa")
    before = _everything(built.uri)
    with pytest.raises((IndexCorruptError, IndexFormatError), match="nothing was deleted"):
        collect(built.uri, keep=2, grace_s=0, now=_later())
    assert _everything(built.uri) == before


def test_a_dropped_manifest_need_not_be_read(three):
    built, generations = three
    (built.uri / manifest_path(generations[0])).write_bytes(b"garbled")
    assert collect(built.uri, keep=2, grace_s=0, now=_later()).generations_removed == (generations[0],)
    assert verify(built.uri) == []


def test_without_an_index_nothing_is_deleted_or_made(tmp_path):
    kept = _put(tmp_path, "files/holiday.jpg", age_s=10 * DAY_S)
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(IndexMissingError):
            collect(place, keep=1, grace_s=0)
    assert kept.exists()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("keep", "grace_s"), [(0, 0.0), (-1, 0.0), (1, -1.0)])
def test_bounds(built, keep, grace_s):
    with pytest.raises(ValueError, match="keep at least 1"):
        collect(built.uri, keep=keep, grace_s=grace_s)


def test_a_crash_between_manifests_and_files_leaves_only_unused_files(three, monkeypatch):
    built, generations = three
    with monkeypatch.context() as patch:

        def stop(*_args):
            raise KeyboardInterrupt

        patch.setattr(gc, "stale", stop)
        with pytest.raises(KeyboardInterrupt):
            collect(built.uri, keep=1, grace_s=0, now=_later())
    assert _names(built.uri / "generations") == {f"{generations[2]}.json"}
    assert verify(built.uri) == []
    assert len(list(IndexReader.open(built.uri).iter_documents())) == 5
    assert collect(built.uri, keep=1, grace_s=0, now=_later()).files_removed > 0
    assert verify(built.uri) == []


def test_a_generation_published_while_it_works_keeps_its_files(built, corpus_of, parts_of, stamp, monkeypatch):
    """As on an object store, where no lock keeps a publisher out."""
    writer = IndexWriter(built.uri)
    entries = parts_of(writer, corpus_of(9))
    needed = gc._needed
    published = []

    def and_meanwhile(folder, generations):
        found = needed(folder, generations)
        if not published:
            published.append(writer.publish(entries, stamp))
        return found

    monkeypatch.setattr(gc, "_needed", and_meanwhile)
    monkeypatch.setattr(gc, "exclusive", lambda _folder: exclusive(IndexFolder.at(built.uri.parent / "elsewhere")))
    collect(built.uri, keep=1, grace_s=0, now=_later())
    assert verify(built.uri) == []
    assert IndexReader.open(built.uri).manifest == published[0]


def test_it_waits_for_a_publisher(built):
    folder = IndexFolder.at(built.uri)
    with (
        exclusive(folder),
        pytest.raises(IndexBusyError, match="another process has held"),
        exclusive(folder, wait_s=0.05),
    ):
        pytest.fail("both hold the lock")
    with ThreadPoolExecutor(1) as pool:
        with exclusive(folder):
            collecting = pool.submit(collect, built.uri, keep=1, grace_s=0, now=_later())
            with pytest.raises(TimeoutError):
                collecting.result(timeout=0.3)
        assert collecting.result(timeout=60).generations_kept == (built.manifest.generation,)
