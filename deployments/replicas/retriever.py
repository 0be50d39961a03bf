"""Retriever replicas: any generation that a question began with, of any of the indexes served."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.calling import Calls
from deployments.logs import configure
from resin_core.config import ResinConfig
from resin_core.llm.protocol import Deadline
from resin_core.online.retriever import IndexRetriever
from resin_core.records import Document, Passage, UnitKind
from resin_core.store.generations import OpenGenerations
from resin_core.store.manifest import Manifest
from resin_core.store.reader import IndexReader
from resin_core.strategies.ports import Retrieved

_START_S = 600.0


class RetrieverReplica:
    """Holds the newest generations of each index open; searches run beside the event loop."""

    async def __init__(self, config: ResinConfig, indexes: Mapping[str, str], encoder: Any) -> None:  # type: ignore[misc]  # Serve awaits it
        configure()
        self._config = config
        self._calls = Calls(config.serving.call_attempts)
        self._encoder = encoder
        name, dimension = await self._calls.one(encoder.stamp, Deadline.after(_START_S))

        def opened(location: str, generation: str) -> IndexRetriever:
            reader = IndexReader.open(location, generation, config.retrieval.device)
            reader.check_encoder(name, dimension)
            reader.warm()
            return IndexRetriever(reader, config.retrieval.min_score)

        self._indexes = {
            index: OpenGenerations(location, opened, config.serving.keep_open) for index, location in indexes.items()
        }
        # A replica that can open nothing says so at its start, and not to the first question.
        for generations in self._indexes.values():
            await asyncio.to_thread(generations.get, generations.current())

    async def search(
        self, index: str, generation: str, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int, left_s: float
    ) -> Retrieved:
        """As the retriever port, from that generation."""
        deadline = Deadline.after(left_s)
        vectors = await self._calls.one(self._encoder.encode, deadline, list(queries))
        retriever = await self._open(index, generation)
        return await asyncio.to_thread(retriever.resolve, vectors, kinds, top_k)

    async def prepare(self, index: str, generation: str) -> None:
        """Opens a generation before questions come for it."""
        await self._open(index, generation)

    async def manifest(self, index: str, generation: str) -> Manifest:
        """What the generation consists of."""
        return (await self._open(index, generation)).reader.manifest

    async def first_title(self, index: str, generation: str) -> str:
        """Title of some document of the generation; empty when it holds none."""
        reader = (await self._open(index, generation)).reader
        return await asyncio.to_thread(lambda: next((found.title for found in reader.iter_documents()), ""))

    async def document(self, index: str, generation: str, doc_id: str) -> tuple[Document, list[Passage]]:
        """One document with its passages. Raises UnknownIdError when the generation has none of that id."""
        reader = (await self._open(index, generation)).reader
        return await asyncio.to_thread(lambda: (reader.document(doc_id), reader.passages_of(doc_id)))

    async def _open(self, index: str, generation: str) -> IndexRetriever:
        generations = self._indexes[index]
        ready = generations.ready(generation)
        return ready if ready is not None else await asyncio.to_thread(generations.get, generation)
