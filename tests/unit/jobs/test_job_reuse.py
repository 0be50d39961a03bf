from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from jobs import reuse, rows
from jobs.work import WorkFolder
from resin_core.errors import DuplicateIdError
from resin_core.indexing.document import Indexed
from resin_core.indexing.keys import document_key
from resin_core.readers.rejects import ReadDocument, make_reject
from resin_core.store import schema
from resin_core.store.manifest import FileEntry, Manifest, Stamp
from resin_core.store.parts import read_part
from resin_core.store.writer import IndexWriter

DIMENSION = 4
Make = Callable[..., Indexed]


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    return WorkFolder(tmp_path, "run", "results")


def stage(work: WorkFolder, name: str, *found: Indexed) -> str:
    read = [ReadDocument(document=one.document, place=f"{name} line {n}") for n, one in enumerate(found, start=1)]
    return work.stage(name, rows.staged(read, [document_key(one.document) for one in found]))


def write(writer: IndexWriter, *found: Indexed) -> list[FileEntry]:
    """One part of each table that has rows, as the job's last stage writes them."""
    batch = pa.concat_tables([rows.indexed_row("k", one, "results", 0) for one in found])
    tables = {name: rows.flat(batch, name) for name in rows.NESTED}
    ids = tables["units"].column("unit_id").to_pylist()
    if ids:
        vectors = np.eye(DIMENSION, dtype=np.float32)[np.arange(len(ids)) % DIMENSION]
        tables["vectors"] = schema.vectors_table(ids, vectors)
    return [writer.write_table(name, table) for name, table in tables.items() if table.num_rows]


def manifest(entries: Sequence[FileEntry]) -> Manifest:
    return Manifest(
        number=1,
        created_at="2026-01-01T00:00:00+00:00",
        stamp=Stamp(encoder="e", dimension=DIMENSION, resin_version="0"),
        counts={},
        units_by_kind={},
        files=tuple(entries),
    )


def held(writer: IndexWriter, entries: Sequence[FileEntry], name: str, column: str) -> list[str]:
    parts = [read_part(writer.folder, entry) for entry in entries if entry.name == name]
    return sorted(value for part in parts for value in part.column(column).to_pylist())


def ids(*doc_ids: str) -> pa.Array:
    return pa.array(doc_ids, pa.large_string())


def test_ids_that_differ_are_let_through(work: WorkFolder, indexed: Make) -> None:
    reuse.refuse_duplicates(work, [])
    reuse.refuse_duplicates(work, [stage(work, "one", indexed("a"), indexed("b")), stage(work, "two", indexed("A"))])


@pytest.mark.parametrize(
    ("one", "two", "doc_id", "places"),
    [
        (["a", "b"], ["c", "b"], "b", ("one line 2", "two line 2")),
        (["a", "b", "a"], ["c"], "a", ("one line 1", "one line 3")),
        (["z", "y", "z"], ["x", "y"], "y", ("one line 2", "two line 2")),
        (["\u00fc{0}\x00"], ["\u00fc{0}\x00"], "\u00fc{0}\x00", ("one line 1", "two line 1")),
    ],
)
def test_an_id_in_two_places_is_refused_with_both(
    work: WorkFolder, indexed: Make, one: list[str], two: list[str], doc_id: str, places: tuple[str, str]
) -> None:
    paths = [stage(work, "one", *map(indexed, one)), stage(work, "two", *map(indexed, two))]
    with pytest.raises(DuplicateIdError) as caught:
        reuse.refuse_duplicates(work, paths)
    assert (caught.value.doc_id, caught.value.first, caught.value.second) == (doc_id, *places)
    assert all(place in str(caught.value) for place in places)


def test_all_is_to_do_without_a_generation_of_the_same_extraction(work: WorkFolder, indexed: Make) -> None:
    writer = IndexWriter(work.folder)
    current = manifest(write(writer, indexed("a"), indexed("b")))
    paths = [stage(work, "one", indexed("a")), stage(work, "two", indexed("b"))]
    other = WorkFolder(work.folder, "run", "of another prompt")
    assert reuse.to_do(work.folder, None, work, paths).to_pylist() == ["a", "b"]
    assert reuse.to_do(work.folder, current, other, paths).to_pylist() == ["a", "b"]
    assert reuse.to_do(work.folder, current, work, paths).to_pylist() == []


def test_what_failed_or_is_forced_is_to_do_again(work: WorkFolder, indexed: Make) -> None:
    writer = IndexWriter(work.folder)
    failed, rejected, good = indexed("failed", rejects=1), indexed("rejected", rejects=1), indexed("good")
    failed.rejects = [reject.model_copy(update={"reason": "llm-timeout"}) for reject in failed.rejects]
    current = manifest(write(writer, failed, rejected, good))
    paths = [stage(work, "one", failed, rejected, good)]
    assert reuse.to_do(work.folder, current, work, paths).to_pylist() == ["failed"]
    assert reuse.to_do(work.folder, current, work, paths, ["good"]).to_pylist() == ["failed", "good"]


