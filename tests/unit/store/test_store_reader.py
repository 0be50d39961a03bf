"""Search and look-ups over one generation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from resin_core.errors import EncoderError, IndexCorruptError, IndexMismatchError, StoreError
from resin_core.records import UnitKind
from resin_core.store.reader import IndexReader
from resin_core.store.schema import to_table, vectors_table
from resin_core.store.verify import verify
from resin_core.store.writer import IndexWriter


@pytest.fixture(scope="module")
def reader(shared):
    return IndexReader.open(shared.uri)


def _ids(found):
    return [[candidate.unit.unit_id for candidate in row] for row in found]


def _brute_force(corpus, queries, kinds, top_k):
    scores = queries.astype(np.float64) @ corpus.vectors.astype(np.float64).T
    rows = [i for i, unit in enumerate(corpus.units) if not kinds or unit.kind in kinds]
    return [
        [u for _, u in sorted((-scores[q, i], corpus.units[i].unit_id) for i in rows)[:top_k]]
        for q in range(len(queries))
    ]


def _queries(rows, dimension=24, seed=11):
    drawn = np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_every_record_comes_back_as_it_was(reader, shared):
    corpus = shared.corpus
    assert sorted(reader.iter_documents(), key=str) == sorted(corpus.documents, key=str)
    assert sorted(reader.iter_passages(), key=str) == sorted(corpus.passages, key=str)
    assert sorted(reader.iter_units(), key=str) == sorted(corpus.units, key=str)
    assert sorted(reader.iter_rejects(), key=str) == sorted(corpus.rejects, key=str)
    for document in corpus.documents:
        assert reader.document(document.doc_id) == document
    for doc_id, sentences in corpus.sentences:
        assert reader.sentences(doc_id) == sentences
    for unit in corpus.units:
        assert reader.unit(unit.unit_id) == unit
        text = reader.document(unit.doc_id).text
        assert text[unit.char_start : unit.char_end] == unit.evidence_quote
    ids = [passage.passage_id for passage in corpus.passages]
    assert reader.passages(reversed(ids)) == {p.passage_id: p for p in corpus.passages}
    assert list(reader.passages(reversed(ids))) == ids[::-1]
    names = reader.source_names([d.doc_id for d in corpus.documents])
    assert names == {d.doc_id: (d.title, d.uri) for d in corpus.documents}


def test_unknown_ids(reader):
    for look_up in (reader.unit, reader.passage, reader.document):
        with pytest.raises(StoreError, match=r"no .* 'zz\\ud800' in the index"):
            look_up("zz\ud800")
    assert reader.passages(["zz", ""]) == {}
    assert reader.source_names(["zz"]) == {}
    assert reader.sentences("zz") == []


def test_a_vector_finds_its_own_unit(reader, shared):
    found = reader.search(shared.corpus.vectors, (), 1)
    assert [row[0].unit for row in found] == shared.corpus.units
    assert all(abs(row[0].score - 1) < 1e-6 and row[0].rank == 1 for row in found)


@pytest.mark.parametrize("top_k", [1, 3, 28, 1000])
@pytest.mark.parametrize("kinds", [(), (UnitKind.RULE,), (UnitKind.RULE, UnitKind.RELATION), tuple(UnitKind)])
def test_search_agrees_with_numpy(reader, shared, kinds, top_k):
    queries = _queries(30)
    found = reader.search(queries, kinds, top_k)
    assert _ids(found) == _brute_force(shared.corpus, queries, kinds, top_k)
    assert all([c.rank for c in row] == list(range(1, len(row) + 1)) for row in found)
    assert all(row[i].score >= row[i + 1].score for row in found for i in range(len(row) - 1))


def test_a_query_scores_the_same_alone_and_in_a_batch(reader):
    queries = _queries(64)
    assert reader.search(queries, (), 5) == [reader.search(query[None], (), 5)[0] for query in queries]


def test_no_queries(reader):
    assert reader.search(np.empty((0, 24), np.float32), (), 5) == []


def test_threads_find_what_one_finds(shared):
    reader = IndexReader.open(shared.uri)  # fresh: the threads also race for what is loaded at first use
    kinds = [(), (UnitKind.RULE,), (UnitKind.ENTITY_FACT, UnitKind.RULE)]
    jobs = [(_queries(3, seed=seed), kinds[seed % 3]) for seed in range(120)]

    def ask(job):
        found = reader.search(job[0], job[1], 6)
        passages = reader.passages(c.unit.passage_id for row in found for c in row)
        return found, passages, [reader.sentences(p.doc_id) for p in passages.values()]

    with ThreadPoolExecutor(8) as pool:
        concurrent = list(pool.map(ask, jobs))
    assert concurrent == [ask(job) for job in jobs]


def test_ties_are_ordered_by_unit_id_even_across_the_border(tmp_path, corpus_of, stamp, parts_of):
    corpus = corpus_of(60)
    corpus.vectors[20:] = corpus.vectors[20]
    writer = IndexWriter(tmp_path)
    writer.publish(parts_of(writer, corpus), stamp)
    tied = sorted(unit.unit_id for unit in corpus.units[20:])
    reader = IndexReader.open(tmp_path)
    for top_k in (1, 3, 150):
        assert _ids(reader.search(corpus.vectors[20:21], (), top_k)) == [tied[:top_k]]
    mixed = np.concatenate([corpus.vectors[:2], corpus.vectors[20:21]])
    assert _ids(reader.search(mixed, (), 4)) == _brute_force(corpus, mixed, (), 4)


def test_an_index_without_units_answers_with_nothing(tmp_path, corpus_of, stamp, parts_of):
    writer, corpus = IndexWriter(tmp_path), corpus_of(0)
    assert writer.publish([], stamp).counts["units"] == 0
    writer.publish(parts_of(writer, corpus), stamp)  # parts without rows
    for generation in (None, *(p.stem for p in (tmp_path / "generations").iterdir())):
        reader = IndexReader.open(tmp_path, generation)
        reader.warm()
        assert reader.search(_queries(2), (), 5) == [[], []]
        assert reader.search(_queries(2), (UnitKind.RULE,), 5) == [[], []]
        assert list(reader.iter_units()) == []
        assert reader.passages(["p"]) == {}
    assert verify(tmp_path) == []


def test_a_kind_the_index_has_none_of(tmp_path, corpus_of, stamp):
    corpus, writer = corpus_of(1), IndexWriter(tmp_path)
    units = [unit for unit in corpus.units if unit.kind is not UnitKind.RELATION]
    vectors = corpus.vectors[: len(units)]
    entries = [
        writer.write_table("units", to_table("units", units)),
        writer.write_table("vectors", vectors_table([unit.unit_id for unit in units], vectors)),
    ]
    writer.publish(entries, stamp)
    reader = IndexReader.open(tmp_path)
    assert reader.search(vectors, (UnitKind.RELATION,), 3) == [[] for _ in units]


def test_an_open_reader_outlives_the_next_generation(built, corpus_of, parts_of, stamp):
    reader = IndexReader.open(built.uri)
    before = reader.search(_queries(4), (), 5)
    writer = IndexWriter(built.uri)
    second = writer.publish(parts_of(writer, corpus_of(12)), stamp)
    assert reader.search(_queries(4), (), 5) == before
    assert reader.document(built.corpus.documents[3].doc_id) == built.corpus.documents[3]
    assert len(list(reader.iter_units())) == 28
    assert IndexReader.open(built.uri).generation == second.generation
    assert IndexReader.open(built.uri, built.manifest.generation).search(_queries(4), (), 5) == before


def test_two_indexes_at_once_do_not_mix(shared, tmp_path, build):
    other = build(tmp_path / "other", documents=2)
    first, second = IndexReader.open(shared.uri), IndexReader.open(other.uri)
    assert len(first.search(_queries(1), (), 99)[0]) == 28
    assert len(second.search(_queries(1), (), 99)[0]) == 8


def test_encoder(reader):
    reader.check_encoder("all-MiniLM-L6-v2", 24)
    for name, dimension in (("bge-small", 24), ("all-MiniLM-L6-v2", 384)):
        with pytest.raises(
            IndexMismatchError, match=rf"'all-MiniLM-L6-v2' \(24 .*{name}' \({dimension} .*set encoder.model"
        ):
            reader.check_encoder(name, dimension)


def test_queries_that_cannot_be_searched(reader):
    with pytest.raises(IndexMismatchError, match=r"\(1, 384\).*expected \(n, 24\)"):
        reader.search(_queries(1, 384), (), 5)
    with pytest.raises(IndexMismatchError):
        reader.search(_queries(1)[0], (), 5)
    with pytest.raises(EncoderError, match="NaN"):
        reader.search(_queries(1) * np.nan, (), 5)
    with pytest.raises(ValueError, match="top_k is 0"):
        reader.search(_queries(1), (), 0)


@pytest.mark.parametrize(
    "name", ["documents", "sentences", "passages", "units", "vectors", "rejects", "unit_rows", "faiss"]
)
def test_a_cut_or_missing_file_is_named_at_open(built, name):
    entry = built.manifest.entries(name)[-1]
    path = built.uri / entry.path
    path.write_bytes(path.read_bytes()[: entry.bytes // 2])
    with pytest.raises(IndexCorruptError, match=f"has {entry.bytes // 2} bytes, not {entry.bytes}") as caught:
        IndexReader.open(built.uri)
    assert caught.value.path == entry.path
    path.unlink()
    with pytest.raises(IndexCorruptError, match="is missing") as caught:
        IndexReader.open(built.uri)
    assert caught.value.path == entry.path


@pytest.mark.parametrize("name", ["units", "passages", "unit_rows", "faiss"])
def test_zeroed_content_of_the_right_size_is_named_at_open(built, name):
    entry = built.manifest.entries(name)[0]
    (built.uri / entry.path).write_bytes(bytes(entry.bytes))
    with pytest.raises(IndexCorruptError, match="cannot be read") as caught:
        IndexReader.open(built.uri)
    assert caught.value.path == entry.path


def test_altered_pages_are_not_decoded(built):
    entry = built.manifest.entries("documents")[0]
    path = built.uri / entry.path
    content = bytearray(path.read_bytes())
    at = content.index(b"file:///")  # a page of the column uri, of which only this read sees the change
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexCorruptError) as caught:
        list(IndexReader.open(built.uri).iter_documents())
    assert caught.value.path == entry.path
