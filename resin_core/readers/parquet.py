"""Parquet rows, in small batches of each row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from resin_core.readers.opening import open_regular
from resin_core.readers.rejects import ReadDocument, ReadFailure, make_reject, named
from resin_core.readers.rows import FIELDS, row_document, row_id
from resin_core.readers.sources import SourceFile
from resin_core.records import Reject

_BATCH_ROWS: Final = 256
_BATCH_BYTES: Final = 32 << 20
_NEEDED: Final = ("id", "text")


def read_parquet(file: SourceFile, max_document_bytes: int) -> Iterator[ReadDocument | Reject]:
    """One document or Reject for each row; rows count from 1.

    Raises OSError, ReadFailure "missing-column" without the columns id and text, and pyarrow's errors for a broken
    file.
    """
    import pyarrow.parquet as pq

    with open_regular(file.path) as stream, pq.ParquetFile(stream) as parquet:
        present = parquet.schema_arrow.names
        missing = [name for name in _NEEDED if name not in present]
        if missing:
            raise ReadFailure("missing-column", f"no column {missing[0]!r}; the columns are {', '.join(present)}")
        columns = [name for name in FIELDS if name in present]
        number = 0
        for batch in parquet.iter_batches(batch_size=_batch_rows(parquet.metadata), columns=columns, use_threads=False):
            arrays = {name: _as_bytes(batch.column(name)) for name in columns}
            for index in range(batch.num_rows):
                number += 1
                yield _row(arrays, index, f"{file.path}#row={number}", f"{file.path} row {number}", max_document_bytes)


def _batch_rows(metadata: Any) -> int:
    """Rows read at once: fewer where rows are large, so that a batch stays at some 32 MB."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=1)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(largest, 1)))


def _as_bytes(array: Any) -> Any:
    """Text columns as raw bytes: they may hold broken UTF-8, which must cost one row and not the batch."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string(array.type):
        return array.cast(pa.binary())
    if pa.types.is_large_string(array.type):
        return array.cast(pa.large_binary())
    return array


def _row(arrays: dict[str, Any], index: int, uri: str, place: str, max_bytes: int) -> ReadDocument | Reject:
    row: dict[str, Any] = {}
    try:
        try:
            for name, array in arrays.items():
                row[name] = array[index].as_py()
        except ValueError as error:  # UnicodeDecodeError in nested text, dates out of Python's range
            raise ReadFailure("corrupt", named(error)) from error
        return row_document(row, uri, place, max_bytes)
    except ReadFailure as failure:
        return make_reject(row_id(row), uri, failure.reason, f"{place}: {failure.detail}", _shown(row))


def _shown(row: dict[str, Any]) -> str:
    """The row in a form for the Reject's raw text, each field cut short."""
    return ", ".join(f"{name}={value!r:.500}" if value is not None else f"{name}=null" for name, value in row.items())