def test_what_is_new_or_changed_is_to_do(work: WorkFolder, indexed: Make) -> None:
    writer = IndexWriter(work.folder)
    known = [*write(writer, indexed("a"), indexed("b")), *write(writer, indexed("c"), indexed("d"), indexed("gone"))]
    found = [
        indexed("a", text="Another text."),
        indexed("b"),
        indexed("c", title="Another title"),
        indexed("d", lang="en"),
        indexed("new"),
    ]
    paths = [stage(work, "one", *found[:2]), stage(work, "two", *found[2:])]
    todo = reuse.to_do(work.folder, manifest(known), work, paths)
    assert todo.type == pa.large_string()
    assert todo.to_pylist() == ["a", "c", "d", "new"]


def test_without_staged_documents_nothing_is_to_do(work: WorkFolder) -> None:
    todo = reuse.to_do(work.folder, None, work, [])
    assert (todo.type, len(todo)) == (pa.large_string(), 0)


def test_parts_that_lose_nothing_are_shared_as_they_are(
    tmp_path: Path, indexed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = IndexWriter(tmp_path)
    entries = [*write(writer, indexed("a", units=2, rejects=1)), *write(writer, indexed("b", units=1))]
    made = [
        writer._write("unit_rows", pa.table({"unit_row": pa.array([0], pa.int64())})),
        FileEntry(name="faiss", path=f"files/faiss-{'0' * 32}.faiss", sha256="0" * 64, bytes=1, rows=3),
    ]
    before = sorted(path.name for path in (tmp_path / "files").iterdir())
    monkeypatch.setattr(writer, "write_table", lambda name, table: pytest.fail(f"{name} was written again"))
    kept = reuse.kept_entries(writer, manifest([*entries, *made]), ids("c", "A"), [])
    # What publish makes from the parts is made anew.
    assert kept == entries
    assert reuse.kept_entries(writer, manifest(entries), ids(), []) == entries
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == before


def test_replaced_documents_are_gone_from_every_table(tmp_path: Path, indexed: Make) -> None:
    writer = IndexWriter(tmp_path)
    stays = [indexed("a", units=2, rejects=1), indexed("plain"), indexed("far", units=1, rejects=1)]
    goes = [indexed("b", units=3, rejects=2), indexed("bare"), indexed("alone", units=2, rejects=1)]
    mixed = write(writer, stays[0], goes[0], stays[1], goes[1])
    apart, lost = write(writer, stays[2]), write(writer, goes[2])
    kept = reuse.kept_entries(writer, manifest([*mixed, *apart, *lost]), ids("b", "bare", "alone", "unknown"), [])

    for name in ("documents", "sentences", "passages", "units", "rejects"):
        assert set(held(writer, kept, name, "doc_id")) <= {"a", "plain", "far"}, name
    units = sorted(unit.unit_id for one in stays for unit in one.units)
    assert held(writer, kept, "documents", "doc_id") == ["a", "far", "plain"]
    assert held(writer, kept, "units", "unit_id") == units
    assert held(writer, kept, "vectors", "unit_id") == units
    assert held(writer, kept, "rejects", "reject_id") == ["r-a-0", "r-far-0"]
    assert len(held(writer, kept, "sentences", "doc_id")) == sum(len(one.sentences) for one in stays)
    assert len(held(writer, kept, "passages", "doc_id")) == 3
    # Shared by path, rewritten, and left out when nothing remains.
    paths = {entry.path for entry in kept}
    assert paths.issuperset(entry.path for entry in apart)
    assert paths.isdisjoint(entry.path for entry in [*mixed, *lost])
    assert len(kept) == 2 * len(apart)
    assert all(entry.rows for entry in kept)


def test_vectors_of_what_stays_are_unchanged(tmp_path: Path, indexed: Make) -> None:
    writer = IndexWriter(tmp_path)
    entries = write(writer, indexed("b", units=3), indexed("a", units=2))
    (old,) = [read_part(writer.folder, entry) for entry in entries if entry.name == "vectors"]
    kept = reuse.kept_entries(writer, manifest(entries), ids("b"), [])
    (new,) = [read_part(writer.folder, entry) for entry in kept if entry.name == "vectors"]
    assert new.equals(old.slice(3))


def test_an_index_without_units_loses_documents_too(tmp_path: Path, indexed: Make) -> None:
    writer = IndexWriter(tmp_path)
    entries = write(writer, indexed("a"), indexed("b"))
    kept = reuse.kept_entries(writer, manifest(entries), ids("a"), [])
    assert held(writer, kept, "documents", "doc_id") == ["b"]
    assert reuse.kept_entries(writer, manifest(entries), ids("a", "b"), []) == []


def test_a_reject_that_comes_again_is_kept_once(tmp_path: Path, indexed: Make) -> None:
    writer = IndexWriter(tmp_path)
    files = [make_reject("", f"file:///{name}", "no-text", "scanned") for name in ("one.pdf", "two.pdf", "three.pdf")]
    old = writer.write_table("rejects", schema.to_table("rejects", files[:2]))
    new = writer.write_table("rejects", schema.to_table("rejects", files[1:]))
    entries = [*write(writer, indexed("a", rejects=1)), old]
    kept = reuse.kept_entries(writer, manifest(entries), ids(), [new])
    assert held(writer, kept, "rejects", "reject_id") == sorted(["r-a-0", files[0].reject_id])
    assert held(writer, [*kept, new], "rejects", "reject_id") == sorted(["r-a-0", *(one.reject_id for one in files)])
