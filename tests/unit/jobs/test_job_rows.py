from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from jobs import rows
from resin_core.indexing.document import Indexed
from resin_core.readers.rejects import ReadDocument, make_reject
from resin_core.records import Document
from resin_core.store import schema

RECORDS = {"documents", "passages", "units", "rejects"}


def found(indexed: Callable[..., Indexed]) -> list[Indexed]:
    return [
        indexed("with", units=3, rejects=2, lang="en", author="\ufffd"),
        indexed("none"),
        indexed("d\u00fc\U0001f600", "One.", units=1),
        indexed("rejected", rejects=1),
    ]


def made(one: Indexed) -> Document:
    """As it is written: with the key that its rows were made under."""
    return one.document.model_copy(update={"extraction": "e"})


def expected(name: str, documents: list[Indexed]) -> pa.Table:
    if name == "sentences":
        return schema.sentences_table([(one.document.doc_id, one.sentences) for one in documents])
    if name == "documents":
        return schema.to_table("documents", [made(one) for one in documents])
    return schema.to_table(name, [record for one in documents for record in getattr(one, name)])


@pytest.mark.parametrize("name", rows.NESTED)
def test_one_document_comes_back_as_it_went_in(name: str, indexed: Callable[..., Indexed]) -> None:
    for one in found(indexed):
        row = rows.indexed_row("k", one, "e", 9)
        assert row.num_rows == 1
        flat = rows.flat(row, name)
        assert flat.schema.equals(schema.SCHEMAS[name])
        assert flat.equals(expected(name, [one]))
        if name in RECORDS:
            records = [made(one)] if name == "documents" else getattr(one, name)
            assert list(schema.records_of(name, flat)) == list(records)


@pytest.mark.parametrize("name", rows.NESTED)
def test_a_batch_is_flattened_in_order_however_it_was_cut(name: str, indexed: Callable[..., Indexed]) -> None:
    documents = found(indexed)
    chunked = pa.concat_tables([rows.indexed_row(one.document.doc_id, one, "e", 9) for one in documents])
    for batch in (chunked, chunked.combine_chunks()):
        assert rows.flat(batch, name).equals(expected(name, documents))
        assert rows.flat(batch.slice(1), name).equals(expected(name, documents[1:]))
        assert rows.flat(batch.slice(1, 2), name).equals(expected(name, documents[1:3]))
        assert rows.flat(batch.slice(0, 0), name).num_rows == 0
        assert rows.flat(batch.take([2, 0]), name).equals(expected(name, [documents[2], documents[0]]))


def test_an_empty_batch_has_the_tables_columns(indexed: Callable[..., Indexed]) -> None:
    row = rows.indexed_row("k", indexed("a", units=1), "e", 9)
    empty = row.schema.empty_table()
    for name in rows.NESTED:
        assert rows.flat(empty, name).schema.names == schema.SCHEMAS[name].names


def test_a_row_says_what_it_cost(indexed: Callable[..., Indexed]) -> None:
    one = indexed("a", units=1)
    one.carried = 3
    row = rows.indexed_row("k", one, "e", 9)
    assert row.column("key").to_pylist() == ["k"]
    costs = {"llm_calls": 2, "prompt_tokens": 30, "completion_tokens": 7, "source_tokens": 9}
    marks = {"resumed": 0, "carried": 3, "failed": 0}
    assert {name: row.column(name)[0].as_py() for name in rows.COUNTS} == costs | marks
    one.rejects = [make_reject("a", "u", "llm-timeout", "d")]
    again = rows.indexed_row("k", one, "e", 9, resumed=True)
    assert {name: again.column(name)[0].as_py() for name in ("resumed", "failed")} == {"resumed": 1, "failed": 1}
    assert again.schema.equals(row.schema)
    assert rows.no_row().schema.equals(row.schema)


def test_staged_documents_come_back_as_they_were_read(indexed: Callable[..., Indexed]) -> None:
    documents = [one.document for one in found(indexed)]
    read = [ReadDocument(document=one, place=f"notes.jsonl line {n}") for n, one in enumerate(documents)]
    table = rows.staged(read, [f"key {n}" for n in range(len(read))])
    assert rows.documents_of(table) == documents
    assert table.column("place").to_pylist() == [one.place for one in read]
    assert table.column("key").to_pylist() == ["key 0", "key 1", "key 2", "key 3"]
    assert rows.documents_of(rows.staged([], [])) == []
