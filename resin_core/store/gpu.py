"""The vector index on a GPU: a copy of the flat index there, asked by one thread at a time.

FAISS's GPU indexes are not safe for concurrent reads, know no selection of rows, and give 2048 rows at most: what they
cannot do is done by the index in main memory, with the same result.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from resin_core.errors import ConfigError

_MOST_ROWS = 2048


class OnGpu:
    """Takes the place of a FAISS index in a search. `gpu` holds the same rows in the same order as `cpu`."""

    def __init__(self, cpu: Any, gpu: Any) -> None:
        self._cpu, self._gpu = cpu, gpu
        self._one_at_a_time = threading.Lock()

    @property
    def ntotal(self) -> int:
        """Rows."""
        return int(self._cpu.ntotal)

    @property
    def d(self) -> int:
        """Dimension."""
        return int(self._cpu.d)

    def search(
        self, queries: npt.NDArray[np.float32], rows: int, params: Any = None
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Scores and rows (n, rows), best first."""
        if params is not None or rows > _MOST_ROWS:
            scores, found = self._cpu.search(queries, rows, params=params)
        else:
            with self._one_at_a_time:
                scores, found = self._gpu.search(queries, rows)
        return scores, found

    def reconstruct_batch(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The vectors of these rows."""
        vectors: npt.NDArray[np.float32] = self._cpu.reconstruct_batch(rows)
        return vectors


def on_gpu(index: Any) -> OnGpu:
    """The index with a copy on the first GPU that this process sees. Raises ConfigError where there is none."""
    import faiss

    if not hasattr(faiss, "StandardGpuResources"):
        raise ConfigError(
            "retrieval.device is cuda, but the installed FAISS is faiss-cpu; install resin[gpu], or set "
            "retrieval.device=cpu"
        )
    if not faiss.get_num_gpus():
        raise ConfigError("retrieval.device is cuda, but FAISS sees no GPU; set retrieval.device=cpu")
    return OnGpu(index, faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index))
