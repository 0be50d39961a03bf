"""Part files and publication."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from resin_core.errors import IndexMissingError, StoreError
from resin_core.records import UnitKind
from resin_core.store import vectors as faiss_store
from resin_core.store.manifest import FileEntry, read_current
from resin_core.store.reader import IndexReader
from resin_core.store.schema import to_table, vectors_table
from resin_core.store.writer import IndexWriter


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _publish(uri, corpus, parts_of, stamp):
    writer = IndexWriter(uri)
    return writer.publish(parts_of(writer, corpus), stamp)


def test_a_part_is_named_by_its_content(tmp_path, corpus_of):
    table = to_table("units", corpus_of(3).units)
    entry = IndexWriter(tmp_path).write_table("units", table)
    content = (tmp_path / entry.path).read_bytes()
    sha = hashlib.sha256(content).hexdigest()
    assert entry == FileEntry(
        name="units", path=f"files/units-{sha[:32]}.parquet", sha256=sha, bytes=len(content), rows=12
    )


def test_equal_content_is_one_file_however_it_is_chunked(tmp_path, corpus_of):
    table = to_table("units", corpus_of(3).units)
    chunked = pa.concat_tables([table.slice(0, 5), table.slice(5)]).replace_schema_metadata({"pandas": "{}"})
    plain = chunked.set_column(0, "unit_id", chunked["unit_id"].cast(pa.string())).append_column(
        "extra", chunked["kind"]
    )
    writer = IndexWriter(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda t: writer.write_table("units", t), [table, chunked, plain] * 5))
    assert len(set(found)) == 1
    assert _names(tmp_path / "files") == [Path(found[0].path).name]


def test_two_equal_runs_write_equal_files_in_any_order(tmp_path, corpus_of, parts_of, stamp):
    corpus = corpus_of(6)
    first = _publish(tmp_path / "a", corpus, parts_of, stamp)
    writer = IndexWriter(tmp_path / "b")
    entries = parts_of(writer, corpus)
    second = writer.publish([*reversed(entries), entries[0]], stamp)
    assert second.files == first.files
    assert second.counts == first.counts
    assert _names(tmp_path / "a/files") == _names(tmp_path / "b/files")


def test_counts_come_from_the_tables(shared):
    assert shared.manifest.counts == {
        "documents": 7, "sentences": 28, "passages": 14, "units": 28, "vectors": 28, "rejects": 7,
    }  # fmt: skip
    kinds = [unit.kind for unit in shared.corpus.units]
    assert shared.manifest.units_by_kind == {kind.value: kinds.count(kind) for kind in UnitKind}


def test_numbers_go_up_and_the_pointer_follows(built, stamp):
    second = IndexWriter(built.uri).publish(built.entries, stamp)
    assert (built.manifest.number, second.number) == (1, 2)
    assert (built.uri / "CURRENT").read_text() == second.generation + "\n"
    assert second.generation.startswith("g2-")


def test_an_interrupted_publish_leaves_the_former_generation(built, stamp, monkeypatch, corpus_of, parts_of):
    writer = IndexWriter(built.uri)
    entries = parts_of(writer, corpus_of(9))

    def stop(*_args):
        raise KeyboardInterrupt

    for step in ("resin_core.store.writer.write_current", "resin_core.store.vectors.write"):
        with monkeypatch.context() as patch:
            patch.setattr(step, stop)
            with pytest.raises(KeyboardInterrupt):
                writer.publish(entries, stamp)
        reader = IndexReader.open(built.uri)
        assert reader.generation == built.manifest.generation
        assert len(reader.search(built.corpus.vectors[:1], (), 100)[0]) == 28
    assert writer.publish(entries, stamp).number == 3  # the number of the unfinished one is not given out again


def test_a_first_publish_that_stops_leaves_no_index(tmp_path, corpus_of, parts_of, stamp, monkeypatch):
    def stop(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("resin_core.store.writer.write_current", stop)
    with pytest.raises(KeyboardInterrupt):
        _publish(tmp_path, corpus_of(2), parts_of, stamp)
    with pytest.raises(IndexMissingError, match="run resin index"):
        IndexReader.open(tmp_path)


def test_a_write_that_fails_leaves_no_file_and_says_where(tmp_path, corpus_of):
    (tmp_path / "files").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"cannot write .*files/units-.*rights and space"):
        IndexWriter(tmp_path).write_table("units", to_table("units", corpus_of(1).units))


def test_a_stream_that_breaks_leaves_neither_the_name_nor_a_temporary(tmp_path):
    folder = IndexWriter(tmp_path).folder

    def half(stream):
        stream.write(b"half")
        raise OSError("No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        folder.put("files/x", half)
    assert _names(tmp_path / "files") == []


def test_a_sink_that_fails_while_faiss_writes_is_reported(tmp_path, monkeypatch):
    folder = IndexWriter(tmp_path).folder
    index = faiss_store.build(iter([np.eye(4, dtype=np.float32)]), 4, 4)
    put = folder.put

    def failing(path, write, size):
        class Full:
            def write(self, _chunk):
                raise OSError("No space left on device")

        put(path, lambda _stream: write(Full()))

    monkeypatch.setattr(folder, "put", failing)
    with pytest.raises(StoreError, match="No space left"):
        faiss_store.write(folder, index)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("claims", lambda t: t, "unknown table 'claims'"),
        ("unit_rows", lambda t: t, "unknown table 'unit_rows'"),
        ("units", lambda t: t.drop_columns(["kind"]), "missing columns kind"),
        ("units", lambda t: t.set_column(0, "unit_id", pa.nulls(len(t), pa.string())), "unit_id.*null"),
        ("units", lambda t: t.set_column(10, "char_start", t["kind"]), "units does not fit its schema"),
        ("vectors", lambda t: t, "fixed_size_list<float32>"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, corpus_of, name, change, message):
    table = to_table("units", corpus_of(1).units)
    if "char_start" in message or "does not fit" in message:
        at = table.column_names.index("char_start")
        table = table.set_column(at, "char_start", table["kind"])
    else:
        table = change(table)
    with pytest.raises(StoreError, match=message):
        IndexWriter(tmp_path).write_table(name, table)


def test_lone_surrogates_and_wrong_shapes_are_named(corpus_of):
    unit = corpus_of(1).units[0]
    with pytest.raises(StoreError, match=r"table units: column scope holds a lone surrogate \('\\ud800'\)"):
        to_table("units", [unit.model_copy(update={"scope": "a\ud800"})])
    with pytest.raises(StoreError, match=r"2 unit ids but vectors of shape \(3, 4\)"):
        vectors_table(["a", "b"], np.zeros((3, 4), np.float32))


class TestRefusedPublication:
    """Each leaves no index behind."""

    @pytest.fixture
    def writer(self, tmp_path):
        yield (writer := IndexWriter(tmp_path))
        with pytest.raises(IndexMissingError):
            read_current(writer.folder)

    @pytest.mark.parametrize("table", ["documents", "passages", "units"])
    def test_repeated_ids(self, writer, corpus_of, parts_of, stamp, table):
        corpus = corpus_of(2)
        entries = parts_of(writer, corpus)
        again = writer.write_table(table, to_table(table, getattr(corpus, table)[:1] * 2))
        with pytest.raises(StoreError, match=f"2 repeated .*_id in table {table}"):
            writer.publish([*entries, again], stamp)

    def test_unit_without_vector(self, writer, corpus_of, parts_of, stamp):
        entries = [entry for entry in parts_of(writer, corpus_of(2)) if entry.name != "vectors"]
        with pytest.raises(StoreError, match="has 0 vectors, expected one"):
            writer.publish(entries, stamp)

    def test_vector_without_unit(self, writer, corpus_of, parts_of, stamp):
        entries = [entry for entry in parts_of(writer, corpus_of(2)) if entry.name != "units"]
        with pytest.raises(StoreError, match="has no unit"):
            writer.publish(entries, stamp)

    def test_two_vectors_of_one_unit(self, writer, corpus_of, parts_of, stamp):
        corpus = corpus_of(2)
        more = writer.write_table("vectors", vectors_table([corpus.units[0].unit_id], corpus.vectors[:1]))
        with pytest.raises(StoreError, match=f"{corpus.units[0].unit_id}' has 2 vectors"):
            writer.publish([*parts_of(writer, corpus), more], stamp)

    def test_other_dimension(self, writer, corpus_of, parts_of, stamp):
        other = stamp.model_copy(update={"dimension": 384})
        with pytest.raises(StoreError, match="24 dimensions, the stamp says 384"):
            writer.publish(parts_of(writer, corpus_of(2)), other)

    @pytest.mark.parametrize("value", [np.nan, 2.0, 0.0, np.inf])
    def test_vectors_that_are_not_unit_length(self, writer, corpus_of, parts_of, stamp, value):
        corpus = corpus_of(2)
        corpus.vectors[3] *= value
        with pytest.raises(StoreError, match=f"vector of unit '{corpus.units[3].unit_id}'.*expected 1"):
            writer.publish(parts_of(writer, corpus), stamp)

    def test_stamp_without_normalisation(self, writer, corpus_of, parts_of, stamp):
        with pytest.raises(StoreError, match=r"stamp\.normalised"):
            writer.publish(parts_of(writer, corpus_of(1)), stamp.model_copy(update={"normalised": False}))

    def test_unknown_kind(self, writer, corpus_of, parts_of, stamp):
        corpus = corpus_of(1)
        corpus.units[0] = corpus.units[0].model_copy(update={"kind": "hunch"})
        with pytest.raises(StoreError, match="unknown unit kind 'hunch'"):
            writer.publish(parts_of(writer, corpus), stamp)

    def test_missing_or_cut_part(self, writer, corpus_of, parts_of, stamp, tmp_path):
        entries = parts_of(writer, corpus_of(2))
        victim = tmp_path / entries[0].path
        victim.write_bytes(victim.read_bytes()[:-1])
        with pytest.raises(StoreError, match=r"bytes, expected .*write that part again"):
            writer.publish(entries, stamp)
        victim.unlink()
        with pytest.raises(StoreError, match="is missing"):
            writer.publish(entries, stamp)

    def test_entries_that_are_no_tables(self, writer, stamp):
        entry = FileEntry(name="faiss", path=f"files/faiss-{'0' * 32}.faiss", sha256="0" * 64, bytes=1, rows=1)
        with pytest.raises(StoreError, match="cannot publish files of faiss"):
            writer.publish([entry], stamp)
