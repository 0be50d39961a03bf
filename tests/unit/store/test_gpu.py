"""The vector index on a GPU, played by a second index in main memory: who is asked, and by how many at once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faiss
import numpy as np
import pytest

from resin_core.errors import ConfigError
from resin_core.store import vectors
from resin_core.store.gpu import OnGpu, on_gpu

ROWS = 3000
DATA = np.random.default_rng(5).normal(size=(ROWS, 8)).astype(np.float32)
DATA /= np.linalg.norm(DATA, axis=1, keepdims=True)


class Card:
    """An index that minds being asked by two at once, as a GPU's does, and knows neither selections nor many rows."""

    def __init__(self) -> None:
        self.index = vectors.build([DATA], ROWS, 8)
        self.asked = 0
        self._busy = threading.Lock()

    def search(self, queries: Any, rows: int) -> Any:
        assert rows <= 2048
        assert self._busy.acquire(blocking=False), "two threads at once"
        try:
            self.asked += 1
            time.sleep(0.002)
            return self.index.search(queries, rows)
        finally:
            self._busy.release()


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def index(card: Card) -> OnGpu:
    return OnGpu(vectors.build([DATA], ROWS, 8), card)


def same(found: Any, other: Any) -> bool:
    return all(np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1]) for a, b in zip(found, other, strict=True))


def test_many_threads_get_what_main_memory_gives(index: OnGpu, card: Card) -> None:
    plain = vectors.build([DATA], ROWS, 8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda at: vectors.search(index, DATA[at : at + 2], 5), range(40)))
    assert all(same(rows, vectors.search(plain, DATA[at : at + 2], 5)) for at, rows in enumerate(found))
    assert card.asked >= 40


def test_selections_and_many_rows_are_left_to_main_memory(index: OnGpu, card: Card) -> None:
    plain = vectors.build([DATA], ROWS, 8)
    only = vectors.Selector(np.arange(ROWS) % 2 == 0)
    assert same(vectors.search(index, DATA[:1], 5, only), vectors.search(plain, DATA[:1], 5, only))
    assert same(vectors.search(index, DATA[:1], 2500), vectors.search(plain, DATA[:1], 2500))
    assert card.asked == 0


def test_without_a_gpu_the_setting_is_refused() -> None:
    if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match=r"retrieval\.device"):
        on_gpu(vectors.build([DATA], ROWS, 8))
