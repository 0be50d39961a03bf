"""The vector index: everything that knows FAISS.

Flat inner product over L2-normalised rows, so scores are cosines and the search is exact. Another type of index would
change `build` and perhaps the flags of `load`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from resin_core.errors import IndexCorruptError
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry

Vectors = npt.NDArray[np.float32]
_BUFFER_BYTES = 1 << 20
_SPARE = 16  # rows fetched beyond top_k, to see whether a tie crosses the border
_MAX_SPARE = 4096
_SAME_SCORE = 1e-5  # FAISS sums float32 in an order that depends on the batch; nearer scores may swap


def build(blocks: Iterable[Vectors], rows: int, dimension: int) -> Any:
    """A FAISS index of `rows` vectors from blocks (n, dimension) that come in row order. Raises ValueError."""
    faiss = _faiss()
    index = faiss.IndexFlatIP(dimension)
    # Sized once and filled in place: growing by add() would hold nearly twice the memory for a moment.
    index.codes.resize(rows * dimension * 4)
    index.ntotal = rows
    at = 0
    if rows:
        target = faiss.rev_swig_ptr(index.get_xb(), rows * dimension).reshape(rows, dimension)
        for block in blocks:
            target[at : at + len(block)] = block
            at += len(block)
    if at != rows:
        raise ValueError(f"expected {rows} vectors, got {at}")
    return index


def write(folder: IndexFolder, index: Any) -> FileEntry:
    """Write the index under the name of its content. Raises StoreError."""
    digest, size = hashlib.sha256(), 0

    def account(chunk: bytes) -> None:
        nonlocal size
        digest.update(chunk)
        size += len(chunk)

    # Written twice, first into the hash only: the name must be known before an object store takes the bytes.
    _serialise(index, account)
    sha = digest.hexdigest()
    path = f"files/faiss-{sha[:32]}.faiss"
    folder.put(path, lambda stream: _serialise(index, stream.write), size)
    return FileEntry(name="faiss", path=path, sha256=sha, bytes=size, rows=int(index.ntotal))


def load(folder: IndexFolder, entry: FileEntry, dimension: int) -> Any:
    """The FAISS index: memory mapped from a local folder, else read. Raises IndexCorruptError."""
    faiss = _faiss()
    where = folder.full(entry.path)
    local = folder.local(entry.path)
    try:
        if local is not None:
            # Plain IO_FLAG_MMAP maps only inverted lists; flat codes need the other flag.
            index = faiss.read_index(str(local), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
        else:
            with folder.open(entry.path) as stream:
                index = faiss.read_index(faiss.PyCallbackIOReader(stream.read, _BUFFER_BYTES))
    except (RuntimeError, OSError, MemoryError, ValueError) as error:
        flat = " ".join(str(error).split())
        raise IndexCorruptError(entry.path, f"{where} cannot be read: {flat:.300}; run resin index again") from None
    if index.ntotal != entry.rows or index.d != dimension:
        raise IndexCorruptError(
            entry.path,
            f"{where} holds {index.ntotal} vectors of {index.d} dimensions, expected {entry.rows} of {dimension}; "
            "run resin index again",
        )
    return index


class Selector:
    """The rows a search may return, from a boolean mask (n,). Read only, so threads may share it."""

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        faiss = _faiss()
        self.rows = int(mask.sum())
        self._bits = np.packbits(mask, bitorder="little")  # held: FAISS keeps only a pointer to it
        self.parameters = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(self._bits))


def search(
    index: Any, queries: Vectors, top_k: int, selector: Selector | None = None
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """For each query (n, d) its best rows with their cosines: top_k, and more when others score as the last does.

    All queries go into one FAISS call; only those with a tie across the border are asked again, for more rows. Scores
    are summed anew in float64, so that a query scores the same alone and in a batch. A tie of more than 4096 rows is
    cut where FAISS cuts it.
    """
    available = int(index.ntotal) if selector is None else selector.rows
    results = [(np.empty(0, np.int64), np.empty(0, np.float64)) for _ in queries]
    if not available:
        return results
    parameters = None if selector is None else selector.parameters
    pending = np.arange(len(queries))
    most = min(top_k + _MAX_SPARE, available)
    wanted = min(top_k + _SPARE, available)
    while len(pending):
        scores, rows = index.search(queries[pending], wanted, params=parameters)
        tied = scores[:, -1] > scores[:, min(top_k, wanted) - 1] - _SAME_SCORE
        again = tied & (wanted < most)
        for at in np.flatnonzero(~again):
            query = int(pending[at])
            found = rows[at][rows[at] >= 0]
            results[query] = (found, _cosines(index, found, queries[query]))
        pending = pending[again]
        wanted = min(wanted * 8, most)
    return results


def _faiss() -> Any:
    # Imported late, and as Any: the stubs shipped with FAISS lack the Python side of its classes.
    import faiss

    return faiss


def _cosines(index: Any, rows: npt.NDArray[np.int64], query: Vectors) -> npt.NDArray[np.float64]:
    stored = index.reconstruct_batch(rows).astype(np.float64)
    return np.asarray((stored * query.astype(np.float64)).sum(axis=1))


def _serialise(index: Any, sink: Any) -> None:
    faiss = _faiss()

    def take(chunk: bytes) -> int:
        sink(chunk)
        return len(chunk)

    faiss.write_index(index, faiss.PyCallbackIOWriter(take, _BUFFER_BYTES))
