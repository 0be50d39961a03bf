"""Part files: Parquet bytes out, checked tables in, and random access to rows and ids over many parts.

Every read failure becomes IndexCorruptError naming the file; pages carry checksums, so altered data is not decoded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resin_core.errors import IndexCorruptError
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry
from resin_core.store.schema import SCHEMAS, vectors_schema

_GROUP_BYTES = 1 << 20
_READ_ERRORS = (OSError, ValueError, KeyError, MemoryError, pa.ArrowException)


def parquet_bytes(name: str, table: pa.Table) -> pa.Buffer:
    """A conforming table as Parquet; equal tables give equal bytes."""
    sink = pa.BufferOutputStream()
    # Nothing is looked up by value range, and statistics would copy whole texts into the footer.
    options: dict[str, Any] = {"write_page_checksum": True, "write_statistics": False, "compression": "zstd"}
    if name == "vectors":
        options |= {"compression": "none", "use_dictionary": False}
    elif name == "documents":
        # One document is read without the rest of its part, so groups of rows stay near a megabyte of text.
        per_row = max(1, table.nbytes // max(1, table.num_rows))
        options["row_group_size"] = max(1, _GROUP_BYTES // per_row)
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@contextmanager
def opened(folder: IndexFolder, entry: FileEntry) -> Iterator[Any]:
    """The part's pyarrow ParquetFile, its schema and row count checked. Raises IndexCorruptError."""
    where = folder.full(entry.path)
    try:
        with folder.open(entry.path) as file:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
            if rows != entry.rows:
                raise IndexCorruptError(entry.path, f"{where} has {rows} rows, expected {entry.rows}; index again")
            if not schema.equals(_expected(entry.name, schema)):
                raise IndexCorruptError(entry.path, f"{where} has other columns than table {entry.name}; index again")
            yield parquet
    except FileNotFoundError:
        raise IndexCorruptError(entry.path, f"{where} is missing; restore it or run resin index again") from None
    except _READ_ERRORS as error:
        flat = " ".join(str(error).split())
        raise IndexCorruptError(entry.path, f"{where} cannot be read: {flat:.300}; run resin index again") from None


def read_part(folder: IndexFolder, entry: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """One part, all columns or those named. Raises IndexCorruptError."""
    with opened(folder, entry) as parquet:
        # Parts are read side by side; threads inside each would only get in each other's way.
        return parquet.read(columns=columns, use_threads=False)


def read_parts(
    folder: IndexFolder, entries: Sequence[FileEntry], columns: Sequence[str] | None = None
) -> list[pa.Table]:
    """Several parts at once, in the order given. Raises IndexCorruptError."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(lambda entry: read_part(folder, entry, columns), entries))


def read_column(folder: IndexFolder, entries: Sequence[FileEntry], column: str) -> pa.ChunkedArray:
    """One text column over all parts, in row order. Raises IndexCorruptError."""
    tables = read_parts(folder, entries, [column])
    return pa.chunked_array([c for t in tables for c in t.column(0).chunks], type=pa.large_string())


def positions(values: pa.ChunkedArray, universe: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each value its first row in `universe`, or -1; int64 (n,)."""
    found = pc.index_in(values, value_set=universe)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def starts_of(entries: Sequence[FileEntry]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first row of each part and, last, the number of all rows; int64 (parts + 1,)."""
    return np.cumsum([0, *(entry.rows for entry in entries)], dtype=np.int64)


class Rows:
    """Random access to rows over many Arrow tables, without copying or joining their columns."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        self._batches = [batch for table in tables for batch in table.to_batches() if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def value(self, row: int, column: str) -> Any:
        """One cell."""
        batch, offset = self._locate(row)
        return batch.column(column)[offset].as_py()

    def values(self, row: int) -> dict[str, Any]:
        """One row by column name."""
        batch, offset = self._locate(row)
        return {name: column[offset].as_py() for name, column in zip(batch.schema.names, batch.columns, strict=True)}

    def column(self, name: str) -> pa.ChunkedArray:
        """One column over all rows, as the chunks it is held in."""
        return pa.chunked_array([batch.column(name) for batch in self._batches], type=pa.large_string())

    def _locate(self, row: int) -> tuple[Any, int]:
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._batches[part], row - int(self._starts[part])


class IdIndex:
    """Rows by id: a sorted copy of the ids and their order, binary search for each look-up."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        column = pa.concat_arrays([pa.array([], pa.large_string()), *ids.chunks])
        order = pc.sort_indices(column)
        self._sorted = column.take(order)
        self._order = order.to_numpy()

    def find(self, key: str) -> list[int]:
        """Every row with that id, ascending; none when there is none."""
        at = bisect_left(self._sorted, key, key=lambda scalar: scalar.as_py())
        rows = []
        while at < len(self._sorted) and self._sorted[at].as_py() == key:
            rows.append(int(self._order[at]))
            at += 1
        return sorted(rows)


def _expected(name: str, schema: pa.Schema) -> pa.Schema:
    if name != "vectors":
        return SCHEMAS[name]
    kind = schema.field("vector").type
    return vectors_schema(kind.list_size) if pa.types.is_fixed_size_list(kind) else vectors_schema(1)
