"""Encoder replicas: the requests of many questions in one batch of the encoder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from ray import serve

from deployments import collecting
from deployments.logs import configure
from resin_core.config import EncoderSection
from resin_core.strategies.ports import Vectors


class EncoderReplica:
    """Loads the encoder once; a GPU is taken when the configuration asks for one."""

    def __init__(self, settings: EncoderSection, batch: int, wait_s: float) -> None:
        configure()
        from resin_core.encoder import SentenceEncoder

        self._encoder = SentenceEncoder(settings)
        self._together.set_max_batch_size(batch)
        self._together.set_batch_wait_timeout_s(wait_s)
        collecting.freeze()

    async def stamp(self) -> tuple[str, int]:
        """Name and dimension of the encoder, as manifests hold them."""
        return self._encoder.name, self._encoder.dimension

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """float32 (n, d), L2-normalised rows, in the order given."""
        vectors: Vectors = await self._together(list(texts))
        return vectors

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.002)  # type: ignore[untyped-decorator]
    async def _together(self, requests: list[list[str]]) -> list[Vectors]:
        # Beside the event loop, so that health checks are answered while a batch is worked on.
        vectors = await asyncio.to_thread(self._encoder.encode, [text for texts in requests for text in texts])
        return np.split(vectors, np.cumsum([len(texts) for texts in requests])[:-1])
