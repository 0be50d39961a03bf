"""The tables of an index as Arrow schemas, and records to and from Arrow columns.

Text that could pass 2 GB in one table is large_string; list items stay string, their chunks are one part file each.
Arrow text is UTF-8, so it holds NUL and U+FFFD as they are but no lone surrogate: those raise StoreError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resin_core.errors import StoreError
from resin_core.records import Document, Passage, ReasoningUnit, Record, Reject, Sentence

_LIST = pa.list_(pa.field("element", pa.string(), nullable=False))


def _schema(columns: Mapping[str, Any]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


def _text(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, pa.large_string())


SCHEMAS: dict[str, pa.Schema] = {
    "documents": _schema(
        _text("doc_id", "title", "text", "uri")
        | {"metadata": pa.map_(pa.string(), pa.string())}
        | _text("content_hash", "extraction")
    ),
    "sentences": _schema(
        {"doc_id": pa.large_string(), "number": pa.int32(), "char_start": pa.int64(), "char_end": pa.int64()}
    ),
    "passages": _schema(
        _text("passage_id", "doc_id")
        | {"sentence_ids": _LIST, "char_start": pa.int64(), "char_end": pa.int64()}
        | _text("text", "main_entity", "entity_type", "semantic_focus", "evidence_role")
        | {"semantic": pa.bool_()}
    ),
    "units": _schema(
        _text("unit_id", "kind", "subject", "entity_type", "predicate", "canonical_predicate", "object")
        | {"conditions": _LIST}
        | _text("conclusion", "source_state", "target_state", "modality", "polarity", "scope")
        | {"confidence": pa.float64(), "aliases": _LIST}
        | _text("evidence_quote")
        | {"char_start": pa.int64(), "char_end": pa.int64()}
        | _text("passage_id", "doc_id")
        | {"sentence_ids": _LIST, "retrieval_text": pa.large_string()}
    ),
    "rejects": _schema(_text("reject_id", "doc_id", "uri", "stage", "reason", "detail", "raw")),
    # Row i: the row in the units table of vector i. Made by publish.
    "unit_rows": _schema({"unit_row": pa.int64()}),
}
TABLES = ("documents", "sentences", "passages", "units", "vectors", "rejects")
_RECORDS: dict[str, type[Record]] = {
    "documents": Document,
    "passages": Passage,
    "units": ReasoningUnit,
    "rejects": Reject,
}


def vectors_schema(dimension: int) -> pa.Schema:
    """unit_id and its vector, fixed_size_list<float32>[dimension]."""
    item = pa.field("element", pa.float32(), nullable=False)
    return _schema({"unit_id": pa.large_string(), "vector": pa.list_(item, dimension)})


def conform(name: str, table: pa.Table) -> pa.Table:
    """The table with the columns, types and order of its schema, each column in one chunk.

    Raises StoreError naming the table and what does not fit (unknown table, missing column, null, other type).
    """
    if name == "vectors":
        kind: Any = table.schema.field("vector").type if "vector" in table.column_names else pa.null()
        if not pa.types.is_fixed_size_list(kind):
            raise StoreError("table vectors: column vector must be fixed_size_list<float32>; use vectors_table")
        schema = vectors_schema(kind.list_size)
    elif name in SCHEMAS:
        schema = SCHEMAS[name]
    else:
        raise StoreError(f"unknown table {name!r}; the tables of an index are {', '.join(TABLES)}")
    missing = [column for column in schema.names if column not in table.column_names]
    if missing:
        raise StoreError(f"table {name}: missing columns {', '.join(missing)} (got {', '.join(table.column_names)})")
    # Ray and pandas leave metadata and odd chunks behind; both would change the bytes of equal content.
    try:
        return table.select(schema.names).cast(schema).combine_chunks()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise StoreError(f"table {name} does not fit its schema: {' '.join(str(error).split())}") from None


def to_table(name: str, records: Sequence[Record]) -> pa.Table:
    """Documents, passages, units or rejects as the table of that name, in the order given. Raises StoreError."""
    columns: dict[str, list[Any]] = {}
    for column in SCHEMAS[name].names:
        values = [getattr(record, column) for record in records]
        columns[column] = [sorted(value.items()) for value in values] if column == "metadata" else values
    return _table(name, SCHEMAS[name], columns)


def sentences_table(documents: Iterable[tuple[str, Sequence[Sentence]]]) -> pa.Table:
    """The sentences of each document id, as the table sentences."""
    rows = [(doc_id, s.number, s.char_start, s.char_end) for doc_id, sentences in documents for s in sentences]
    names = SCHEMAS["sentences"].names
    return _table("sentences", SCHEMAS["sentences"], {n: [row[i] for row in rows] for i, n in enumerate(names)})


def vectors_table(unit_ids: Sequence[str] | pa.Array, vectors: npt.NDArray[np.float32]) -> pa.Table:
    """Unit ids beside their vectors (n, d) float32. Raises StoreError when the shapes do not fit."""
    if vectors.ndim != 2 or vectors.shape[0] != len(unit_ids) or vectors.shape[1] == 0:
        raise StoreError(
            f"table vectors: {len(unit_ids)} unit ids but vectors of shape {vectors.shape}; expected (n, d)"
        )
    schema = vectors_schema(vectors.shape[1])
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type)
    ids = unit_ids if isinstance(unit_ids, pa.Array) else _column("vectors", "unit_id", pa.large_string(), unit_ids)
    return pa.Table.from_arrays([ids.cast(pa.large_string()), column], schema=schema)


def vectors_of(column: pa.ChunkedArray, dimension: int) -> npt.NDArray[np.float32]:
    """The vectors of a fixed_size_list column as float32 (n, d)."""
    parts = [chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension) for chunk in column.chunks]
    if len(parts) == 1:
        return np.asarray(parts[0], dtype=np.float32)
    return np.concatenate([np.empty((0, dimension), np.float32), *parts])


def records_of(name: str, batch: pa.RecordBatch | pa.Table) -> Iterator[Any]:
    """The rows of documents, passages, units or rejects as records, in order."""
    model = _RECORDS[name]
    names = batch.schema.names
    for row in zip(*(batch.column(column).to_pylist() for column in names), strict=True):
        yield record_of(model, dict(zip(names, row, strict=True)))


def record_of(model: type[Any], values: dict[str, Any]) -> Any:
    """One record from one row's values, validated."""
    if "metadata" in values:
        values["metadata"] = dict(values["metadata"])
    return model(**values)


def _table(name: str, schema: pa.Schema, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    arrays = [_column(name, field.name, field.type, columns[field.name]) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(table: str, name: str, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, type=kind)
    except UnicodeEncodeError as error:
        raise StoreError(
            f"table {table}: column {name} holds a lone surrogate ({error.object[error.start : error.end]!r}), "
            "which UTF-8 cannot carry; readers must replace it before"
        ) from None
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise StoreError(f"table {table}: column {name}: {' '.join(str(error).split())}") from None
