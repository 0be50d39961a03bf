"""The index store over real processes, an object store's rules, and documents larger than a row group."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pyarrow.fs as pafs
import pytest

from resin_core.errors import IndexCorruptError, IndexMissingError, StoreError
from resin_core.ids import content_hash, passage_id, sentence_id, unit_id
from resin_core.records import Document, Passage, ReasoningUnit, Sentence, UnitKind
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, Stamp
from resin_core.store.reader import IndexReader
from resin_core.store.schema import sentences_table, to_table, vectors_table
from resin_core.store.verify import verify
from resin_core.store.writer import IndexWriter

STAMP = Stamp(encoder="enc", dimension=8, resin_version="0.1.0")


def _vectors(rows: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _write_document(location, number: int, filler: int = 0) -> list[FileEntry]:
    """What one worker does with one document: five part files."""
    doc_id = f"doc-{number}"
    pieces = [f"Claim {number} \U0001f600 number {i}. {'x' * filler}" for i in range(3)]
    text, sentences, at = "\n".join(pieces), [], 0
    for i, piece in enumerate(pieces, start=1):
        sentences.append(
            Sentence(sentence_id=sentence_id(doc_id, i), number=i, char_start=at, char_end=at + len(piece))
        )
        at += len(piece) + 1
    passage = Passage(
        passage_id=passage_id(doc_id, text, 0),
        doc_id=doc_id,
        sentence_ids=tuple(s.sentence_id for s in sentences),
        char_start=0,
        char_end=len(text),
        text=text,
    )
    units = [
        ReasoningUnit(
            unit_id=unit_id(UnitKind.RULE, str(s.number), passage.passage_id),
            kind=UnitKind.RULE,
            subject="s",
            predicate="p",
            canonical_predicate="p",
            object="o",
            evidence_quote=text[s.char_start : s.char_end],
            char_start=s.char_start,
            char_end=s.char_end,
            passage_id=passage.passage_id,
            doc_id=doc_id,
            sentence_ids=(s.sentence_id,),
            retrieval_text="s p o",
        )
        for s in sentences
    ]
    document = Document(doc_id=doc_id, title=f"T{number}", text=text, uri="u", content_hash=content_hash(text))
    writer = IndexWriter(location)
    return [
        writer.write_table("documents", to_table("documents", [document])),
        writer.write_table("sentences", sentences_table([(doc_id, sentences)])),
        writer.write_table("passages", to_table("passages", [passage])),
        writer.write_table("units", to_table("units", units)),
        writer.write_table("vectors", vectors_table([u.unit_id for u in units], _vectors(3, number))),
    ]


def test_parts_written_by_many_processes(tmp_path):
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Each document twice, as when a task is retried.
        jobs = [pool.submit(_write_document, str(tmp_path), number) for number in [*range(12), *range(12)]]
        entries = [entry for job in jobs for entry in job.result()]
    manifest = IndexWriter(tmp_path).publish(entries, STAMP)
    assert (manifest.counts["documents"], manifest.counts["units"]) == (12, 36)
    assert len(list((tmp_path / "files").iterdir())) == 12 * 5 + 2
    assert verify(tmp_path) == []
    reader = IndexReader.open(tmp_path)
    for number in range(12):
        found = reader.search(_vectors(3, number), (), 1)
        assert [row[0].unit.sentence_ids[0] for row in found] == [f"doc-{number}#s{i}" for i in (1, 2, 3)]


@pytest.mark.parametrize("step", ["files/units", "files/unit_rows", "files/faiss", "generations/", "CURRENT"])
def test_a_writer_killed_at_any_step_leaves_the_former_generation(tmp_path, step):
    first = IndexWriter(tmp_path).publish(_write_document(tmp_path, 0), STAMP)
    script = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_store_index import STAMP, IndexFolder, IndexWriter, _write_document
        put = IndexFolder.put
        def killed(self, path, write, size=None):
            def half(stream):
                write(stream)
                stream.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            put(self, path, half if path.startswith({step!r}) else write, size)
        IndexFolder.put = killed
        IndexWriter({str(tmp_path)!r}).publish(_write_document({str(tmp_path)!r}, 1), STAMP)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    reader = IndexReader.open(tmp_path)
    assert reader.generation == first.generation
    assert [d.doc_id for d in reader.iter_documents()] == ["doc-0"]
    assert verify(tmp_path) == []
    # The same work again completes.
    IndexWriter(tmp_path).publish([*_write_document(tmp_path, 0), *_write_document(tmp_path, 1)], STAMP)
    assert IndexReader.open(tmp_path).manifest.counts["documents"] == 2
    assert verify(tmp_path) == []


def test_documents_of_several_row_groups_and_scattered_sentences(tmp_path):
    writer = IndexWriter(tmp_path)
    documents = [
        Document(doc_id=f"d{i}", title="", text=f"{i}" * 300_000, uri="", content_hash=content_hash(f"{i}" * 300_000))
        for i in range(10)
    ]
    halves = [
        (f"d{i % 10}", [Sentence(sentence_id="", number=1 + i // 10, char_start=i, char_end=i + 1)]) for i in range(20)
    ]
    entries = [
        writer.write_table("documents", to_table("documents", documents[:7])),
        writer.write_table("documents", to_table("documents", documents[7:])),
        writer.write_table("sentences", sentences_table(halves[:13])),
        writer.write_table("sentences", sentences_table(halves[13:])),
    ]
    writer.publish(entries, STAMP)
    reader = IndexReader.open(tmp_path)
    for i, document in enumerate(documents):
        assert reader.document(document.doc_id) == document
        assert [(s.sentence_id, s.char_start) for s in reader.sentences(f"d{i}")] == [
            (f"d{i}#s1", i),
            (f"d{i}#s2", i + 10),
        ]
    assert sorted(reader.iter_documents(), key=lambda d: d.doc_id) == documents
    assert verify(tmp_path) == []


class TestObjectStore:
    """A filesystem without renames or memory mapping."""

    @pytest.fixture
    def folder(self, tmp_path):
        memory = fsspec.filesystem("memory")
        root = f"/bucket-{os.urandom(4).hex()}"
        yield IndexFolder(pafs.PyFileSystem(pafs.FSSpecHandler(memory)), root)
        if memory.exists(root):
            memory.rm(root, recursive=True)

    def test_round_trip_and_audit(self, folder):
        assert not folder.is_local
        with pytest.raises(IndexMissingError, match="no index at"):
            IndexReader.open(folder)
        manifest = IndexWriter(folder).publish([*_write_document(folder, 0), *_write_document(folder, 1)], STAMP)
        reader = IndexReader.open(folder)
        assert reader.search(_vectors(3, 1), (UnitKind.RULE,), 1)[2][0].unit.sentence_ids == ("doc-1#s3",)
        assert reader.document("doc-1").text.startswith("Claim 1 \U0001f600")
        assert verify(folder) == []
        second = IndexWriter(folder).publish(_write_document(folder, 0), STAMP)
        assert IndexReader.open(folder).generation == second.generation
        assert IndexReader.open(folder, manifest.generation).manifest == manifest

    def test_damage_is_named(self, folder):
        manifest = IndexWriter(folder).publish(_write_document(folder, 0), STAMP)
        path = manifest.entry("faiss").path
        content = bytearray(folder.read(path))
        content[-1] ^= 1
        with folder.filesystem.open_output_stream(folder.full(path)) as stream:
            stream.write(bytes(content))
        assert [problem.path for problem in verify(folder)] == [path]
        with folder.filesystem.open_output_stream(folder.full(path)) as stream:
            stream.write(bytes(len(content)))
        with pytest.raises(IndexCorruptError, match="cannot be read"):
            IndexReader.open(folder)

    def test_a_content_file_that_is_there_is_not_written_again(self, folder, monkeypatch):
        entries = _write_document(folder, 0)

        def refuse(*_args):
            raise OSError("written again")

        monkeypatch.setattr(folder, "filesystem", _Refusing(folder.filesystem, refuse))
        assert _write_document(folder, 0) == entries
        with pytest.raises(StoreError, match=r"cannot write .*written again"):
            _write_document(folder, 1)


class _Refusing:
    """A filesystem on which nothing can be written."""

    def __init__(self, filesystem, refuse):
        self._filesystem, self.open_output_stream = filesystem, refuse

    def __getattr__(self, name):
        return getattr(self._filesystem, name)
