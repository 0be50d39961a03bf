"""Rows of the indexing job: one a document, its tables as list columns, all Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from resin_core.indexing.document import Indexed
from resin_core.llm.patient import GAVE_UP
from resin_core.readers.rejects import ReadDocument
from resin_core.records import Document
from resin_core.store import schema

NESTED = ("documents", "sentences", "passages", "units", "rejects")
COUNTS = ("llm_calls", "prompt_tokens", "completion_tokens", "source_tokens", "resumed", "carried", "failed")


def staged(documents: Sequence[ReadDocument], keys: Sequence[str]) -> pa.Table:
    """Documents as read, with their places and content keys."""
    table = schema.to_table("documents", [read.document for read in documents])
    table = table.append_column("place", pa.array([read.place for read in documents], pa.large_string()))
    return table.append_column("key", pa.array(keys, pa.string()))


def documents_of(batch: pa.Table) -> list[Document]:
    """The documents of staged rows."""
    return list(schema.records_of("documents", batch.select(schema.SCHEMAS["documents"].names)))


def indexed_row(key: str, found: Indexed, extraction: str, source_tokens: int, resumed: bool = False) -> pa.Table:
    """One document's tables as one row, made under this extraction key.

    `resumed`: all its replies were paid for by an earlier run.
    """
    document = found.document.model_copy(update={"extraction": extraction})
    tables = {
        "documents": schema.to_table("documents", [document]),
        "sentences": schema.sentences_table([(found.document.doc_id, found.sentences)]),
        "passages": schema.to_table("passages", found.passages),
        "units": schema.to_table("units", found.units),
        "rejects": schema.to_table("rejects", found.rejects),
    }
    columns: dict[str, pa.Array] = {"key": pa.array([key], pa.string())}
    for name in NESTED:
        columns[name] = _nest(tables[name])
    counts = {
        **found.usage.model_dump(),
        "source_tokens": source_tokens,
        "resumed": int(resumed),
        "carried": found.carried,
        "failed": int(has_failed(found)),
    }
    for name in COUNTS:
        columns[name] = pa.array([counts[name]], pa.int64())
    return pa.table(columns)


def no_row() -> pa.Table:
    """The columns of `indexed_row` without a row."""
    columns: dict[str, pa.Array] = {"key": pa.array([], pa.string())}
    columns |= {name: pa.array([], pa.list_(_struct(name))) for name in NESTED}
    columns |= {name: pa.array([], pa.int64()) for name in COUNTS}
    return pa.table(columns)


def has_failed(found: Indexed) -> bool:
    """Whether a call for the document was given up."""
    return any(reject.reason.startswith(GAVE_UP) for reject in found.rejects)


def flat(batch: pa.Table, name: str) -> pa.Table:
    """The rows of one nested table over a whole batch, in order."""
    chunks = [chunk.flatten() for chunk in batch.column(name).chunks]
    structs = pa.concat_arrays(chunks) if chunks else pa.array([], _struct(name))
    return pa.Table.from_struct_array(structs)


def _struct(name: str) -> pa.DataType:
    return pa.struct(list(schema.SCHEMAS[name]))


def _nest(table: pa.Table) -> pa.Array:
    structs = table.to_struct_array()
    if isinstance(structs, pa.ChunkedArray):
        structs = structs.combine_chunks()
    offsets = pa.array([0, table.num_rows], pa.int32())
    return pa.ListArray.from_arrays(offsets, structs)
