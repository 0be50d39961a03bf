"""The audit: altered bytes, and content that contradicts itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from resin_core.records import Document, Sentence
from resin_core.store.manifest import manifest_path
from resin_core.store.schema import sentences_table, to_table, vectors_table
from resin_core.store.verify import verify
from resin_core.store.writer import IndexWriter

FILES = ["documents", "sentences", "passages", "units", "vectors", "rejects", "unit_rows", "faiss"]


def _paths(problems):
    return {problem.path for problem in problems}


def test_a_sound_index_has_no_problems(shared):
    assert verify(shared.uri) == []
    assert verify(shared.uri.as_uri()) == []


def _flip(path, at, mask=1):
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)


@pytest.mark.parametrize("name", [*FILES, "manifest", "CURRENT"])
def test_any_flipped_byte_is_found_and_the_file_named(built, name):
    if name == "CURRENT":
        path = "CURRENT"
    else:
        path = manifest_path(built.manifest.generation) if name == "manifest" else built.manifest.entries(name)[0].path
    size = (built.uri / path).stat().st_size
    rng = np.random.default_rng(5)
    places = range(size) if size < 40 else [0, 4, size - 1, size - 6, *rng.integers(0, size, 12).tolist()]
    for at in places:
        for mask in (1, 0x20, 0x80):
            _flip(built.uri / path, at, mask)
            assert _paths(verify(built.uri)) == {path}, (at, mask)
            _flip(built.uri / path, at, mask)
    assert verify(built.uri) == []


@pytest.mark.parametrize("name", FILES)
def test_cut_or_missing_files(built, name):
    path = built.uri / built.manifest.entries(name)[0].path
    path.write_bytes(path.read_bytes()[:-3])
    assert [p.path for p in verify(built.uri) if "the manifest says" in p.message] == [f"files/{path.name}"]
    path.unlink()
    assert [p.path for p in verify(built.uri) if "missing" in p.message] == [f"files/{path.name}"]
    path.mkdir()
    assert _paths(verify(built.uri)) == {f"files/{path.name}"}


def test_a_former_generation_is_audited_too(built, corpus_of, parts_of, stamp):
    writer = IndexWriter(built.uri)
    writer.publish(parts_of(writer, corpus_of(3)), stamp)
    old = built.manifest.entry("faiss").path
    _flip(built.uri / old, 60)
    assert _paths(verify(built.uri)) == {old}


def test_leftovers_of_a_killed_run_are_no_problem(built):
    (built.uri / "files" / ".units-x.parquet.1.tmp").write_bytes(b"half")
    (built.uri / "generations" / ".g2.json.1.tmp").write_bytes(b"half")
    assert verify(built.uri) == []


class TestContent:
    """Whole files that contradict each other: what a faulty writer would leave."""

    @pytest.fixture
    def problems(self, tmp_path, corpus_of, parts_of, stamp):
        def check(change):
            corpus, writer = corpus_of(3), IndexWriter(tmp_path)
            change(corpus)
            writer.publish(parts_of(writer, corpus, 1), stamp)
            return verify(tmp_path)

        return check

    def test_a_sound_corpus(self, problems):
        assert problems(lambda corpus: None) == []

    @pytest.mark.parametrize(
        ("table", "row", "update", "message"),
        [
            ("units", 5, {"evidence_quote": "made up"}, "evidence_quote is not the text of"),
            ("units", 5, {"char_start": -3}, "evidence_quote is not the text of"),
            ("units", 5, {"sentence_ids": ()}, "names no sentence"),
            ("units", 5, {"sentence_ids": ("notes/1.md#s9",)}, "sentence 'notes/1.md#s9' does not exist"),
            ("units", 5, {"sentence_ids": ("notes/1.md#s02",)}, "sentence 'notes/1.md#s02' does not exist"),
            ("units", 5, {"sentence_ids": ("other#s1",)}, "sentence 'other#s1' does not exist"),
            ("units", 5, {"sentence_ids": ("",)}, "sentence '' does not exist"),
            ("units", 5, {"sentence_ids": ("notes/1.md#s1",)}, "its sentences do not cover"),
            ("units", 5, {"doc_id": "nowhere"}, "document 'nowhere' is not in the index"),
            ("units", 5, {"passage_id": "p-none"}, "passage 'p-none' is not in the index"),
            ("passages", 2, {"text": "made up"}, "text is not the text of"),
            ("passages", 2, {"char_end": 9, "text": ""}, "text is not the text of"),
            ("passages", 2, {"sentence_ids": ("notes/1.md#s1",)}, "its sentences do not cover"),
            ("documents", 1, {"content_hash": "0" * 64}, "content_hash does not fit"),
        ],
    )
    def test_a_changed_field(self, problems, table, row, update, message):
        def change(corpus):
            rows = getattr(corpus, table)
            rows[row] = rows[row].model_copy(update=update)

        found = problems(change)
        assert any(p.path.startswith(f"files/{table}-") and message in p.message for p in found), found

    def test_units_outside_their_passage_or_of_another_document(self, problems):
        def change(corpus):
            first, last = corpus.passages[2].passage_id, corpus.passages[0].passage_id
            corpus.units[6] = corpus.units[6].model_copy(update={"passage_id": first})
            corpus.units[7] = corpus.units[7].model_copy(update={"passage_id": last})

        messages = " ".join(problem.message for problem in problems(change))
        assert "does not hold its span" in messages
        assert "is of another document" in messages

    def test_sentences(self, problems):
        def change(corpus):
            doc_id, sentences = corpus.sentences[1]
            far = sentences[3].model_copy(update={"char_end": 10_000})
            corpus.sentences[1] = (doc_id, [*sentences[:3], far, sentences[0]])
            stray = Sentence(sentence_id="zz#s1", number=1, char_start=0, char_end=1)
            corpus.sentences.append(("zz", [stray]))

        found = problems(change)
        assert {p.path.split("-")[0] for p in found} == {"files/sentences"}
        text = " ".join(p.message for p in found)
        assert "belongs to no document" in text
        assert "is not a span of its document" in text
        assert "stands twice" in text

    def test_many_problems_are_summed_up(self, problems):
        def change(corpus):
            corpus.documents[:] = [
                Document(**(d.model_dump() | {"text": d.text + "!", "content_hash": "x"})) for d in corpus.documents
            ]
            corpus.units[:] = [u.model_copy(update={"evidence_quote": "?", "passage_id": "?"}) for u in corpus.units]

        found = [p for p in problems(change) if p.path.startswith("files/units-")]
        assert len(found) == 21
        assert found[-1].message == "and 4 more problems in this file"


class TestForgedPublication:
    """What only a publish that skipped its checks could leave."""

    @pytest.fixture
    def forge(self, tmp_path, corpus_of, parts_of, stamp, monkeypatch):
        def publish(change):
            corpus, writer = corpus_of(3), IndexWriter(tmp_path)
            entries = {entry.name: entry for entry in parts_of(writer, corpus, 1) if entry.name != "vectors"}
            ids = [unit.unit_id for unit in corpus.units]
            entries["vectors"] = writer.write_table("vectors", vectors_table(ids, corpus.vectors))
            monkeypatch.setattr(IndexWriter, "_refuse_repeats", lambda *_: None)
            change(writer, corpus, entries, monkeypatch)
            writer.publish(entries.values(), stamp)
            monkeypatch.undo()
            return {(p.path.split("-")[0].removeprefix("files/"), p.message) for p in verify(tmp_path)}

        return publish

    def test_counts(self, forge):
        def change(writer, corpus, entries, patch):
            patch.setattr(IndexWriter, "_units_by_kind", lambda *_: {"rule": 99})

        assert any(path == "generations/g1" and "units_by_kind" in text for path, text in forge(change))

    def test_faiss_rows_of_other_vectors(self, forge):
        def change(writer, corpus, entries, patch):
            write = IndexWriter._faiss
            turned = vectors_table([unit.unit_id for unit in corpus.units], corpus.vectors[::-1])
            other = writer.write_table("vectors", turned)
            patch.setattr(IndexWriter, "_faiss", lambda self, parts, stamp: write(self, [other], stamp))

        found = forge(change)
        assert {path for path, _ in found} == {"faiss"}
        assert any("row 0 is not the vector of" in text for _, text in found)

    def test_faiss_with_fewer_rows(self, forge):
        def change(writer, corpus, entries, patch):
            patch.setattr(IndexWriter, "_faiss", lambda self, parts, stamp: IndexWriter_faiss(self, [], stamp))

        IndexWriter_faiss = IndexWriter._faiss  # noqa: N806
        assert ("faiss", "holds 0 vectors, the vectors files 12") in forge(change)

    def test_a_map_that_leads_elsewhere(self, forge):
        def change(writer, corpus, entries, patch):
            turned = vectors_table([unit.unit_id for unit in corpus.units[::-1]], corpus.vectors)
            other = writer.write_table("vectors", turned)
            rows = IndexWriter._unit_rows
            patch.setattr(IndexWriter, "_unit_rows", lambda self, chosen: rows(self, chosen | {"vectors": [other]}))

        assert forge(change) == {("unit_rows", "does not lead from the vectors to their units")}

    def test_vectors_and_units_that_do_not_match(self, forge):
        def change(writer, corpus, entries, patch):
            ids = ["u-stray", *(unit.unit_id for unit in corpus.units[1:])]
            entries["vectors"] = writer.write_table("vectors", vectors_table(ids, corpus.vectors))
            sound = writer._write("unit_rows", pa.table({"unit_row": np.arange(12)}))
            patch.setattr(IndexWriter, "_unit_rows", lambda *_: sound)

        found = forge(change)
        assert ("vectors", "vector of 'u-stray' has no unit") in found
        assert any(path == "units" and text.endswith("has no vector") for path, text in found)

    def test_repeated_ids_and_long_vectors(self, forge):
        def change(writer, corpus, entries, patch):
            patch.setattr("resin_core.store.writer.NORM_TOLERANCE", 10)
            ids = [unit.unit_id for unit in corpus.units]
            entries["vectors"] = writer.write_table("vectors", vectors_table(ids, corpus.vectors * np.float32(1.5)))
            for name in ("documents", "passages"):
                rows = getattr(corpus, name)
                entries[name] = writer.write_table(name, to_table(name, [*rows, rows[0]]))
            entries["sentences"] = writer.write_table("sentences", sentences_table(corpus.sentences))

        found = forge(change)
        assert any(path == "vectors" and "has length 1.5, expected 1" in text for path, text in found)
        assert any(path == "documents" and "stands more than once" in text for path, text in found)
        assert any(path == "passages" and "stands more than once" in text for path, text in found)
